//! Finds the malloc of a process.

use std::path::{Path, PathBuf};

use super::{Fact, Facts, Redactor};
use crate::file::FileBytes;
use crate::ledger::ProcessId;
use crate::process::{
    elf::Elf,
    files::ModuleFile,
    link_order,
    maps::{self, Mapping},
};

/// The fact about a [`provider`].
pub(crate) fn facts(process: ProcessId, provider: Option<&Path>, redactor: &Redactor) -> Vec<Fact> {
    let mut facts = Facts::new(Some(process), redactor);
    let path = provider.map(|path| redactor.path(&path.display().to_string()));
    facts.add("malloc.provider", path);
    facts.into_vec()
}

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
