//! One step of a stack walk: (registers, rule, memory) → the caller's registers.
//!
//! Both sides share it: the kernel side walks with it, the user side tests it
//! over recorded memory. The rules are compiled from DWARF call frame
//! information (DWARF 5, section 6.4), x86-64 register numbers and the return
//! address at CFA − 8 from the System V psABI, AMD64 supplement, section 3.6.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    arch::{FP_TO_CFA, RETURN_ADDRESS_SIZE, SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_PC, SIGNAL_SP},
    wire::wire_enum,
};

/// How to find the caller of one range of code. Eight bytes, deduplicated over
/// all files.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Rule {
    /// A [`cfa`] kind: where the canonical frame address (CFA) is.
    pub cfa: u8,
    /// An [`fp`] kind, for the frame pointer, and above it an [`extra`] kind.
    pub fp: u8,
    /// Bytes, see [`fp`].
    pub fp_offset: i16,
    /// Bytes, see [`cfa`].
    pub cfa_offset: i32,
}

/// Values of [`Rule::cfa`]; `o` is [`Rule::cfa_offset`].
pub mod cfa {
    /// No call frame information covers the code.
    pub const NO_ROW: u8 = 0;
    /// CFA = sp + o.
    pub const SP: u8 = 1;
    /// CFA = fp + o.
    pub const FP: u8 = 2;
    /// Of a PLT: CFA = sp + 8, and 8 more from byte `o` of each 16-byte entry on.
    pub const PLT: u8 = 3;
    /// CFA = \*(fp + low) + high, the 16-bit halves of `o`, both signed (see [`super::Rule::deref`]).
    pub const DEREF_FP: u8 = 4;
    /// CFA = \*(sp + low) + high, as above.
    pub const DEREF_SP: u8 = 5;
    /// A signal handler's return code: the interrupted registers are on the stack.
    pub const SIGNAL: u8 = 6;
    /// The return address is undefined: the outermost frame.
    pub const STOP: u8 = 7;
    /// Call frame information that these rules cannot express.
    pub const UNSUPPORTED: u8 = 8;
    /// No tables: the code is assumed to keep a frame pointer, which is checked. `o` is 1 if its callee is such code
    /// too: only then is a zero the mark of the outermost frame (psABI, section 3.4.1), and not just a register that
    /// was 0.
    pub const FRAME_POINTER: u8 = 9;
    /// CFA = the extra register + o. On x86-64: of glibc's trampoline to functions that are bound when first called.
    pub const EXTRA: u8 = 10;
}

/// Values of [`Rule::fp`]; `o` is [`Rule::fp_offset`].
pub mod fp {
    /// Unchanged.
    pub const SAME: u8 = 0;
    /// Saved at CFA + o.
    pub const AT_CFA: u8 = 1;
    /// Saved at fp + o.
    pub const AT_FP: u8 = 2;
    /// The bits of [`super::Rule::fp`] that hold the above.
    pub const MASK: u8 = 3;
}

/// Values of [`Rule::fp`] above [`fp::MASK`]: for the extra register. Other values, times 8, are how far below the
/// CFA it was saved.
pub mod extra {
    pub const SHIFT: u32 = 2;
    /// Unchanged.
    pub const SAME: u8 = 0;
    /// Not known.
    pub const LOST: u8 = 63;
}

impl Rule {
    /// `*(register + offset) + addend` as a [`Rule::cfa_offset`]; `None` if either does not fit 16 bits.
    pub fn deref(offset: i64, addend: i64) -> Option<i32> {
        let (offset, addend) = (i16::try_from(offset).ok()?, i16::try_from(addend).ok()?);
        Some(i32::from(addend) << 16 | i32::from(offset.cast_unsigned()))
    }

    /// An [`extra`] kind for a register saved at CFA + `offset`.
    pub fn extra_at(offset: i64) -> u8 {
        let slots = offset.checked_neg().filter(|below| below % 8 == 0);
        let slots = slots.and_then(|below| u8::try_from(below / 8).ok());
        slots
            .filter(|slots| (1..extra::LOST).contains(slots))
            .unwrap_or(extra::LOST)
    }
}

/// The registers that a walk needs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Registers {
    /// Of a caller: the return address.
    pub pc: u64,
    pub sp: u64,
    pub fp: u64,
    /// The extra register, or where it was saved: few walks need it, so it is not read before. It is rbx on x86-64, and
    /// the link register on aarch64.
    pub extra: u64,
    /// The meaning of `extra`: a [`held`] kind.
    pub extra_is: u64,
}

/// Values of [`Registers::extra_is`].
pub mod held {
    pub const VALUE: u64 = 0;
    /// Absolute address of the value.
    pub const ADDRESS: u64 = 1;
    pub const UNKNOWN: u64 = 2;
}

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub registers: Registers,
    /// Where on the stack its return address was read; 0 for code that a signal interrupted, whose `pc` is not a return
    /// address.
    pub slot: u64,
}

