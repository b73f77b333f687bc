//! One step of a stack walk: (registers, rule, memory) → the caller's registers.
//!
//! Both sides share it: the kernel side walks with it, the user side tests it
//! over recorded memory. The rules are compiled from DWARF call frame
//! information (DWARF 5, section 6.4); what depends on the architecture is in [`crate::arch`].

pub use crate::rule::{
    Caller, End, Frames, IN_REGISTER, Memory, Registers, Returned, Rule, cfa, extra, fp, held,
};
use crate::{
    arch::{FP_TO_CFA, Native},
    rule::held_value,
};

/// Farthest that a frame pointer may lie from the stack pointer to be believed, bytes.
const MAX_FRAME: u64 = 1 << 20;

/// The caller of the code at `at`.
///
/// # Errors
/// How the walk ends here; [`End::Complete`] at the outermost frame.
#[inline(always)]
pub fn step(rule: Rule, at: &Registers, memory: &impl Memory) -> Result<Caller, End> {
    step_on::<Native>(rule, at, memory)
}

/// Where a frame at `cfa` has saved its caller's frame pointer; 0: it has not.
#[inline(always)]
pub fn fp_slot(rule: Rule, at: &Registers, cfa: u64) -> u64 {
    rule.fp_slot::<Native>(at, cfa)
}

/// As [`step`], of an architecture.
#[inline(always)]
pub(crate) fn step_on<A: Frames>(
    rule: Rule,
    at: &Registers,
    memory: &impl Memory,
) -> Result<Caller, End> {
    let offset = i64::from(rule.cfa_offset) as u64;
    let by_sp = matches!(rule.cfa, cfa::SP | cfa::PLT | cfa::DEREF_SP);
    if A::RECORDS_LACK_SP && by_sp && at.extra_is == held::NO_SP {
        return Err(End::BadFramePointer);
    }
    let cfa = match rule.cfa {
        cfa::SP => at.sp.wrapping_add(offset),
        cfa::FP => at.fp.wrapping_add(offset),
        cfa::EXTRA => held_value(at, memory)?.wrapping_add(offset),
        cfa::PLT => {
            let pushed = u64::from(at.pc & 15 >= offset);
            at.sp.wrapping_add(A::PUSHED_BY_CALL + (pushed << 3))
        }
        cfa::DEREF_FP | cfa::DEREF_SP => {
            let base = if rule.cfa == cfa::DEREF_FP {
                at.fp
            } else {
                at.sp
            };
            let low = i64::from(rule.cfa_offset as i16) as u64;
            let high = i64::from(rule.cfa_offset >> 16) as u64;
            let value = memory.read(base.wrapping_add(low)).ok_or(End::Unreadable)?;
            value.wrapping_add(high)
        }
        cfa::FRAME_POINTER => {
            let distance = at.fp.wrapping_sub(at.sp);
            if at.fp == 0 && rule.cfa_offset != 0 {
                return Err(End::Complete);
            }
            if distance >= MAX_FRAME || at.fp & 7 != 0 {
                return Err(End::BadFramePointer);
            }
            at.fp.wrapping_add(FP_TO_CFA)
        }
        cfa::SIGNAL => {
            let [pc, sp, fp, extra] = A::IN_SIGNAL_FRAME;
            let read = |offset| {
                memory
                    .read(at.sp.wrapping_add(offset))
                    .ok_or(End::Unreadable)
            };
            let registers = Registers {
                fp: read(fp)?,
                sp: read(sp)?,
                pc: read(pc)?,
                extra: at.sp.wrapping_add(extra),
                extra_is: held::ADDRESS,
            };
            return Ok(Caller {
                registers,
                slot: 0,
                word: 0,
            });
        }
        cfa::STOP => return Err(End::Complete),
        cfa::NO_ROW => return Err(End::NoRow),
        _ => return Err(End::UnsupportedRule),
    };
    let saved = rule.fp_slot::<A>(at, cfa);
    let Returned { slot, word } = A::returned(rule, at, cfa, saved, memory)?;
    let fp = if saved == 0 {
        at.fp
    } else {
        memory.read(saved).ok_or(End::Unreadable)?
    };
    let pc = A::code_address(word);
    if pc == 0 {
        // Tables lead to it on purpose; a register that is not a frame pointer leads anywhere.
        return Err(if rule.cfa == cfa::FRAME_POINTER {
            End::BadFramePointer
        } else {
            End::Complete
        });
    }
    let (extra, extra_is) = A::extra_of_caller(rule, at, cfa, slot);
    let registers = Registers {
        pc,
        sp: cfa,
        fp,
        extra,
        extra_is,
    };
    Ok(Caller {
        registers,
        slot,
        word,
    })
}

