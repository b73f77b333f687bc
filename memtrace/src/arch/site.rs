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

/// Argument registers of a call that the kernel side can read.
pub(crate) const ARGUMENTS: usize = 6;

/// What a probe's program reads of a call. All of it must still be as the caller left it at the
/// probe's place; the return address is always at the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Arguments, a bit each, that the program expects in their own registers.
    in_place: u8,
    /// Arguments, a bit each, whose register the probe's cookie names, so that a copy in another
    /// argument register does as well.
    anywhere: u8,
    /// The registers from which a walk of the caller's stack begins.
    frame: bool,
}

impl Reads {
    /// Only the stack pointer.
    pub(crate) const NOTHING: Reads = Reads {
        in_place: 0,
        anywhere: 0,
        frame: false,
    };
    /// Every argument in its own register.
    pub(crate) const ARGUMENTS: Reads = Reads {
        in_place: (1 << ARGUMENTS) - 1,
        ..Reads::NOTHING
    };
    pub(crate) const FRAME: Reads = Reads {
        frame: true,
        ..Reads::NOTHING
    };

    /// An argument in its own register; nothing for an index that is none.
    pub(crate) const fn in_place(index: u8) -> Reads {
        Reads {
            in_place: bit(index),
            ..Reads::NOTHING
        }
    }

    /// An argument in any argument register; nothing for an index that is none.
    pub(crate) const fn anywhere(index: u8) -> Reads {
        Reads {
            anywhere: bit(index),
            ..Reads::NOTHING
        }
    }

    pub(crate) const fn and(self, other: Reads) -> Reads {
        Reads {
            in_place: self.in_place | other.in_place,
            anywhere: self.anywhere | other.anywhere,
            frame: self.frame || other.frame,
        }
    }

    pub(super) const fn frame(self) -> bool {
        self.frame
    }

    /// The registers in which the arguments can be read, if they can; `holds` are the arguments that
    /// the argument registers hold.
    pub(super) fn found(self, holds: [Option<u8>; ARGUMENTS]) -> Option<Places> {
        let mut places = Places::UNMOVED;
        for (index, place) in (0..).zip(&mut places.0) {
            let own = holds[usize::from(index)] == Some(index);
            if own || (self.in_place | self.anywhere) & bit(index) == 0 {
                continue;
            }
            let copy = (0..).zip(holds).find(|(_, held)| *held == Some(index));
            let (register, _) = copy.filter(|_| self.in_place & bit(index) == 0)?;
            *place = register;
        }
        Some(places)
    }
}

const fn bit(index: u8) -> u8 {
    if index < ARGUMENTS as u8 {
        1 << index
    } else {
        0
    }
}

/// Where the arguments are at a site: for each the index of an argument register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places([u8; ARGUMENTS]);

impl Places {
    /// As at the function's first instruction.
    pub(crate) const UNMOVED: Places = Places([0, 1, 2, 3, 4, 5]);

    /// The register of an argument; an index that is none stays what it is.
    pub(crate) fn register(self, index: u8) -> u8 {
        let place = self.0.get(usize::from(index));
        place.copied().unwrap_or(index)
    }
}

/// The instruction that a probe replaces. There, as at the function's first instruction, the
/// arguments that the probe's program reads are in registers and the return address is at the
/// stack pointer, so a return probe may share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSite {
    /// Bytes from the function's first instruction.
    pub offset: u64,
    /// Disassembled, Intel syntax, jump targets in bytes from the function's first instruction;
    /// empty if the machine's instructions are not decoded.
    pub instruction: String,
    pub cost: Cost,
    pub why: Why,
    pub arguments: Places,
}

/// Why a site was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// The first instruction is emulated.
    FirstIsEmulated,
    /// A later instruction is emulated, those before it only compute.
    LaterIsEmulated,
    /// No emulated instruction comes before one that changes an argument, the stack pointer, memory or the flow.
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
