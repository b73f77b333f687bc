//! aarch64: where stacks have the values that a walk reads.
//!
//! A call leaves the return address in x30, the extra register. Functions that make calls save it, mostly in a frame
//! record: the caller's x29, and x30 above it (AAPCS64, section 6.4.6).

use crate::rule::{
    End, Frames, IN_REGISTER, Memory, Registers, Returned, Rule, cfa, extra, fp, held, held_value,
};

/// Nothing is pushed by a call.
pub const RETURN_ADDRESS_SIZE: u64 = 0;
/// The size of a frame record. It tells where the return address is, but a frame may go on above it.
pub const FP_TO_CFA: u64 = 16;

/// The rule by which code without tables keeps its frames.
pub const FRAME_POINTER: Rule = Rule {
    cfa: cfa::FRAME_POINTER,
    fp: fp::AT_CFA | BESIDE_FP << extra::SHIFT,
    fp_offset: -2,
    cfa_offset: 0,
};

/// Where a signal frame keeps the interrupted registers, from the stack pointer in its return code: `struct rt_sigframe`
/// (arch/arm64/kernel/signal.c), whose `uc.uc_mcontext.regs` come behind a `siginfo` of 128 bytes and 184 more.
const REGS: u64 = 128 + 184;
pub const SIGNAL_FP: u64 = REGS + 29 * 8;
pub const SIGNAL_EXTRA: u64 = REGS + 30 * 8;
pub const SIGNAL_SP: u64 = REGS + 31 * 8;
pub const SIGNAL_PC: u64 = REGS + 32 * 8;

/// An [`extra`] kind: in a frame record with the caller's frame pointer, or at CFA + [`Rule::fp_offset`] if that was not
/// saved. Large frames have it far below their CFA.
const BESIDE_FP: u8 = extra::LOST - 1;

/// Bits of an address of user space, with 48-bit virtual addresses. Pointer authentication and tags use others
/// (Documentation/arch/arm64/pointer-authentication.rst). Kernels with 52 bits give larger addresses only to those who ask
/// for them (Documentation/arch/arm64/memory.rst): the page of uprobes, whose address has to be masked as well.
const ADDRESS: u64 = (1 << 48) - 1;

/// This architecture.
pub enum Native {}

impl Frames for Native {
    const PUSHED_BY_CALL: u64 = RETURN_ADDRESS_SIZE;
    // Frame records lie at the lower end of frames, which may be large.
    const FP_UNIT: i64 = 8;
    const RECORDS_LACK_SP: bool = true;
    const IN_SIGNAL_FRAME: [u64; 4] = [SIGNAL_PC, SIGNAL_SP, SIGNAL_FP, SIGNAL_EXTRA];

    #[inline(always)]
    fn returned(
        rule: Rule,
        at: &Registers,
        cfa: u64,
        fp_slot: u64,
        memory: &impl Memory,
    ) -> Result<Returned, End> {
        let kind = rule.fp >> extra::SHIFT;
        // Only the innermost frame can be empty: x30 is known of no other.
        if cfa < at.sp || (cfa == at.sp && kind != extra::SAME) {
            return Err(End::Unreadable);
        }
        let slot = match kind {
            extra::SAME if at.extra_is == held::ADDRESS => at.extra,
            extra::SAME => {
                let word = held_value(at, memory)?;
                return Ok(Returned {
                    slot: IN_REGISTER,
                    word,
                });
            }
            extra::LOST => return Err(End::UnsupportedRule),
            BESIDE_FP if fp_slot != 0 => fp_slot.wrapping_add(8),
            BESIDE_FP => cfa.wrapping_add(rule.fp_bytes::<Native>()),
            slots => cfa.wrapping_sub(u64::from(slots) << 3),
        };
        let word = memory.read(slot).ok_or(End::Unreadable)?;
        Ok(Returned { slot, word })
    }

    #[inline(always)]
    fn code_address(word: u64) -> u64 {
        code_address(word)
    }

    /// A caller has lost its x30 by the call. In its place: where the return address was.
    #[inline(always)]
    fn extra_of_caller(rule: Rule, _at: &Registers, _cfa: u64, slot: u64) -> (u64, u64) {
        match rule.cfa {
            cfa::FRAME_POINTER => (slot, held::NO_SP),
            _ => (slot, held::UNKNOWN),
        }
    }
}

/// The address of code that a return address means.
#[inline(always)]
pub fn code_address(word: u64) -> u64 {
    word & ADDRESS
}

/// Where the return address to a caller with these registers was read.
#[inline(always)]
pub fn return_slot(_sp: u64, extra: u64) -> u64 {
    extra
}

/// Bytes as a [`Rule::fp_offset`]; `None` if they do not fit.
pub fn fp_units(offset: i64) -> Option<i16> {
    let unit = Native::FP_UNIT;
    (offset % unit == 0).then(|| i16::try_from(offset / unit).ok())?
}

/// A rule whose extra register is saved at CFA + `offset`. That of the frame pointer is known.
pub fn with_extra_at(rule: Rule, offset: i64) -> Rule {
    let kind = Rule::extra_at(offset, BESIDE_FP);
    let (kind, fp_offset) = match rule.fp & fp::MASK {
        _ if kind != extra::LOST => (kind, rule.fp_offset),
        fp::AT_CFA if offset == rule.fp_bytes::<Native>().cast_signed() + 8 => {
            (BESIDE_FP, rule.fp_offset)
        }
        fp::SAME => match fp_units(offset) {
            Some(offset) if offset < 0 => (BESIDE_FP, offset),
            _ => (extra::LOST, 0),
        },
        _ => (extra::LOST, rule.fp_offset),
    };
    Rule {
        fp: rule.fp | kind << extra::SHIFT,
        fp_offset,
        ..rule
    }
}

#[cfg(test)]
mod tests;