/// A frame as it crosses the kernel boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// Address as the ELF file of this number means it.
    File { exec: u32, vaddr: u64 },
    /// Absolute address that no known file holds.
    Absolute(u64),
    /// A Python frame, by its code object's absolute address. A [`Word::PythonAt`] follows.
    Python(u64),
    /// Where in the code it is: `f_lasti` as the interpreter's version counts it, below 2^28, and
    /// the code object's [`crate::python::fingerprint`].
    PythonAt { instruction: u32, fingerprint: u32 },
}

/// Number of files whose frames can be distinguished, limited by the word's 12 bits.
pub const EXECS: u32 = 1 << 12;

const TAG_SHIFT: u32 = 60;
const TAG_FILE: u64 = 1;
const TAG_ABSOLUTE: u64 = 2;
const TAG_PYTHON: u64 = 3;
const TAG_PYTHON_AT: u64 = 4;
const EXEC_SHIFT: u32 = 48;
const VADDR_MASK: u64 = (1 << EXEC_SHIFT) - 1;

impl Word {
    #[inline(always)]
    pub const fn file(exec: u32, vaddr: u64) -> u64 {
        TAG_FILE << TAG_SHIFT | ((exec & (EXECS - 1)) as u64) << EXEC_SHIFT | vaddr & VADDR_MASK
    }

    #[inline(always)]
    pub const fn absolute(addr: u64) -> u64 {
        TAG_ABSOLUTE << TAG_SHIFT | addr & ((1 << TAG_SHIFT) - 1)
    }

    #[inline(always)]
    pub const fn python(code: u64) -> u64 {
        TAG_PYTHON << TAG_SHIFT | code & ((1 << TAG_SHIFT) - 1)
    }

    #[inline(always)]
    pub const fn python_at(instruction: u32, fingerprint: u32) -> u64 {
        let instruction = (instruction & ((1 << 28) - 1)) as u64;
        TAG_PYTHON_AT << TAG_SHIFT | instruction << 32 | fingerprint as u64
    }

    /// Whether it is a [`Word::Python`].
    #[inline(always)]
    pub const fn is_python(word: u64) -> bool {
        word >> TAG_SHIFT == TAG_PYTHON
    }

    /// Whether it is a [`Word::File`].
    #[inline(always)]
    pub const fn is_file(word: u64) -> bool {
        word >> TAG_SHIFT == TAG_FILE
    }

    /// File number and address of a [`Word::File`].
    #[inline(always)]
    pub const fn in_file(word: u64) -> (u32, u64) {
        ((word >> EXEC_SHIFT) as u32 & (EXECS - 1), word & VADDR_MASK)
    }

    /// The address of a [`Word::Absolute`] or [`Word::Python`].
    #[inline(always)]
    pub const fn address(word: u64) -> u64 {
        word & ((1 << TAG_SHIFT) - 1)
    }

    /// `None` for a word that none of the above made.
    pub fn decode(word: u64) -> Option<Word> {
        match word >> TAG_SHIFT {
            TAG_FILE => {
                let (exec, vaddr) = Word::in_file(word);
                Some(Word::File { exec, vaddr })
            }
            TAG_ABSOLUTE => Some(Word::Absolute(word & ((1 << TAG_SHIFT) - 1))),
            TAG_PYTHON => Some(Word::Python(word & ((1 << TAG_SHIFT) - 1))),
            TAG_PYTHON_AT => Some(Word::PythonAt {
                instruction: (word >> 32) as u32 & ((1 << 28) - 1),
                fingerprint: word as u32,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
