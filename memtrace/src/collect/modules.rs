//! The executable files of the traced processes: opened once, kept open, so
//! that probing and symbolizing work whatever becomes of their names.

use std::{collections::HashMap, fs::File, io, path::Path};

use memtrace_common::{
    Layer,
    code_map::{self, KnownFile, mapping_kind},
    unwind::EXECS,
};

use super::location::{Location, ModuleIndex};
use crate::{
    file::FileBytes,
    frames::{caching, functions::Row},
    host::libraries::Library,
    probes::{
        Probe,
        allocator::ExtraAllocator,
        plan::{self, Lacking},
    },
    process::{
        elf::{Elf, Segment},
        files::{ModuleFile, OpenError},
        maps::{FileId, Mapping},
    },
    python,
    unwind::trampoline,
};

/// One file.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: ModuleFile,
    /// Lower-case hex.
    pub(super) build_id: Option<String>,
    /// Its facts as a library of a process; `None` if it is not an ELF file of its own.
    pub(super) library: Option<Library>,
    /// Empty if it defines no allocator.
    pub(super) probes: Vec<Probe>,
    /// For a device library: functions that this version lacks.
    pub(super) lacking: Option<Lacking>,
    /// The layer of the caching allocator that calls the runtime from it.
    pub(super) caching_allocator: Option<Layer>,
    /// Start of unwinding, offsets into the file.
    pub(super) unwinding: Vec<u64>,
    /// It may throw without a symbol that shows it, see [`plan::hides_unwinding`].
    pub(super) hides_unwinding: bool,
    /// See [`plan::signs_returns`].
    pub(super) signs_returns: bool,
    /// Where code objects of its interpreter end, offset into the file.
    pub(super) code_dealloc: Option<u64>,
    segments: Vec<Segment>,
    /// See [`ModuleFile::version`].
    pub(super) version: u32,
    /// The CPython interpreter that it holds, if any, or why not.
    pub(super) python: Result<Option<python::Candidate>, python::Unsupported>,
}

impl Module {
    /// False for executable data, such as a runtime's cache of generated code.
    pub(super) fn is_elf(&self) -> bool {
        // The kernel's own pages have no inode.
        !self.segments.is_empty() || self.file.key.ino == 0
    }

    /// Address in the file's terms − file offset, at this offset. 0 if it is not an ELF file.
    fn delta(&self, file_offset: u64, page_size: u64) -> u64 {
        let page = |offset: u64| offset & !(page_size - 1);
        self.segments
            .iter()
            .filter(|segment| {
                page(segment.file_offset) <= file_offset
                    && file_offset < segment.file_offset + segment.file_size
            })
            .max_by_key(|segment| segment.execute)
            .map_or(0, |segment| segment.virt.wrapping_sub(segment.file_offset))
    }

    /// File offset of an address as the file means it.
    pub(super) fn file_offset(&self, vaddr: u64) -> u64 {
        self.segments
            .iter()
            .filter(|segment| (segment.virt..segment.virt + segment.file_size).contains(&vaddr))
            .max_by_key(|segment| segment.execute)
            .map_or(vaddr, |segment| vaddr - segment.virt + segment.file_offset)
    }