/// The memory of the walked thread.
pub trait Memory {
    /// Eight bytes at an absolute address; `None` if they cannot be read.
    fn read(&self, abs_addr: u64) -> Option<u64>;
}

wire_enum! {
    /// Why a walk ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u32)]
    pub enum End: u32 {
        /// At the thread's outermost frame.
        Complete = 0,
        /// At [`crate::limits::MAX_FRAMES`].
        Truncated = 1,
        /// An address in no executable mapping, as far as known.
        NoMapping = 2,
        /// The file's tables are not loaded.
        NoTable = 3,
        /// The file has tables, but none covers the code (assembler without CFI).
        NoRow = 4,
        /// Call frame information that is not supported.
        UnsupportedRule = 5,
        /// Stack memory that could not be read, or a frame below its callee's.
        Unreadable = 6,
        /// The mappings changed during the walk, or too often since they were last read.
        Stale = 7,
        /// Code without tables that keeps no frame pointer.
        BadFramePointer = 8,
        /// Not walked by tables: frame pointers were followed, and end where one is missing.
        FramePointersOnly = 9,
    }
}

impl End {
    /// Stable name in reports, JSON and recordings.
    pub const fn name(self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::Truncated => "truncated",
            End::NoMapping => "no_mapping",
            End::NoTable => "no_table",
            End::NoRow => "no_row",
            End::UnsupportedRule => "unsupported_rule",
            End::Unreadable => "unreadable",
            End::Stale => "stale",
            End::BadFramePointer => "bad_frame_pointer",
            End::FramePointersOnly => "frame_pointers_only",
        }
    }
}

/// Farthest that a frame pointer may lie from the stack pointer to be believed, bytes.
const MAX_FRAME: u64 = 1 << 20;

/// The caller of the code at `at`.
///
/// # Errors
/// How the walk ends here; [`End::Complete`] at the outermost frame.
#[inline(always)]
pub fn step(rule: Rule, at: &Registers, memory: &impl Memory) -> Result<Caller, End> {
    let offset = i64::from(rule.cfa_offset) as u64;
    let cfa = match rule.cfa {
        cfa::SP => at.sp.wrapping_add(offset),
        cfa::FP => at.fp.wrapping_add(offset),
        cfa::EXTRA => {
            let value = match at.extra_is {
                held::VALUE => at.extra,
                held::ADDRESS => memory.read(at.extra).ok_or(End::Unreadable)?,
                _ => return Err(End::UnsupportedRule),
            };
            value.wrapping_add(offset)
        }
        cfa::PLT => {
            let pushed = u64::from(at.pc & 15 >= offset);
            at.sp.wrapping_add(RETURN_ADDRESS_SIZE + (pushed << 3))
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
            let read = |offset| {
                memory
                    .read(at.sp.wrapping_add(offset))
                    .ok_or(End::Unreadable)
            };
            let registers = Registers {
                fp: read(SIGNAL_FP)?,
                sp: read(SIGNAL_SP)?,
                pc: read(SIGNAL_PC)?,
                extra: at.sp.wrapping_add(SIGNAL_EXTRA),
                extra_is: held::ADDRESS,
            };
            return Ok(Caller { registers, slot: 0 });
        }
        cfa::STOP => return Err(End::Complete),
        cfa::NO_ROW => return Err(End::NoRow),
        _ => return Err(End::UnsupportedRule),
    };
    // Stacks grow down: a caller's frame is above its callee's.
    if cfa <= at.sp {
        return Err(End::Unreadable);
    }
    let slot = cfa.wrapping_sub(RETURN_ADDRESS_SIZE);
    let pc = memory.read(slot).ok_or(End::Unreadable)?;
    let saved = match rule.fp & fp::MASK {
        fp::AT_CFA => cfa.wrapping_add(i64::from(rule.fp_offset) as u64),
        fp::AT_FP => at.fp.wrapping_add(i64::from(rule.fp_offset) as u64),
        _ => 0,
    };
    let fp = if saved == 0 {
        at.fp
    } else {
        memory.read(saved).ok_or(End::Unreadable)?
    };
    if pc == 0 {
        // Tables lead to it on purpose; a register that is not a frame pointer leads anywhere.
        return Err(if rule.cfa == cfa::FRAME_POINTER {
            End::BadFramePointer
        } else {
            End::Complete
        });
    }
    let (extra, extra_is) = match rule.fp >> extra::SHIFT {
        // Generated code saves any registers.
        _ if rule.cfa == cfa::FRAME_POINTER => (0, held::UNKNOWN),
        extra::SAME => (at.extra, at.extra_is),
        extra::LOST => (0, held::UNKNOWN),
        slots => (cfa.wrapping_sub(u64::from(slots) << 3), held::ADDRESS),
    };
    let registers = Registers {
        pc,
        sp: cfa,
        fp,
        extra,
        extra_is,
    };
    Ok(Caller { registers, slot })
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
