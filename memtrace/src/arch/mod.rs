//! Architecture-dependent parts: registers, calls, stacks, instructions. A file for each. Instructions of all of them are
//! known everywhere, because files of other machines can be examined; registers only on the machine itself.

mod aarch64;
mod site;
mod tracee;
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64::native;
#[cfg(target_arch = "x86_64")]
use x86_64::native;

#[cfg(test)]
pub(crate) use native::here;
pub(crate) use native::{
    ADDRESS_BITS, CFA_AT_ENTRY, CONTROL_BELOW_TOP, ELF_MACHINE, EXTRA, FP, IN_SIGNAL_FRAME, PC,
    RETURN_EINTR, SP, STORAGE_TABLE, STRUCTURES_BY_POINTER, SystemCall, THREAD_OFFSET,
    THREAD_POINTER, TRAMPOLINE, ThreadRegisters, UnwindCache, UnwindRegisters, Unwinder, VENDOR,
    control, frame_pointer, general, has_signatures, interrupted, is_control, read_registers,
    storage, thread_pointer, unwind_registers, unwinding_from, write_registers,
};
pub(crate) use site::{Cost, Forward, Places, ProbeSite, Reads, Why};
pub(crate) use tracee::{Request, Tracee};

use memtrace_common::thread_cache::ThreadCache;

/// The instruction set of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    X86_64,
    Aarch64,
    Other(u16),
}

impl Architecture {
    /// This machine's.
    pub(crate) const NATIVE: Architecture = if cfg!(target_arch = "aarch64") {
        Architecture::Aarch64
    } else {
        Architecture::X86_64
    };

    /// Bytes of its shortest instruction.
    pub(crate) const fn shortest(self) -> u64 {
        match self {
            Architecture::Aarch64 => 4,
            Architecture::X86_64 | Architecture::Other(_) => 1,
        }
    }
}

/// Most bytes of a function's beginning that decide about its site, if its size is not known.
pub(crate) const BEGINNING: u64 = x86_64::BEGINNING;

/// Chooses the site in a function whose code is `body`, for a program that needs `reads`.
/// `size_known` means that `body` is the whole function, so that jumps within it can be seen.
pub(crate) fn probe_site(
    architecture: Architecture,
    body: &[u8],
    size_known: bool,
    reads: Reads,
) -> ProbeSite {
    match architecture {
        Architecture::X86_64 => x86_64::probe_site(body, size_known, reads),
        Architecture::Aarch64 => aarch64::probe_site(body, size_known, reads),
        Architecture::Other(_) => ProbeSite {
            offset: 0,
            instruction: String::new(),
            cost: Cost::Unknown,
            why: Why::NotDecoded,
            arguments: Places::UNMOVED,
        },
    }
}

/// Where the malloc of glibc whose code is `body` keeps a thread's free blocks, if it is known; `slot` is relative to its
/// first instruction.
pub(crate) fn thread_cache(architecture: Architecture, body: &[u8]) -> Option<ThreadCache> {
    match architecture {
        Architecture::X86_64 => x86_64::thread_cache(body),
        Architecture::Aarch64 | Architecture::Other(_) => None,
    }
}

/// Offsets of the return instructions of a function whose code is `body`; none if it also ends in other ways.
pub(crate) fn returns(architecture: Architecture, body: &[u8]) -> Vec<u64> {
    match architecture {
        Architecture::X86_64 => x86_64::returns(body),
        Architecture::Aarch64 => aarch64::returns(body),
        Architecture::Other(_) => Vec::new(),
    }
}

/// Whether some function whose code is in `code` signs its return address.
pub(crate) fn signs_returns(architecture: Architecture, code: &[u8]) -> bool {
    architecture == Architecture::Aarch64 && aarch64::signs_returns(code)
}

/// Target of a function that only jumps, whose code is `body` at address `start`; `None` for all others.
pub(crate) fn forwards(architecture: Architecture, body: &[u8], start: u64) -> Option<Forward> {
    match architecture {
        Architecture::X86_64 => x86_64::forwards(body),
        Architecture::Aarch64 => aarch64::forwards(body, start),
        Architecture::Other(_) => None,
    }
}

/// Targets of the direct jumps of `body`, which begins at address `start`.
pub(crate) fn jumps(architecture: Architecture, body: &[u8], start: u64) -> Vec<u64> {
    match architecture {
        Architecture::X86_64 => x86_64::jumps(body, start).collect(),
        Architecture::Aarch64 => aarch64::jumps(body, start).collect(),
        Architecture::Other(_) => Vec::new(),
    }
}

/// Addresses that `body`, which begins at address `start`, computes from its own.
pub(crate) fn addresses_taken(architecture: Architecture, body: &[u8], start: u64) -> Vec<u64> {
    match architecture {
        Architecture::X86_64 => x86_64::addresses_taken(body, start).collect(),
        Architecture::Aarch64 => aarch64::addresses_taken(body, start).collect(),
        Architecture::Other(_) => Vec::new(),
    }
}

/// Addresses of the words that `body`, which begins at address `start`, loads from near it, where code takes the addresses of
/// functions from a table.
pub(crate) fn words_loaded(architecture: Architecture, body: &[u8], start: u64) -> Vec<u64> {
    match architecture {
        Architecture::Aarch64 => aarch64::words_loaded(body, start).collect(),
        Architecture::X86_64 | Architecture::Other(_) => Vec::new(),
    }
}

/// Where an operand is that an assembler would write as `text`: the place of a register in the kernel's `struct pt_regs`,
/// in words, and for one in memory the bytes from where that register points.
pub(crate) fn operand(architecture: Architecture, text: &str) -> Option<(u8, Option<i64>)> {
    match architecture {
        Architecture::X86_64 => x86_64::operand(text),
        Architecture::Aarch64 => aarch64::operand(text),
        Architecture::Other(_) => None,
    }
}

/// Where Debian has libraries of this machine.
#[cfg(test)]
pub(crate) const LIBRARIES: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu"
} else {
    "/usr/lib/x86_64-linux-gnu"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_get_the_first_instruction() {
        let architecture = Architecture::Other(243);
        let site = probe_site(architecture, &[0x55, 0xc3], true, Reads::NOTHING);
        assert_eq!((site.offset, site.cost), (0, Cost::Unknown));
        assert_eq!(forwards(architecture, &[0xeb, 0], 0), None);
    }
}