    /// The description with which the kernel side can interpret a new mapping of it.
    pub(super) fn known(&self, index: ModuleIndex) -> KnownFile {
        let mut deltas: Vec<u64> = self
            .segments
            .iter()
            .filter(|segment| segment.execute)
            .map(|segment| segment.virt.wrapping_sub(segment.file_offset))
            .collect();
        deltas.dedup();
        // Several: only the collector's snapshot can decide.
        let (kind, delta) = match deltas[..] {
            [] => (mapping_kind::ANONYMOUS, 0),
            [delta] => (mapping_kind::FILE, delta),
            _ => (mapping_kind::UNKNOWN, 0),
        };
        KnownFile {
            delta,
            exec: index.0,
            kind: if index.0 < EXECS {
                kind
            } else {
                mapping_kind::UNKNOWN
            },
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModuleError {
    #[error("it was written while it was being read")]
    Changing,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Every file seen so far.
#[derive(Debug, Default)]
pub(super) struct Modules {
    modules: Vec<Module>,
    by_key: HashMap<FileId, ModuleIndex>,
    /// The kernel's own, the same in every process.
    vdso: Option<ModuleIndex>,
    trampoline: Option<ModuleIndex>,
    extra: Vec<ExtraAllocator>,
    /// The malloc family is probed.
    heap: bool,
    /// Functions numbered so far.
    functions: u16,
}

impl Modules {
    /// `extra`: files and the prefixes of their allocation functions (`--allocator`).
    pub(super) fn new(extra: Vec<ExtraAllocator>, heap: bool) -> Self {
        Self {
            extra,
            heap,
            ..Self::default()
        }
    }

    /// A file that was seen before, and not written to since.
    pub(super) fn find(&self, key: FileId) -> Option<ModuleIndex> {
        let index = *self.by_key.get(&key)?;
        let module = self.get(index);
        (module.file.version().ok() == Some(module.version)).then_some(index)
    }

    /// The file behind a mapping, if it was seen before.
    pub(super) fn known_file(&self, mapping: &Mapping) -> Option<ModuleIndex> {
        match mapping.file() {
            Some(key) => self.find(key),
            None if is_vdso(mapping) => self.vdso,
            None if is_trampoline(mapping) => self.trampoline,
            None => None,
        }
    }

    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.modules.len()
    }

    pub(super) fn get(&self, index: ModuleIndex) -> &Module {
        &self.modules[index.0 as usize]
    }

    /// The file behind a mapping of a running process; true if it is a new one.
    ///
    /// # Errors
    /// As [`ModuleFile::open`]: no regular file, or the process is gone; or the file keeps changing.
    pub(super) fn open(
        &mut self,
        tgid: u32,
        mapping: &Mapping,
    ) -> Result<(ModuleIndex, bool), ModuleError> {
        if let Some(index) = self.known_file(mapping) {
            return Ok((index, false));
        }
        let file = if is_vdso(mapping) {
            ModuleFile::of_memory(tgid, mapping)?
        } else if is_trampoline(mapping) {
            ModuleFile::of_bytes(mapping, &[])?
        } else {
            ModuleFile::open(tgid, mapping)?
        };
        let mut module = self.inspect(file)?;
        let heap = self.heap;
        let wanted = |probe: &Probe| heap || probe.function.layer != Layer::Heap;
        module.probes.retain(wanted);
        for probe in &mut module.probes {
            number(&mut self.functions, probe);
        }
        let index = ModuleIndex(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        if is_vdso(mapping) {
            self.vdso = Some(index);
        } else if is_trampoline(mapping) {
            self.trampoline = Some(index);
        } else {
            self.by_key.insert(module.file.key, index);
        }
        self.modules.push(module);
        Ok((index, true))
    }

    /// Adds the probe of a function at this offset, known only by address; `None` if it has one, or
    /// if there is no code.
    pub(super) fn add_probe(
        &mut self,
        index: ModuleIndex,
        file_offset: u64,
        row: Row,
    ) -> Option<Probe> {
        let module = self.modules.get_mut(index.0 as usize)?;
        let mut probes = module.probes.iter();
        if probes.any(|probe| probe.entry_offset == file_offset) {
            return None;
        }
        let bytes = FileBytes::new(&module.file.file);
        let elf = Elf::parse(&bytes).ok()?;
        if elf.code(file_offset, 1).is_empty() {
            return None;
        }
        let mut probe = plan::probe_at(&elf, file_offset, row);
        number(&mut self.functions, &mut probe);
        module.probes.push(probe.clone());
        Some(probe)
    }

    /// Location of a frame in the kernel side's file number `exec`.
    pub(super) fn locate(&self, exec: u32, vaddr: u64) -> Location {
        match self.modules.get(exec as usize) {
            Some(module) => Location::File(ModuleIndex(exec), module.file_offset(vaddr)),
            None => Location::Unmapped(vaddr),
        }
    }

    /// A mapping as the kernel side wants it; `None` for one that it need not know.
    pub(super) fn code(
        &self,
        mapping: &Mapping,
        file: Option<ModuleIndex>,
        page_size: u64,
    ) -> Option<code_map::Mapping> {
        let range = code_map::Mapping {
            start: mapping.start,
            end: mapping.end,
            ..code_map::Mapping::default()
        };
        match file {
            Some(index) if !self.get(index).is_elf() => Some(code_map::Mapping {
                kind: mapping_kind::ANONYMOUS,
                ..range
            }),
            Some(index) if index.0 < EXECS => {
                let delta = self.get(index).delta(mapping.file_offset, page_size);
                Some(code_map::Mapping {
                    bias: mapping
                        .start
                        .wrapping_sub(mapping.file_offset.wrapping_add(delta)),
                    exec: index.0,
                    kind: mapping_kind::FILE,
                    ..range
                })
            }
            Some(_) => None,
            // The kernel's own pages have names in brackets, [heap] and [stack] among them: code
            // there is generated, except this one.
            None if mapping.ino == 0
                && mapping.path.as_deref() != Some(Path::new("[vsyscall]")) =>
            {
                Some(code_map::Mapping {
                    kind: mapping_kind::ANONYMOUS,
                    ..range
                })
            }
            None => None,
        }
    }

    /// Files in which unwinding begins, in order of discovery.
    pub(super) fn unwinders(&self) -> Vec<ModuleIndex> {
        (0..)
            .map(ModuleIndex)
            .zip(&self.modules)
            .filter(|(_, module)| !module.unwinding.is_empty())
            .map(|(index, _)| index)
            .collect()
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

    /// Inspects a file, and again if it was written to meanwhile.
    ///
    /// # Errors
    /// The file keeps changing, or its file system does not answer.
    fn inspect(&self, file: ModuleFile) -> Result<Module, ModuleError> {
        let mut module = self.look_at(file);
        for _ in 0..LOOKS {
            if module.file.version()? == module.version {
                return Ok(module);
            }
            module = self.look_at(module.file);
        }
        Err(ModuleError::Changing)
    }

    /// Build id, probes and segments. A file that is not ELF, or a damaged one, has none: it may be
    /// executable data (a JIT cache), so that is not an error.
    fn look_at(&self, file: ModuleFile) -> Module {
        // Before the content, so that whatever changes later shows.
        let version = file.version().unwrap_or_default();
        let bytes = FileBytes::new(&file.file);
        let of_elf = |elf: Elf<'_>| {
            let python = python::find(&elf, &file.path);
            let candidate = python.as_ref().ok().and_then(Option::as_ref);
            let code_dealloc = candidate.and_then(|candidate| candidate.code_dealloc);
            let code_dealloc = code_dealloc.and_then(|virt| plan::code_dealloc(&elf, virt));
            let probes = plan::plan(&elf, &ExtraAllocator::prefixes(&self.extra, &file.path));
            let signs_returns = plan::signs_returns(&elf, &probes);
            (
                elf.build_id.clone(),
                library(&file, &elf),
                probes,
                plan::lacking(&elf, &file.path),
                (
                    plan::unwinding(&elf),
                    plan::hides_unwinding(&elf),
                    signs_returns,
                ),
                elf.segments().to_vec(),
                (python, code_dealloc),
            )
        };
        let (build_id, library, probes, lacking, unwinding, segments, python) =
            Elf::parse(&bytes).map(of_elf).unwrap_or_else(|error| {
                tracing::debug!("`{}`: {error}", file.path.display());
                (
                    None,
                    None,
                    Vec::new(),
                    None,
                    Default::default(),
                    Vec::new(),
                    (Ok(None), None),
                )
            });
        drop(bytes);
        let name = file.path.file_name().and_then(|name| name.to_str());
        Module {
            version,
            caching_allocator: name.and_then(caching::layer_of_caller),
            build_id,
            library,
            probes,
            lacking,
            unwinding: unwinding.0,
            hides_unwinding: unwinding.1,
            signs_returns: unwinding.2,
            segments,
            python: python.0,
            code_dealloc: python.1,
            file,
        }
    }
}

/// How often a changing file is read again.
const LOOKS: usize = 3;

/// Numbers a function, so that no two have the same cookie.
fn number(functions: &mut u16, probe: &mut Probe) {
    *functions = functions.wrapping_add(1);
    probe.function.index = *functions;
}

/// `None` for the kernel's own code, which has no file.
fn library(file: &ModuleFile, elf: &Elf) -> Option<Library> {
    let size = file.file.metadata().ok()?.len();
    (file.key.ino != 0).then(|| Library::of(file.path.display().to_string(), size, elf))
}

fn is_vdso(mapping: &Mapping) -> bool {
    mapping.path.as_deref() == Some(Path::new("[vdso]"))
}

fn is_trampoline(mapping: &Mapping) -> bool {
    mapping.path.as_deref() == Some(Path::new(trampoline::NAME))
}
