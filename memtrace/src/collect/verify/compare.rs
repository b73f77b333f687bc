//! One walk against another.
//!
//! Compares the addresses of frames (as file and address in it), from the first on, until one of
//! the two ends. Only the frames that `framehop` derives from call frame information count as true:
//! [`super::image::Cfi`] is consulted before each step, and if there is none that it applies
//! unchanged, the comparison ends and the reason is counted. It also ends if the stack is not in
//! the copy. Signal frames, which `framehop` cannot handle, are crossed by the layout of
//! `ucontext_t` in libc.
//!
//! A mismatch is a frame that differs, a walk that calls a frame outermost when the other has its
//! caller, or one that calls it outermost when the other fails.

use std::collections::HashMap;

use framehop::{FrameAddress, Unwinder};
use memtrace_common::{
    arch::{RETURN_ADDRESS_SIZE, code_address},
    event::COPIED_PAGE,
    unwind::{End, Word},
};

use super::{
    image::{Base, Cfi, Image, Section},
    mapped::Mapped,
};
use crate::{arch, bpf::decode::Sample, collect::location::ModuleIndex};

/// End of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Both agree to the outermost frame.
    Outermost,
    Mismatch,
    /// Nothing is known beyond the last compared frame.
    Incomparable(&'static str),
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Frames that both have.
    pub(super) frames: u64,
    pub(super) signal_frames: u64,
    pub(super) ended: Ended,
    /// Absolute addresses of the frames as found here.
    pub(super) found: Vec<u64>,
    /// Location of each of them.
    pub(super) places: Vec<Option<(ModuleIndex, u64)>>,
}

impl Outcome {
    pub(super) fn incomparable(reason: &'static str) -> Outcome {
        Outcome {
            frames: 0,
            signal_frames: 0,
            ended: Ended::Incomparable(reason),
            found: Vec::new(),
            places: Vec::new(),
        }
    }
}

/// The code of a process.
#[derive(Clone)]
pub(super) struct Space {
    /// The change number of its code that it is based on.
    pub(super) sequence: u64,
    mapped: Vec<Mapped>,
    unwinder: arch::Unwinder<Section>,
}

/// The copy of a stack.
struct Copy<'a> {
    sample: &'a Sample,
    /// A read was refused.
    missed: bool,
}

/// Whether a call puts its return address on the stack, where a return probe replaces it. Others replace it in a register,
/// and the function saves it anywhere.
const IS_PUSHED: bool = RETURN_ADDRESS_SIZE != 0;

impl Copy<'_> {
    /// A return address that was replaced in a call that began with this stack pointer.
    fn original(&self, sp: u64) -> Option<u64> {
        let mut returns = self.sample.returns.iter();
        let pending = returns.find(|pending| pending.slot == sp);
        pending.map(|pending| pending.original)
    }

    fn read(&mut self, abs_addr: u64) -> Result<u64, ()> {
        if IS_PUSHED && let Some(original) = self.original(abs_addr) {
            return Ok(original);
        }
        let base = self.sample.at.sp & !(COPIED_PAGE as u64 - 1);
        let word = abs_addr.checked_sub(base).and_then(|offset| {
            self.sample
                .copy
                .get(usize::try_from(offset).ok()?..)?
                .first_chunk()
        });
        self.missed |= word.is_none();
        word.map(|word| u64::from_ne_bytes(*word)).ok_or(())
    }
}

impl Space {
    pub(super) fn new(
        sequence: u64,
        mapped: Vec<Mapped>,
        images: &HashMap<ModuleIndex, Image>,
    ) -> Space {
        let mut unwinder = arch::Unwinder::new();
        for mapping in &mapped {
            if let Some(image) = mapping.module.and_then(|index| images.get(&index))
                && let Some(module) = image.module(mapping)
            {
                unwinder.add_module(module);
            }
        }
        Space {
            sequence,
            mapped,
            unwinder,
        }
    }

    pub(super) fn maps_the_same(&self, mapped: &[Mapped]) -> bool {
        self.mapped == mapped
    }

