//! Repeats some of the kernel side's walks by other means and reports where the two differ
//! (`memtrace record --verify-stacks`).
//!
//! The kernel side sends a copy of the stack with the walk. A thread of its own unwinds the copy
//! with `framehop`, over the mappings from `/proc/PID/maps` and the files' own `.eh_frame`: from
//! memtrace, only the list of mappings and the numbers of files are used. See [`compare`] for the
//! rules.

mod compare;
mod image;
mod mapped;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use memtrace_common::kernel::Sampling;
use serde_json::{Value, json};

use self::{
    compare::{Ended, Outcome, Space},
    image::Image,
    mapped::Mapped,
};
use super::{location::ModuleIndex, modules::Modules};
use crate::{arch, bpf::decode::Sample, process::maps::Mapping};

/// Samples that wait for the thread, and again that it has waiting: some 130 MB of copies at most each.
const WAITING: usize = 4096;

/// Mismatches that are logged in full.
const LOGGED: u64 = 5;

enum Message {
    Module(ModuleIndex, String, File),
    Mappings(u32, u64, Vec<Mapped>),
    Forked { parent: u32, child: u32 },
    Forgotten(u32),
    Sample(Box<Sample>),
}

/// The results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Walks compared.
    pub stacks: u64,
    /// Those that agree to the outermost frame.
    pub whole: u64,
    /// Frames that both walks have.
    pub frames: u64,
    /// Signal frames that were crossed.
    pub signal_frames: u64,
    pub mismatches: u64,
    /// Walks that the kernel side recognised as earlier ones. It made them again; those that then had another stack are
    /// mismatches too.
    pub recognized: u64,
    /// Walks with only their first frames compared, by the obstacle.
    pub partly: BTreeMap<&'static str, u64>,
    /// Walks chosen but not sent: over the kernel side's budget.
    pub over_budget: u64,
    /// Walks sent but not compared: this side was too slow.
    pub dropped: u64,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        self.stacks += 1;
        self.frames += outcome.frames;
        self.signal_frames += outcome.signal_frames;
        match outcome.ended {
            Ended::Outermost => self.whole += 1,
            Ended::Mismatch => self.mismatches += 1,
            Ended::Incomparable(reason) => *self.partly.entry(reason).or_default() += 1,
        }
    }

    pub(super) fn add_sampling(&mut self, sampling: &Sampling) {
        self.over_budget = sampling.skipped;
        self.recognized = sampling.found;
        self.mismatches += sampling.found_wrong;
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "stacks": self.stacks,
            "whole": self.whole,
            "frames": self.frames,
            "signal_frames": self.signal_frames,
            "mismatches": self.mismatches,
            "recognized": self.recognized,
            "partly": self.partly,
            "over_budget": self.over_budget,
            "dropped": self.dropped,
        })
    }
}

/// Handle of the thread.
pub(super) struct Verifier {
    sender: SyncSender<Message>,
    thread: JoinHandle<Counts>,
    /// Files that the thread has.
    sent: HashSet<ModuleIndex>,
    dropped: u64,
}

impl Verifier {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("memtrace-verify".to_owned())
            .spawn(move || work(&receiver))?;
        Ok(Self {
            sender,
            thread,
            sent: HashSet::new(),
            dropped: 0,
        })
    }

    /// The mappings of a process as of `sequence` (see `memtrace_common::code_map::Log`).
    pub(super) fn mapped(
        &mut self,
        tgid: u32,
        sequence: u64,
        mappings: &[Mapping],
        modules: &Modules,
    ) {
        let mut mapped = Vec::new();
        for mapping in mappings
            .iter()
            .filter(|mapping| mapping.permissions.execute)
        {
            let module = modules.known_file(mapping);
            if let Some(index) = module
                && self.sent.insert(index)
                && let Ok(file) = modules.reopen(index)
            {
                let path = modules.get(index).file.path.display().to_string();
                self.send(Message::Module(index, path, file));
            }
            mapped.push(Mapped {
                start: mapping.start,
                end: mapping.end,
                file_offset: mapping.file_offset,
                module,
            });
        }
        self.send(Message::Mappings(tgid, sequence, mapped));
    }

    pub(super) fn forked(&self, parent: u32, child: u32) {
        self.send(Message::Forked { parent, child });
    }

    /// The process has ended, or runs another program.
    pub(super) fn forgotten(&self, tgid: u32) {
        self.send(Message::Forgotten(tgid));
    }

    pub(super) fn sample(&mut self, sample: Box<Sample>) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Message::Sample(sample)) {
            self.dropped += 1;
        }
    }

    /// Waits if it must: without these nothing can be compared.
    fn send(&self, message: Message) {
        // A thread that has ended is noticed at the end.
        let _ = self.sender.send(message);
    }

    /// Waits for the comparisons of all walks sent.
    pub(super) fn finish(self) -> Counts {
        drop(self.sender);
        let mut counts = self.thread.join().unwrap_or_else(|_| {
            tracing::error!("stack verification failed: its thread panicked");
            Counts::default()
        });
        counts.dropped = self.dropped;
        counts
    }
}

