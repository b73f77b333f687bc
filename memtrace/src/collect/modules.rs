//! The executable files of the traced processes: opened once, kept open, so
//! that probing and symbolizing work whatever becomes of their names.

use std::{collections::HashMap, fs::File, io};

use crate::{
    probes::{
        allocator::ExtraAllocator,
        plan::{self, Probe},
    },
    process::{
        elf::ElfBytes,
        files::{FileKey, ModuleFile},
        maps::Mapping,
    },
};

/// Index of a file in [`Modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ModuleIndex(pub(super) u32);

/// One file.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: ModuleFile,
    /// Lower-case hex.
    pub(super) build_id: Option<String>,
    /// Empty where it defines no allocator.
    pub(super) probes: Vec<Probe>,
}

/// Every file seen so far.
#[derive(Debug, Default)]
pub(super) struct Modules {
    modules: Vec<Module>,
    by_key: HashMap<FileKey, ModuleIndex>,
    extra: Vec<ExtraAllocator>,
    /// Functions numbered so far.
    functions: u16,
}

impl Modules {
    /// `extra`: files and the prefixes of their allocation functions (`--allocator`).
    pub(super) fn new(extra: Vec<ExtraAllocator>) -> Self {
        Self {
            extra,
            ..Self::default()
        }
    }

    /// A file that was seen before.
    pub(super) fn find(&self, key: FileKey) -> Option<ModuleIndex> {
        self.by_key.get(&key).copied()
    }

    pub(super) fn get(&self, index: ModuleIndex) -> &Module {
        &self.modules[index.0 as usize]
    }

    /// The file behind a mapping of a running process; true if it is a new one.
    ///
    /// # Errors
    /// As [`ModuleFile::open`]: no regular file, or the process is gone.
    pub(super) fn open(&mut self, tgid: u32, mapping: &Mapping) -> io::Result<(ModuleIndex, bool)> {
        if let Some(index) = mapping.file().and_then(|key| self.find(key)) {
            return Ok((index, false));
        }
        let file = ModuleFile::open(tgid, mapping)?;
        let (build_id, mut probes) = self.inspect(&file);
        for probe in &mut probes {
            self.functions = self.functions.wrapping_add(1);
            probe.function.index = self.functions;
        }
        let index = ModuleIndex(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        self.by_key.insert(file.key, index);
        self.modules.push(Module {
            file,
            build_id,
            probes,
        });
        Ok((index, true))
    }

    /// Files that define an allocator.
    pub(super) fn allocators(&self) -> Vec<ModuleIndex> {
        (0..)
            .map(ModuleIndex)
            .zip(&self.modules)
            .filter(|(_, module)| !module.probes.is_empty())
            .map(|(index, _)| index)
            .collect()
    }

    /// A second descriptor of a file, for another thread.
    pub(super) fn reopen(&self, index: ModuleIndex) -> io::Result<File> {
        self.get(index).file.file.try_clone()
    }

    /// Build id and probes. A file that is not ELF, or a damaged one, has neither:
    /// it may be executable data (a JIT cache), so that is no failure.
    fn inspect(&self, file: &ModuleFile) -> (Option<String>, Vec<Probe>) {
        let bytes = match ElfBytes::map(&file.file) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!("`{}`: {error}", file.path.display());
                return (None, Vec::new());
            }
        };
        match bytes.parse() {
            Ok(elf) => {
                let extra = ExtraAllocator::prefixes(&self.extra, &file.path);
                (elf.build_id.clone(), plan::plan(&elf, &extra))
            }
            Err(error) => {
                tracing::debug!("`{}`: {error}", file.path.display());
                (None, Vec::new())
            }
        }
    }
}
