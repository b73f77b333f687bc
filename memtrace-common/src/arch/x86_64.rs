//! x86-64: where stacks have the values that a walk reads.
//!
//! Register numbers and the return address at CFA − 8: System V psABI, AMD64 supplement, section 3.6.

use crate::rule::{End, Frames, Memory, Registers, Returned, Rule, cfa, extra, fp, held};

/// How far below the canonical frame address the return address is.
pub const RETURN_ADDRESS_SIZE: u64 = 8;
/// From a frame pointer to the canonical frame address: the caller's frame pointer and the return
/// address.
pub const FP_TO_CFA: u64 = 16;

/// The rule by which code without tables keeps its frames.
pub const FRAME_POINTER: Rule = Rule {
    cfa: cfa::FRAME_POINTER,
    fp: fp::AT_CFA,
    fp_offset: -16,
    cfa_offset: 0,
};

/// Where a signal frame keeps the interrupted registers, from the stack pointer
/// in its return code: `ucontext_t.uc_mcontext.gregs` (arch/x86/include/uapi/asm/sigcontext.h).
const GREGS: u64 = 40;
pub const SIGNAL_EXTRA: u64 = GREGS + 11 * 8;
pub const SIGNAL_FP: u64 = GREGS + 10 * 8;
pub const SIGNAL_SP: u64 = GREGS + 15 * 8;
pub const SIGNAL_PC: u64 = GREGS + 16 * 8;

/// This architecture.
pub enum Native {}

impl Frames for Native {
    const PUSHED_BY_CALL: u64 = RETURN_ADDRESS_SIZE;
    const FP_UNIT: i64 = 1;
    const RECORDS_LACK_SP: bool = false;
    const IN_SIGNAL_FRAME: [u64; 4] = [SIGNAL_PC, SIGNAL_SP, SIGNAL_FP, SIGNAL_EXTRA];

    #[inline(always)]
    fn returned(
        _rule: Rule,
        at: &Registers,
        cfa: u64,
        _fp_slot: u64,
        memory: &impl Memory,
    ) -> Result<Returned, End> {
        // Stacks grow down: a caller's frame is above its callee's.
        if cfa <= at.sp {
            return Err(End::Unreadable);
        }
        let slot = cfa.wrapping_sub(RETURN_ADDRESS_SIZE);
        let word = memory.read(slot).ok_or(End::Unreadable)?;
        Ok(Returned { slot, word })
    }

    #[inline(always)]
    fn code_address(word: u64) -> u64 {
        code_address(word)
    }

    #[inline(always)]
    fn extra_of_caller(rule: Rule, at: &Registers, cfa: u64, _slot: u64) -> (u64, u64) {
        match rule.fp >> extra::SHIFT {
            // Generated code saves any registers.
            _ if rule.cfa == cfa::FRAME_POINTER => (0, held::UNKNOWN),
            extra::SAME => (at.extra, at.extra_is),
            extra::LOST => (0, held::UNKNOWN),
            slots => (cfa.wrapping_sub(u64::from(slots) << 3), held::ADDRESS),
        }
    }
}

/// The address of code that a return address means.
#[inline(always)]
pub fn code_address(word: u64) -> u64 {
    word
}

/// Where the return address to a caller with these registers was read.
#[inline(always)]
pub fn return_slot(sp: u64, _extra: u64) -> u64 {
    sp.wrapping_sub(RETURN_ADDRESS_SIZE)
}

/// Bytes as a [`Rule::fp_offset`]; `None` if they do not fit.
pub fn fp_units(offset: i64) -> Option<i16> {
    i16::try_from(offset).ok()
}

/// A rule whose extra register is saved at CFA + `offset`.
pub fn with_extra_at(rule: Rule, offset: i64) -> Rule {
    let kind = Rule::extra_at(offset, extra::LOST);
    Rule {
        fp: rule.fp | kind << extra::SHIFT,
        ..rule
    }
}
