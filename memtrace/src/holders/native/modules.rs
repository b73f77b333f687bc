//! The ELF files of a process, and the addresses and names of their variables.

use crate::{
    file::{BUDGET, FileBytes},
    frames::{
        caching,
        runtime_heaps::{self, RuntimeHeap},
    },
    names::Namer,
    process::{
        elf::{Elf, Segment, ThreadLocal, Variable},
        files::ModuleFile,
        maps::Mapping,
        page_size,
    },
};
use std::{
    cell::{Cell, OnceCell, RefCell, RefMut},
    fs::File,
    ops::Range,
    time::Duration,
};

/// How long the names of functions and classes may take in a search: a process may be stopped meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most memory for the names of variables, bytes.
const MOST_NAMES: usize = BUDGET as usize / 4;

/// The files of a process, by address.
pub(in crate::holders) struct Modules {
    pid: u32,
    list: Vec<Module>,
    namer: RefCell<Namer>,
    /// Of [`MOST_NAMES`].
    left: Cell<usize>,
}

/// A file where it is loaded.
pub(super) struct Module {
    /// Without folders.
    pub(super) name: String,
    /// The first of them.
    mapping: Mapping,
    /// Absolute address − address as the file means it.
    pub(super) bias: u64,
    /// From the first segment to the end of the last.
    pub(super) range: Range<u64>,
    /// Where its variables are.
    pub(super) writable: Vec<Range<u64>>,
    pub(super) thread_local: Option<ThreadLocal>,
    names: OnceCell<Names>,
}

/// The names of a file's variables.
#[derive(Default)]
struct Names {
    /// By address, before relocation.
    variables: Vec<Named>,
    /// By offset in the thread-local storage.
    thread_local: Vec<Named>,
}

/// Mangled.
struct Named {
    range: Range<u64>,
    name: Box<str>,
}

impl Module {
    /// Whether it is the C library, or its part with threads.
    pub(super) fn is_libc(&self) -> bool {
        const NAMES: [&str; 5] = ["libc.so", "libc-2", "libpthread", "ld-musl", "libc.musl"];
        NAMES.iter().any(|name| self.name.starts_with(name))
    }
}

impl Named {
    /// Bytes.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

impl Modules {
    /// Finds the files behind `mappings`, which are sorted.
    pub(in crate::holders) fn new(pid: u32, mappings: &[Mapping]) -> Self {
        let mut list: Vec<Module> = Vec::new();
        let mut rest = mappings;
        while let Some(count) = run(rest) {
            let (mapped, after) = rest.split_at(count);
            // Variables initialised to zero have a mapping of their own.
            let zeros = after.first().filter(|next| {
                next.path.is_none() && mapped.last().is_some_and(|last| last.end == next.start)
            });
            list.extend(Module::new(pid, mapped, zeros));
            rest = after;
        }
        list.sort_by_key(|module| module.range.start);
        Self {
            pid,
            list,
            namer: RefCell::new(Namer::awaited(PATIENCE)),
            left: Cell::new(MOST_NAMES),
        }
    }

    /// The name of the file that is loaded at an address, without folders.
    pub(in crate::holders) fn name_at(&self, address: u64) -> Option<&str> {
        self.containing(address).map(|module| &*module.name)
    }

    /// Names of all files, without folders.
    pub(in crate::holders) fn file_names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|module| &*module.name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Module> {
        self.list.iter()
    }

    /// The runtime of a language with a heap of its own.
    pub(super) fn runtime(&self) -> Option<&'static RuntimeHeap> {
        let named = |module: &Module| runtime_heaps::in_file(&module.name, |_| false);
        let in_file = |module: &Module| {
            runtime_heaps::in_file(&module.name, |section| self.has_section(module, section))
        };
        let mut files = self.iter();
        files
            .find_map(named)
            .or_else(|| self.iter().find_map(in_file))
    }

    /// Whether a file has a section of this name.
    fn has_section(&self, module: &Module, name: &str) -> bool {
        let Some(file) = self.open(module) else {
            return false;
        };
        let bytes = FileBytes::new(&file);
        Elf::parse(&bytes).is_ok_and(|elf| elf.has_section(name))
    }

    /// The file that an absolute address belongs to.
    pub(super) fn containing(&self, address: u64) -> Option<&Module> {
        let after = self
            .list
            .partition_point(|module| module.range.start <= address);
        let module = self.list.get(after.checked_sub(1)?)?;
        module.range.contains(&address).then_some(module)
    }

