//! Statically defined probes (USDT) of a file, and the locations of their arguments. They report
//! values that are not in any function's arguments.

use memtrace_common::{
    function::{Function, Operation, Outcome},
    usdt::{self, OPERANDS, Operand},
};

use super::{
    device_libraries,
    probe::{Probe, UsdtProbe},
};
use crate::{
    arch::{self, Architecture, Reads},
    frames::device_functions::other,
    process::elf::{Elf, UsdtNote},
};

/// The probes of a file that are in the table of libraries and can be understood.
pub(super) fn probes(elf: &Elf<'_>) -> Vec<Probe> {
    elf.usdt().filter_map(|note| probe(elf, &note)).collect()
}

/// Whether a file lacks the probe of this name, `PROVIDER:NAME`, in one of its places at least.
pub(super) fn lacks(elf: &Elf<'_>, name: &str) -> bool {
    let places = elf.usdt().filter(|note| is_named(note, name)).count();
    let mut understood = probes(elf);
    understood.retain(|probe| probe.symbol == name);
    places == 0 || understood.len() < places
}

fn is_named(note: &UsdtNote<'_>, name: &str) -> bool {
    name.split_once(':') == Some((note.provider, note.name))
}

fn probe(elf: &Elf<'_>, note: &UsdtNote<'_>) -> Option<Probe> {
    let mut known = device_libraries::all().flat_map(|library| library.usdt);
    let wanted = known.find(|usdt| is_named(note, usdt.name))?;
    let given = arguments(note.arguments);
    let mut operands = [Operand {
        register: 0,
        offset: None,
    }; OPERANDS];
    for (operand, &index) in operands.iter_mut().zip(&wanted.arguments) {
        *operand = parse(elf.architecture, given.get(index)?)?;
    }
    let file_offset = elf.file_offset(note.virt)?;
    // Only there are the arguments in the places given by the note. A breakpoint on any other
    // instruction than the probe's own could be in the middle of one.
    let code = elf.code(file_offset, elf.architecture.shortest());
    let site = arch::probe_site(elf.architecture, code, true, Reads::ARGUMENTS);
    if site.instruction != "nop" {
        return None;
    }
    let semaphore = match note.semaphore {
        Some(virt) => Some(elf.file_offset(virt)?),
        None => None,
    };
    Some(Probe {
        symbol: wanted.name.to_owned(),
        aliases: Vec::new(),
        // Stands for one: it reports a block.
        function: Function {
            outcome: Outcome::Block,
            ..other(wanted.layer, Operation::Report)
        },
        entry_offset: file_offset,
        file_offset,
        needs_return: false,
        ends: Vec::new(),
        site,
        thread_cache: None,
        usdt: Some(UsdtProbe {
            cookie: usdt::cookie(operands),
            semaphore,
        }),
    })
}

/// The arguments of a note. Spaces are between them, and within brackets.
fn arguments(text: &str) -> Vec<&str> {
    let mut inside = false;
    let given = text.split(|c: char| {
        inside = c == '[' || (inside && c != ']');
        c.is_ascii_whitespace() && !inside
    });
    given.filter(|argument| !argument.is_empty()).collect()
}

/// An argument of 8 bytes in a register or at an offset from one, `-8@%rax` or `8@[x29, -56]`.
fn parse(architecture: Architecture, argument: &str) -> Option<Operand> {
    let (size, place) = argument.split_once('@')?;
    if !matches!(size, "8" | "-8") {
        return None;
    }
    let (register, offset) = arch::operand(architecture, place)?;
    let offset = match offset {
        Some(offset) if !Operand::OFFSETS.contains(&offset) => return None,
        Some(offset) => Some(i16::try_from(offset).ok()?),
        None => None,
    };
    Some(Operand { register, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_aarch64_are_written_differently() {
        let operand = |register, offset| Some(Operand { register, offset });
        let parse = |argument| parse(Architecture::Aarch64, argument);
        let given = arguments(" -8@x19 8@[sp, 16] 4@[x29, -20]  8@[x1] 8@5");
        let places = given.iter().map(|argument| parse(argument));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [
                operand(19, None),
                operand(31, Some(16)),
                None,
                operand(1, Some(0)),
                None,
            ]
        );
        for other in [
            "8@w0",
            "8@[x29, 4096]",
            "8@[x0, x1]",
            "8@[x0",
            "8@%x0",
            "8@[]",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn arguments_are_in_registers_or_memory_near_one() {
        let operand = |register, offset| Some(Operand { register, offset });
        let parse = |argument| parse(Architecture::X86_64, argument);
        assert_eq!(parse("-8@%rbp"), operand(4, None));
        assert_eq!(parse("8@%rax"), operand(10, None));
        assert_eq!(parse("-8@56(%rsp)"), operand(19, Some(56)));
        assert_eq!(parse("8@-4096(%r12)"), operand(3, Some(-4096)));
        assert_eq!(parse("8@(%rdi)"), operand(14, Some(0)));
        for other in [
            "",
            "8",
            "8@",
            "8@%",
            "-1@%al",
            "8@%eax",
            "8@$5",
            "8@4096(%rax)",
            "8@(%rax,%rbx,8)",
            "8@name(%rip)",
            "8@5(%rax",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
