//! Finds the malloc of a process.

use std::path::PathBuf;

use crate::file::FileBytes;
use crate::process::{
    elf::Elf,
    files::ModuleFile,
    link_order,
    maps::{self, Mapping},
};

/// The file whose `malloc` the loader finds first; `None` if there is no loader's list (static
/// programs, a process that is gone).
pub(crate) fn provider(pid: u32, mappings: &[Mapping]) -> Option<PathBuf> {
    link_order::read(pid).ok()??.iter().find_map(|linked| {
        let file = ModuleFile::open(pid, maps::find(mappings, linked.dynamic)?).ok()?;
        let bytes = FileBytes::new(&file.file);
        let elf = Elf::parse(&bytes).ok()?;
        let defines = elf
            .exported_functions()
            .any(|function| function.name == "malloc");
        defines.then_some(file.path)
    })
}