    /// A programmer's name for the word at an absolute address: `libfoo.so: cache + 0x10`.
    pub(super) fn describe(&self, address: u64) -> Option<String> {
        let module = self.containing(address)?;
        Some(of_runtime(module, self.describe_in(module, address)))
    }

    fn describe_in(&self, module: &Module, address: u64) -> String {
        let virt = address.wrapping_sub(module.bias);
        let found = find(&self.names(module).variables, virt);
        let variable = found.map(|(named, offset)| (self.demangle(&named.name), offset));
        let place = match variable.or_else(|| self.section(module, virt)) {
            Some((name, 0)) => name,
            Some((name, offset)) => format!("{name} + {offset:#x}"),
            None => format!("{virt:#x}"),
        };
        format!("{}: {place}", module.name)
    }

    /// The program's variable around an absolute address, in any of its words. `None` without symbols, and for those of
    /// runtimes and caching allocators, whose records lead to everything.
    pub(in crate::holders) fn variable(&self, address: u64) -> Option<String> {
        let module = self.containing(address)?;
        let is_of_runtime = runtime_heaps::in_file(&module.name, |_| false).is_some();
        if is_of_runtime || caching::layer_of_caller(&module.name).is_some() {
            return None;
        }
        let virt = address.wrapping_sub(module.bias);
        let (named, _) = find(&self.names(module).variables, virt)?;
        Some(format!("{}: {}", module.name, self.demangle(&named.name)))
    }

    /// Mangled name of the variable that begins at an absolute address.
    pub(super) fn symbol_at(&self, address: u64) -> Option<&str> {
        let module = self.containing(address)?;
        let (named, offset) = find(
            &self.names(module).variables,
            address.wrapping_sub(module.bias),
        )?;
        (offset == 0).then_some(&*named.name)
    }

    /// A word of a file's thread-local storage.
    pub(super) fn describe_thread_local(&self, module: &Module, offset: u64) -> String {
        let place = match find(&self.names(module).thread_local, offset) {
            Some((named, 0)) => self.demangle(&named.name),
            Some((named, offset)) => format!("{} + {offset:#x}", self.demangle(&named.name)),
            None => format!("thread-local storage + {offset:#x}"),
        };
        of_runtime(module, format!("{}: {place}", module.name))
    }

    /// Names functions of these files.
    pub(super) fn namer(&self) -> RefMut<'_, Namer> {
        self.namer.borrow_mut()
    }

    pub(super) fn demangle(&self, name: &str) -> String {
        let readable = self.namer().demangle(vec![name.to_owned()]);
        readable.into_iter().next().unwrap_or_default()
    }

    /// The file itself, opened again: processes can map more files than may be open.
    pub(super) fn open(&self, module: &Module) -> Option<File> {
        let opened = ModuleFile::open(self.pid, &module.mapping).ok()?;
        Some(opened.file)
    }

    /// As the process names it.
    pub(super) fn path(module: &Module) -> String {
        let path = module.mapping.path.as_deref().unwrap_or("".as_ref());
        path.to_string_lossy().into_owned()
    }

    /// Name of the section around an address as the file means it, and the offset in it.
    fn section(&self, module: &Module, virt: u64) -> Option<(String, u64)> {
        let file = self.open(module)?;
        let bytes = FileBytes::new(&file);
        let elf = Elf::parse(&bytes).ok()?;
        let (name, start) = elf.section_of(virt)?;
        Some((name.to_owned(), virt - start))
    }

    fn names<'a>(&self, module: &'a Module) -> &'a Names {
        module.names.get_or_init(|| {
            let Some(file) = self.open(module) else {
                return Names::default();
            };
            let bytes = FileBytes::new(&file);
            let names = Elf::parse(&bytes)
                .map_or_else(|_| Names::default(), |elf| Names::of(&elf, self.left.get()));
            self.left
                .set(self.left.get().saturating_sub(names.memory()));
            names
        })
    }
}

