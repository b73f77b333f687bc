//! Calls of native functions, reported by a probe. Until the first, it costs nothing.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use crate::{
    bpf::{AwaitedCalls, TracerError},
    file::FileBytes,
    names::Namer,
    process::{
        self,
        elf::Elf,
        files::ModuleFile,
        maps::{self, FileId, Mapping, executable_files},
    },
};

/// How long the names of a file's functions may take: the process runs on meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// The functions of one name in the processes' files.
pub(super) struct Functions {
    name: String,
    /// The name without namespaces, classes and parameters: it is in the mangled one too.
    last: String,
    /// Their offsets in each file, bytes.
    files: HashMap<FileId, Vec<u64>>,
    /// Process and file of each probed function.
    probed: HashSet<(u32, FileId)>,
    calls: AwaitedCalls,
    /// Why a function cannot be probed.
    refused: Option<TracerError>,
}

impl Functions {
    /// # Errors
    /// The kernel refuses the probe's program.
    pub(super) fn new(name: &str) -> Result<Self, TracerError> {
        Ok(Self {
            name: name.to_owned(),
            last: last(name).to_owned(),
            files: HashMap::new(),
            probed: HashSet::new(),
            calls: AwaitedCalls::load()?,
            refused: None,
        })
    }

    pub(super) fn are_found(&self) -> bool {
        !self.probed.is_empty()
    }

    pub(super) fn refused(&self) -> Option<&TracerError> {
        self.refused.as_ref()
    }

    /// Looks for new processes and files.
    pub(super) fn look(&mut self, pids: &[u32]) {
        for &pid in pids {
            // A process that has ended has no calls.
            if let Ok(mappings) = maps::read(pid) {
                for mapping in executable_files(&mappings) {
                    self.probe(pid, mapping);
                }
            }
        }
    }

    fn probe(&mut self, pid: u32, mapping: &Mapping) {
        let Some(id) = mapping.file() else { return };
        let has_none = self.files.get(&id).is_some_and(Vec::is_empty);
        if has_none || self.probed.contains(&(pid, id)) {
            return;
        }
        let Ok(module) = ModuleFile::open(pid, mapping) else {
            return;
        };
        if !self.files.contains_key(&id) {
            let mut namer = Namer::awaited(PATIENCE);
            let bytes = FileBytes::new(&module.file);
            let offsets = offsets(&self.name, &self.last, &bytes, &mut namer);
            self.files.insert(id, offsets);
        }
        for &offset in &self.files[&id] {
            self.probed.insert((pid, id));
            let added = self.calls.add(pid, &module.file, (&self.name, offset));
            if let Err(error) = added
                && !process::has_ended(pid)
            {
                self.refused = Some(error);
            }
        }
    }

    /// The process that has called one of them.
    ///
    /// # Errors
    /// The kernel side's map cannot be read.
    pub(super) fn caller(&self) -> Result<Option<u32>, TracerError> {
        self.calls.caller()
    }
}

/// A name without namespaces, classes and parameters.
fn last(name: &str) -> &str {
    let bare = name.split('(').next().unwrap_or(name);
    bare.rsplit("::").next().unwrap_or(bare)
}

fn offsets(name: &str, last: &str, bytes: &FileBytes<'_>, namer: &mut Namer) -> Vec<u64> {
    // Not an ELF file: it has no functions.
    let Ok(elf) = Elf::parse(bytes) else {
        return Vec::new();
    };
    // Demangling each symbol of a large library would take seconds.
    let possible = || elf.functions().filter(|of| of.name.contains(last));
    let readable = namer.demangle(possible().map(|of| of.name.to_owned()).collect());
    let named = possible().zip(&readable);
    let named = named.filter(|(of, readable)| is_named(of.name, readable, name));
    let mut offsets: Vec<u64> = named.map(|(of, _)| of.file_offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Whether a symbol has the name, which may lack namespaces, classes and parameters.
fn is_named(symbol: &str, readable: &str, name: &str) -> bool {
    if symbol == name {
        return true;
    }
    let bare = match name.contains('(') {
        true => readable,
        false => readable.split('(').next().unwrap_or(readable),
    };
    let outer = bare.strip_suffix(name);
    readable != symbol && outer.is_some_and(|outer| outer.is_empty() || outer.ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::demangle::demangle;

    #[test]
    fn a_name_may_lack_namespaces_and_parameters() {
        let is_named = |name: &str, symbol: &str| {
            symbol.contains(last(name)) && is_named(symbol, &demangle(symbol), name)
        };
        // `a::Trainer::step(int)`
        let mangled = "_ZN1a7Trainer4stepEi";
        for name in ["step", "Trainer::step", "a::Trainer::step", "step(int)"] {
            assert!(is_named(name, mangled), "{name}");
        }
        for name in ["tep", "b::Trainer::step", "step(long)", "Trainer"] {
            assert!(!is_named(name, mangled), "{name}");
        }
        assert!(is_named("train_step", "train_step"));
        assert!(!is_named("step", "train_step"));
        assert!(is_named(mangled, mangled));
    }
}
