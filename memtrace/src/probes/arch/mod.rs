//! What depends on the machine's instructions.

mod x86_64;

use super::site::{Cost, Forward, ProbeSite, Why};
use crate::process::elf::Machine;

/// Chooses the site in a function whose code is `body`. `size_known` says
/// that `body` is all of it, so that jumps within can be seen.
pub fn choose(machine: Machine, body: &[u8], size_known: bool) -> ProbeSite {
    match machine {
        Machine::X86_64 => x86_64::choose(body, size_known),
        Machine::Aarch64 | Machine::Other(_) => ProbeSite {
            offset: 0,
            instruction: String::new(),
            cost: Cost::Unknown,
            why: Why::NotDecoded,
        },
    }
}

/// Where a function leads that does nothing but jump; `None` for all others.
pub fn forwards(machine: Machine, body: &[u8]) -> Option<Forward> {
    match machine {
        Machine::X86_64 => x86_64::forwards(body),
        Machine::Aarch64 | Machine::Other(_) => None,
    }
}

/// Place of a register in the `struct pt_regs` of a machine, in words; `name` is the assembler's.
pub(super) fn register(machine: Machine, name: &str) -> Option<u8> {
    match machine {
        Machine::X86_64 => x86_64::register(name),
        Machine::Aarch64 | Machine::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_get_the_first_instruction() {
        for machine in [Machine::Aarch64, Machine::Other(243)] {
            let site = choose(machine, &[0x55, 0xc3], true);
            assert_eq!((site.offset, site.cost), (0, Cost::Unknown));
            assert_eq!(forwards(machine, &[0xeb, 0]), None);
        }
    }
}
