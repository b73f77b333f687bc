//! Chooses the instruction of a function to probe, and reports what the probe will cost there.
//!
//! A uprobe replaces one instruction. The kernel either emulates the replaced instruction, or runs
//! a copy of it elsewhere in single-step mode: a second exception, which doubles a probe's cost on
//! bare metal and multiplies it by twenty on some virtual machines. If a function does not begin
//! with an instruction that is emulated, one soon after will often do.

/// How the kernel executes the instruction under a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cost {
    /// Inside the breakpoint's exception.
    Emulated,
    /// By single-stepping a copy: a second exception.
    SingleStepped,
    /// Not decided for this machine.
    Unknown,
}

impl Cost {
    /// Name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Cost::Emulated => "emulated",
            Cost::SingleStepped => "single-stepped",
            Cost::Unknown => "unknown",
        }
    }
}

/// The instruction that a probe replaces. There, as at the function's first instruction, the
/// arguments are in their registers and the return address is at the stack pointer, so a return
/// probe may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSite {
    /// Bytes from the function's first instruction.
    pub offset: u64,
    /// Disassembled, Intel syntax, jump targets in bytes from the function's first instruction;
    /// empty if the machine's instructions are not decoded.
    pub instruction: String,
    pub cost: Cost,
    pub why: Why,
}

/// Why a site was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// The first instruction is emulated.
    FirstIsEmulated,
    /// A later instruction is emulated, those before it only compute.
    LaterIsEmulated,
    /// No emulated instruction comes before one that changes an argument, the stack pointer or the flow.
    NoneIsEmulated,
    /// The function's size is not known, so jumps into its beginning cannot be ruled out.
    SizeUnknown,
    /// A jump leads to or before the emulated instruction, which would run more than once per call.
    JumpTarget,
    /// The bytes are not an instruction, or the machine's instructions are not decoded.
    NotDecoded,
}

impl Why {
    /// Explanation in reports.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Why::FirstIsEmulated => "first instruction",
            Why::LaterIsEmulated => "first emulated instruction",
            Why::NoneIsEmulated => "first instruction: no emulated one in reach",
            Why::SizeUnknown => "first instruction: function size unknown",
            Why::JumpTarget => "first instruction: a jump leads to the emulated one",
            Why::NotDecoded => "first instruction: not decoded",
        }
    }
}

/// Target of a function that only jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    /// To an address, in bytes from the function's first.
    To(i64),
    /// To the address in a word (a slot of the global offset table), in bytes from the function's first.
    Through(i64),
}
