//! The library that a command launched with `--preload` loads (`preload/preload.rs`), and its places for probes.

use memtrace_common::function::{Function, Operation};

use super::{Probe, reads};
use crate::{
    arch,
    frames::functions::{alloc, alloc_to, free, realloc},
    process::elf::Elf,
};

/// The library, as a file.
pub(crate) static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// How the names of the places begin.
const PLACE: &str = "memtrace_preload_";

/// Where a realloc releases its block.
const BEGIN_REALLOC: &str = "begin_realloc";

/// Bytes of the instruction at a place.
const INSTRUCTION: u64 = 5;

/// Whether a file is this library, or one of another version.
pub(super) fn has_places(elf: &Elf<'_>) -> bool {
    elf.functions()
        .any(|function| function.name.starts_with(PLACE))
}

/// The probes at its places, those that give memory first.
pub(super) fn probes(elf: &Elf<'_>) -> Vec<Probe> {
    let mut probes: Vec<Probe> = elf
        .functions()
        .filter_map(|place| {
            let name = place.name.strip_prefix(PLACE)?;
            Some(probe(elf, name, place.file_offset, function(name)))
        })
        .collect();
    probes.sort_by_key(|probe| (!probe.has_result, probe.entry_offset));
    probes
}

/// How to read the registers at a place.
fn function(name: &str) -> Function {
    match name {
        "free" => free(0),
        BEGIN_REALLOC => Function {
            operation: Operation::BeginRealloc,
            ..free(0)
        },
        "realloc" => realloc(0, 1),
        "posix_memalign" => alloc_to(1),
        _ => alloc(1),
    }
}

fn probe(elf: &Elf<'_>, name: &str, file_offset: u64, function: Function) -> Probe {
    let instruction = elf.code(file_offset, INSTRUCTION);
    Probe {
        symbol: name.to_owned(),
        aliases: vec![format!("{PLACE}{name}")],
        function,
        entry_offset: file_offset,
        file_offset,
        needs_return: false,
        has_result: function.operation.gives(),
        site: arch::probe_site(elf.architecture, instruction, true, reads::of(&function)),
        usdt: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::arch::Cost;

    const PAGE: u64 = 4096;

    #[test]
    fn each_function_has_a_place_that_the_kernel_can_turn_into_a_call() {
        let bytes = LIBRARY.to_vec();
        let elf = Elf::parse(&bytes).unwrap();
        let probes = probes(&elf);
        let exported: BTreeSet<&str> = elf
            .exported_functions()
            .map(|function| function.name)
            .collect();
        let mut placed: BTreeSet<&str> = probes.iter().map(|probe| probe.symbol.as_str()).collect();
        assert!(placed.remove(BEGIN_REALLOC));
        assert_eq!(placed, exported);
        for probe in &probes {
            let code = elf.code(probe.file_offset, INSTRUCTION);
            assert_eq!(code, [0x0f, 0x1f, 0x44, 0, 0], "{}", probe.symbol);
            // The kernel leaves one that is in two pages as it is.
            assert!(
                probe.file_offset % PAGE + INSTRUCTION <= PAGE,
                "{}",
                probe.symbol
            );
            assert_eq!(probe.site.cost, Cost::Emulated, "{}", probe.symbol);
            let gives = !matches!(probe.symbol.as_str(), "free" | BEGIN_REALLOC);
            assert_eq!((probe.has_result, probe.needs_return), (gives, false));
        }
        assert!(has_places(&elf));
    }
}