fn work(messages: &Receiver<Message>) -> Counts {
    let mut work = Work::default();
    for message in messages {
        work.handle(message);
    }
    let waiting: Vec<u32> = work.waiting.keys().copied().collect();
    for tgid in waiting {
        work.compare_all_of(tgid);
    }
    work.counts
}

/// The thread's state.
#[derive(Default)]
struct Work {
    images: HashMap<ModuleIndex, Image>,
    spaces: HashMap<u32, Arc<Space>>,
    cache: arch::UnwindCache,
    /// Samples by process whose mappings are still to come.
    waiting: HashMap<u32, Vec<Sample>>,
    counts: Counts,
}

impl Work {
    fn handle(&mut self, message: Message) {
        match message {
            Message::Module(index, path, file) => {
                self.images.insert(index, Image::open(path, &file));
            }
            Message::Mappings(tgid, sequence, mapped) => {
                match self.spaces.get_mut(&tgid) {
                    Some(space) if space.maps_the_same(&mapped) => {
                        Arc::make_mut(space).sequence = sequence;
                    }
                    _ => {
                        let space = Space::new(sequence, mapped, &self.images);
                        self.spaces.insert(tgid, Arc::new(space));
                    }
                }
                for sample in self.waiting.remove(&tgid).unwrap_or_default() {
                    self.compare_in_time(sample);
                }
            }
            Message::Forked { parent, child } => {
                if let Some(space) = self.spaces.get(&parent) {
                    let space = Arc::clone(space);
                    self.spaces.insert(child, space);
                }
            }
            Message::Forgotten(tgid) => {
                self.compare_all_of(tgid);
                self.spaces.remove(&tgid);
            }
            Message::Sample(sample) => self.compare_in_time(*sample),
        }
    }

    /// Compares a walk, but not before the mappings that it is based on have come: a program that changes its code does not
    /// wait for the collector to read them.
    fn compare_in_time(&mut self, sample: Sample) {
        let tgid = sample.header.tgid;
        let space = self.spaces.get(&tgid);
        let is_early = space.is_some_and(|space| sample.sequence > space.sequence);
        let waiting = self.waiting.values().map(Vec::len).sum::<usize>();
        if is_early && waiting < WAITING {
            self.waiting.entry(tgid).or_default().push(sample);
        } else {
            self.compare(&sample);
        }
    }

    /// Compares the waiting walks of a process with the mappings that are known.
    fn compare_all_of(&mut self, tgid: u32) {
        for sample in self.waiting.remove(&tgid).unwrap_or_default() {
            self.compare(&sample);
        }
    }

    fn compare(&mut self, sample: &Sample) {
        let outcome = match self.spaces.get(&sample.header.tgid) {
            Some(space) => space.compare(sample, &mut self.images, &mut self.cache),
            None => Outcome::incomparable("process_unknown"),
        };
        self.counts.add(&outcome);
        if outcome.ended == Ended::Mismatch && self.counts.mismatches <= LOGGED {
            tracing::error!(
                "a stack of process {} (thread {}) does not verify\n{}",
                sample.header.tgid,
                sample.header.tid,
                compare::describe(sample, &outcome, &self.images)
            );
        }
    }
}
