//! What depends on the machine's instructions.

mod x86_64;

use super::site::{Cost, Forward, ProbeSite, Why};
use crate::process::elf::Architecture;

/// Chooses the site in a function whose code is `body`. `size_known` says
/// that `body` is all of it, so that jumps within can be seen.
pub fn choose(architecture: Architecture, body: &[u8], size_known: bool) -> ProbeSite {
    match architecture {
        Architecture::X86_64 => x86_64::choose(body, size_known),
        Architecture::Aarch64 | Architecture::Other(_) => ProbeSite {
            offset: 0,
            instruction: String::new(),
            cost: Cost::Unknown,
            why: Why::NotDecoded,
        },
    }
}

/// Where a function leads that does nothing but jump; `None` for all others.
pub fn forwards(architecture: Architecture, body: &[u8]) -> Option<Forward> {
    match architecture {
        Architecture::X86_64 => x86_64::forwards(body),
        Architecture::Aarch64 | Architecture::Other(_) => None,
    }
}

/// Place of a register in the `struct pt_regs` of a machine, in words; `name` is the assembler's.
pub(super) fn register(architecture: Architecture, name: &str) -> Option<u8> {
    match architecture {
        Architecture::X86_64 => x86_64::register(name),
        Architecture::Aarch64 | Architecture::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_get_the_first_instruction() {
        for architecture in [Architecture::Aarch64, Architecture::Other(243)] {
            let site = choose(architecture, &[0x55, 0xc3], true);
            assert_eq!((site.offset, site.cost), (0, Cost::Unknown));
            assert_eq!(forwards(architecture, &[0xeb, 0]), None);
        }
    }
}
