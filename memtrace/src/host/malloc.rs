//! Whose malloc a process uses.

use std::path::PathBuf;

use crate::process::{
    elf::ElfBytes,
    files::ModuleFile,
    link_order,
    maps::{self, Mapping},
};

/// The file whose `malloc` the loader finds first; `None` where there is no
/// loader's list (static programs, a process that is gone).
pub fn provider(pid: u32, mappings: &[Mapping]) -> Option<PathBuf> {
    link_order::read(pid).ok()??.iter().find_map(|linked| {
        let file = ModuleFile::open(pid, maps::find(mappings, linked.dynamic)?).ok()?;
        let bytes = ElfBytes::map(&file.file).ok()?;
        let elf = bytes.parse().ok()?;
        let defines = elf
            .exported_functions()
            .any(|function| function.name == "malloc");
        defines.then_some(file.path)
    })
}