impl Module {
    /// `None`: no ELF file, or one that is not loaded but read.
    fn new(pid: u32, mapped: &[Mapping], zeros: Option<&Mapping>) -> Option<Self> {
        let first = mapped.first()?;
        let is_writable =
            |mapping: &Mapping| mapping.permissions.write && !mapping.permissions.shared;
        let is_loaded = |mapping: &Mapping| mapping.permissions.execute || is_writable(mapping);
        if !mapped.iter().any(is_loaded) {
            return None;
        }
        let opened = ModuleFile::open(pid, first).ok()?;
        let bytes = FileBytes::new(&opened.file);
        let elf = Elf::parse(&bytes).ok()?;
        let bias = bias(elf.segments(), first)?;
        let mut writable = Vec::new();
        let mut end = mapped.last()?.end;
        for segment in elf.segments() {
            let start = bias.wrapping_add(segment.virt);
            let segment_end = start.checked_add(segment.memory_size)?;
            end = end.max(segment_end);
            if !segment.write {
                continue;
            }
            let page = page_size();
            let pages = start & !(page - 1)..segment_end.checked_next_multiple_of(page)?;
            let parts = mapped
                .iter()
                .chain(zeros)
                .filter(|mapping| is_writable(mapping));
            writable.extend(parts.filter_map(|mapping| {
                let part = mapping.start.max(pages.start)..mapping.end.min(pages.end);
                (!part.is_empty()).then_some(part)
            }));
        }
        let limit = zeros.or(mapped.last()).map_or(end, |last| last.end);
        let name = first.path.as_deref()?.file_name()?.to_string_lossy();
        Some(Self {
            name: name.into_owned(),
            mapping: first.clone(),
            bias,
            range: first.start..end.min(limit),
            writable,
            thread_local: elf.thread_local(),
            names: OnceCell::new(),
        })
    }
}

impl Names {
    /// In at most so many bytes; others are left out.
    fn of(elf: &Elf<'_>, most: usize) -> Self {
        let variables = sorted(elf.variables(), most);
        let left = most.saturating_sub(memory(&variables));
        Self {
            variables,
            thread_local: sorted(elf.thread_local_variables(), left),
        }
    }

    fn memory(&self) -> usize {
        memory(&self.variables) + memory(&self.thread_local)
    }
}

/// A variable, or what it is to a programmer: a runtime reaches every object of a program from variables of its own.
fn of_runtime(module: &Module, variable: String) -> String {
    match runtime_heaps::in_file(&module.name, |_| false) {
        Some(runtime) => format!("{}'s own memory ({variable})", runtime.name),
        None => variable,
    }
}

/// How many of the first mappings are of one loaded file, or of none. `None`: there are no more.
fn run(mappings: &[Mapping]) -> Option<usize> {
    let first = mappings.first()?;
    let Some(file) = first.file() else {
        return Some(1);
    };
    let follows = mappings.windows(2).take_while(|pair| {
        // The same file loaded once more starts over.
        pair[1].file() == Some(file) && pair[1].file_offset >= pair[0].file_offset
    });
    Some(1 + follows.count())
}

fn bias(segments: &[Segment], mapping: &Mapping) -> Option<u64> {
    let page = page_size();
    let segment = segments
        .iter()
        .find(|segment| segment.file_offset & !(page - 1) == mapping.file_offset)?;
    let start = segment.virt.wrapping_sub(segment.file_offset % page);
    Some(mapping.start.wrapping_sub(start))
}

/// Bytes.
fn memory(named: &[Named]) -> usize {
    named.iter().map(Named::memory).sum()
}

fn sorted<'data>(variables: impl Iterator<Item = Variable<'data>>, most: usize) -> Vec<Named> {
    let mut left = most;
    let mut named: Vec<Named> = variables
        .filter(|variable| !variable.name.is_empty())
        .map(|variable| Named {
            range: variable.virt..variable.virt.saturating_add(variable.size.max(1)),
            name: variable.name.into(),
        })
        .take_while(|named| {
            let fits = named.memory() <= left;
            left = left.saturating_sub(named.memory());
            fits
        })
        .collect();
    // Among several names, the shortest is usually the undecorated one.
    named.sort_by(|a, b| {
        let key = |named: &Named| (named.range.start, named.name.len());
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    named.dedup_by_key(|named| named.range.start);
    named
}

/// The variable around `at`, and the offset in it.
fn find(named: &[Named], at: u64) -> Option<(&Named, u64)> {
    let after = named.partition_point(|named| named.range.start <= at);
    let found = named.get(after.checked_sub(1)?)?;
    (at < found.range.end).then(|| (found, at - found.range.start))
}