    /// Location of an absolute address: file and address in the file's terms.
    fn locate(
        &self,
        abs_addr: u64,
        images: &HashMap<ModuleIndex, Image>,
    ) -> Option<(ModuleIndex, u64)> {
        let mapping = self
            .mapped
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&abs_addr))?;
        let index = mapping.module?;
        let bias = images.get(&index)?.bias(mapping)?;
        Some((index, abs_addr.wrapping_sub(bias)))
    }

    pub(super) fn compare(
        &self,
        sample: &Sample,
        images: &mut HashMap<ModuleIndex, Image>,
        cache: &mut arch::UnwindCache,
    ) -> Outcome {
        if sample.frames.is_empty() {
            return Outcome::incomparable("not_walked");
        }
        if sample.sequence != self.sequence {
            return Outcome::incomparable("mappings_changed");
        }
        let mut outcome = Outcome::incomparable("");
        let at = sample.at;
        let mut registers = arch::unwind_registers(&at);
        let mut copy = Copy {
            sample,
            missed: false,
        };
        let mut pc = at.pc.wrapping_sub(1);
        outcome.ended = loop {
            let place = self.locate(pc, images);
            outcome.found.push(pc);
            outcome.places.push(place);
            let Some(&word) = sample.frames.get(outcome.frames as usize) else {
                // The walk ended before this frame.
                break match sample.end {
                    End::Complete => Ended::Mismatch,
                    end => Ended::Incomparable(end.name()),
                };
            };
            match (Word::decode(word), place) {
                (Some(Word::File { exec, vaddr }), Some(place))
                    if place == (ModuleIndex(exec), vaddr) => {}
                (Some(Word::Absolute(addr)), _) if addr == pc => {}
                (Some(Word::File { .. }), None) => break Ended::Incomparable("mapping_unknown"),
                _ => break Ended::Mismatch,
            }
            outcome.frames += 1;
            let cfi = place.and_then(|(index, vaddr)| Some(images.get_mut(&index)?.cfi(vaddr)));
            let crossed = cfi == Some(Cfi::Signal);
            let next = match cfi {
                None => break Ended::Incomparable("no_file"),
                Some(Cfi::Missing) => break Ended::Incomparable("no_cfi"),
                Some(Cfi::Outermost) => break Ended::Incomparable("outermost_by_name"),
                Some(Cfi::NotDone) => break Ended::Incomparable("cfi_not_done_by_framehop"),
                Some(Cfi::Signal) => {
                    outcome.signal_frames += 1;
                    cross(&mut registers, &mut copy)
                }
                Some(Cfi::Rule(rule)) => {
                    // Its lookup takes one off again.
                    let Some(address) = FrameAddress::from_return_address(pc.wrapping_add(1))
                    else {
                        break Ended::Incomparable("null");
                    };
                    let wanted = rule.map(|(base, offset)| {
                        let base = match base {
                            Base::Sp => registers.sp(),
                            Base::Fp => arch::frame_pointer(&registers),
                        };
                        base.wrapping_add_signed(offset)
                    });
                    let step =
                        self.unwinder
                            .unwind_frame(address, &mut registers, cache, &mut |addr| {
                                copy.read(addr)
                            });
                    match step {
                        Ok(Some(_)) if wanted.is_some_and(|cfa| cfa != registers.sp()) => {
                            break Ended::Incomparable("framehop_guessed");
                        }
                        Ok(next) => next,
                        Err(_) if copy.missed => None,
                        Err(_) => break Ended::Incomparable("framehop_failed"),
                    }
                }
            };
            if copy.missed {
                break Ended::Incomparable("not_in_copy");
            }
            let Some(next) = next else {
                let left = sample.frames.len() - outcome.frames as usize;
                // A thread begins with a frame pointer of 0, at which framehop ends one frame early.
                let ends_early =
                    !IS_PUSHED && left == 1 && copy.read(arch::frame_pointer(&registers)) == Ok(0);
                break if (left == 0 || ends_early) && sample.end == End::Complete {
                    Ended::Outermost
                } else {
                    Ended::Mismatch
                };
            };
            let next = match sample.trampoline != 0 && next == code_address(sample.trampoline) {
                false => next,
                // A caller's stack pointer is that of the call's beginning.
                true if !IS_PUSHED && let Some(original) = copy.original(registers.sp()) => {
                    original
                }
                true => break Ended::Incomparable("more_pending_returns"),
            };
            pc = next.wrapping_sub(u64::from(!crossed));
        };
        outcome
    }
}

/// Restores the registers that a signal interrupted; returns its address, which is not a return
/// address.
fn cross(registers: &mut arch::UnwindRegisters, copy: &mut Copy<'_>) -> Option<u64> {
    let frame = registers.sp();
    let read = |offset| copy.read(frame.wrapping_add(offset)).ok();
    let (pc, interrupted) = arch::interrupted(read)?;
    *registers = interrupted;
    Some(pc)
}

/// Both walks side by side.
pub(super) fn describe(
    sample: &Sample,
    outcome: &Outcome,
    images: &HashMap<ModuleIndex, Image>,
) -> String {
    let file = |index: ModuleIndex, vaddr: u64| match images.get(&index) {
        Some(image) => format!("{}+{vaddr:#x}", image.path),
        None => format!("file {}+{vaddr:#x}", index.0),
    };
    let ours = |index: usize| match sample.frames.get(index).copied().map(Word::decode) {
        Some(Some(Word::File { exec, vaddr })) => file(ModuleIndex(exec), vaddr),
        Some(Some(Word::Absolute(addr))) => format!("{addr:#x}"),
        Some(_) => "no frame".to_owned(),
        None if index == sample.frames.len() => format!("({})", sample.end.name()),
        None => String::new(),
    };
    let theirs = |index: usize| match (outcome.found.get(index), outcome.places.get(index)) {
        (_, Some(&Some((module, vaddr)))) => file(module, vaddr),
        (Some(addr), _) => format!("{addr:#x}"),
        _ if index == outcome.found.len() => "(end)".to_owned(),
        _ => String::new(),
    };
    let mut text = format!(
        "pc {:#x}, sp {:#x}, fp {:#x}; memtrace | framehop:",
        sample.at.pc, sample.at.sp, sample.at.fp
    );
    for index in 0..=sample.frames.len().max(outcome.found.len()) {
        text += &format!("\n  {index:3} {} | {}", ours(index), theirs(index));
    }
    text
}
