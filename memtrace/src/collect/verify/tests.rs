//! The verifier itself, over the stack of the test: it agrees where it should, and notices errors.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt};

use memtrace_common::{
    event::{COPIED_PAGE, Header, PendingReturn},
    unwind::{End, Word},
};

use super::{
    Mapped, Message, ModuleIndex, Work,
    compare::{Ended, Outcome, Space},
    image::Image,
};
use crate::{arch, bpf::decode::Sample, process::maps};

/// More than the test's own frames take.
const PAGES: usize = 32;

struct Fixture {
    mapped: Vec<Mapped>,
    space: Space,
    images: HashMap<ModuleIndex, Image>,
    sample: Sample,
}

impl Fixture {
    /// This thread from here on, with the walk that the verifier itself makes of it.
    #[inline(never)]
    fn here() -> Fixture {
        let at = arch::here();
        let memory = File::open("/proc/self/mem").unwrap();
        let page = at.sp & !(COPIED_PAGE as u64 - 1);
        let mut copy = Vec::new();
        let mut bytes = [0; COPIED_PAGE];
        while copy.len() < PAGES * COPIED_PAGE
            && memory
                .read_exact_at(&mut bytes, page + copy.len() as u64)
                .is_ok()
        {
            copy.extend(bytes);
        }

        let mut images = HashMap::new();
        let mut mapped = Vec::new();
        for mapping in maps::read(std::process::id()).unwrap() {
            if !mapping.permissions.execute || mapping.file().is_none() {
                continue;
            }
            let path = mapping.path.unwrap();
            let index = ModuleIndex(images.len() as u32);
            let file = File::open(&path).unwrap();
            images.insert(index, Image::open(path.display().to_string(), &file));
            mapped.push(Mapped {
                start: mapping.start,
                end: mapping.end,
                file_offset: mapping.file_offset,
                module: Some(index),
            });
        }
        let mut fixture = Fixture {
            space: Space::new(7, mapped.clone(), &images),
            mapped,
            images,
            sample: Sample {
                header: Header::default(),
                at,
                sequence: 7,
                trampoline: 0,
                end: End::Truncated,
                returns: Vec::new(),
                frames: Vec::new(),
                copy,
            },
        };
        // Frame by frame: a walk that is cut off shows the next frame.
        fixture.sample.frames = vec![Word::absolute(at.pc - 1)];
        loop {
            let outcome = fixture.compare();
            let frames: Vec<u64> = outcome
                .places
                .iter()
                .map(|place| {
                    let (module, vaddr) = place.unwrap();
                    Word::file(module.0, vaddr)
                })
                .collect();
            if outcome.ended != Ended::Incomparable("truncated") {
                fixture.sample.end = End::Complete;
                return fixture;
            }
            fixture.sample.frames = frames;
        }
    }

    fn compare(&mut self) -> Outcome {
        self.space.compare(
            &self.sample,
            &mut self.images,
            &mut arch::UnwindCache::new(),
        )
    }
}

#[test]
fn the_same_walk_agrees_to_the_outermost_frame() {
    let mut fixture = Fixture::here();
    let outcome = fixture.compare();
    assert_eq!(outcome.ended, Ended::Outermost);
    assert_eq!(outcome.frames, fixture.sample.frames.len() as u64);
    assert!(outcome.frames > 3, "{} frames", outcome.frames);
}

#[test]
fn a_wrong_address_is_a_mismatch_at_its_frame() {
    let mut fixture = Fixture::here();
    fixture.sample.frames[2] += 1;
    let outcome = fixture.compare();
    assert_eq!((outcome.ended, outcome.frames), (Ended::Mismatch, 2));
}

#[test]
fn extra_frames_at_the_outermost_end_are_a_mismatch() {
    let mut fixture = Fixture::here();
    let last = fixture.sample.frames.pop().unwrap();
    assert_eq!(fixture.compare().ended, Ended::Mismatch);
    fixture.sample.frames.extend([last, last]);
    assert_eq!(fixture.compare().ended, Ended::Mismatch);
}

#[test]
fn a_walk_that_ends_early_is_compared_up_to_its_end() {
    let mut fixture = Fixture::here();
    fixture.sample.frames.truncate(3);
    fixture.sample.end = End::NoRow;
    let outcome = fixture.compare();
    assert_eq!(outcome.ended, Ended::Incomparable("no_row"));
    assert_eq!(outcome.frames, 3);
}

#[test]
fn memory_outside_the_copy_is_not_guessed() {
    let mut fixture = Fixture::here();
    fixture.sample.copy.clear();
    let outcome = fixture.compare();
    assert_eq!(outcome.ended, Ended::Incomparable("not_in_copy"));
    assert_eq!(outcome.frames, 1);
}

#[test]
fn a_replaced_return_address_is_read_as_the_original() {
    let mut fixture = Fixture::here();
    let whole = fixture.compare();
    let second = whole.found[1] + 1;
    let base = fixture.sample.at.sp & !(COPIED_PAGE as u64 - 1);
    let skip = (fixture.sample.at.sp - base) as usize;
    let slot = fixture.sample.copy[skip..]
        .chunks_exact(8)
        .position(|word| word == second.to_ne_bytes())
        .unwrap();
    let slot = skip + slot * 8;
    let trampoline = 0x7fff_ffff_f000_u64;
    fixture.sample.copy[slot..slot + 8].copy_from_slice(&trampoline.to_ne_bytes());
    fixture.sample.trampoline = trampoline;
    assert_eq!(
        fixture.compare().ended,
        Ended::Incomparable("more_pending_returns")
    );
    fixture.sample.returns = vec![PendingReturn {
        slot: base + slot as u64,
        original: second,
    }];
    assert_eq!(fixture.compare().ended, Ended::Outermost);
}

#[test]
fn mappings_of_another_time_prove_nothing() {
    let mut fixture = Fixture::here();
    fixture.sample.sequence += 1;
    assert_eq!(
        fixture.compare().ended,
        Ended::Incomparable("mappings_changed")
    );
}

#[test]
fn a_walk_waits_for_the_mappings_that_it_is_based_on() {
    const TGID: u32 = 5;
    let Fixture {
        mapped,
        images,
        mut sample,
        ..
    } = Fixture::here();
    sample.header.tgid = TGID;
    let mut work = Work {
        images,
        ..Work::default()
    };
    work.handle(Message::Mappings(TGID, 6, Vec::new()));
    work.handle(Message::Sample(Box::new(sample.clone())));
    assert_eq!(work.counts.stacks, 0);
    work.handle(Message::Mappings(TGID, 7, mapped));
    assert_eq!((work.counts.stacks, work.counts.whole), (1, 1));
    sample.sequence = 8;
    work.handle(Message::Sample(Box::new(sample)));
    assert_eq!(work.counts.stacks, 1);
    work.handle(Message::Forgotten(TGID));
    assert_eq!(work.counts.partly["mappings_changed"], 1);
}
