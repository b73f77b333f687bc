//! The threads of a process: registers, stacks and thread-local storage.

use super::super::memory::Memory;
use super::{Modules, Stopped, Threads};
use crate::{
    arch,
    file::FileBytes,
    process::{
        elf::Elf,
        link_order::{self, LinkedFile},
        maps::{self, Mapping},
        tasks,
    },
};
use std::{fs, ops::Range, path::Path};

/// Pages of some kernels are multiples of it.
const PAGE: u64 = 4 << 10;

/// Bytes of glibc's `struct pthread` if its file has no size: more than any version's.
const THREAD_BLOCK: u64 = 2560;

/// Most bytes of thread-local storage read if its size is unknown.
const MAX_STATIC: u64 = 64 << 10;

/// More files with thread-local storage than any process has.
const MAX_FILES: u64 = 4 << 10;

/// Words at the upper end of a stack among which a `struct pthread` may begin.
const WORDS_OF_TOP: usize = arch::CONTROL_BELOW_TOP / 8;

/// The threads of a process at one moment.
pub(super) struct Tasks {
    pub(super) threads: Vec<Thread>,
    /// Stacks that glibc keeps for threads to come. Nothing in them is in use.
    pub(super) ended: Vec<Range<u64>>,
}

/// A thread's state at one moment.
pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) name: String,
    /// Names and values.
    pub(super) registers: Vec<(&'static str, u64)>,
    /// From the stack pointer on.
    pub(super) stack: Option<Range<u64>>,
    /// Below its stack pointer nothing else is in the mapping.
    pub(super) owns_mapping: bool,
    pub(super) storage: Vec<Storage>,
    /// The thread control block, where values of `pthread_setspecific` are.
    pub(super) control: Option<Range<u64>>,
}

/// A thread's copy of the thread-local variables of a file.
pub(super) struct Storage {
    pub(super) range: Range<u64>,
    /// An address in the file; `None`: the owner is unknown.
    pub(super) file: Option<u64>,
}

/// The C library's description of its threads.
struct Library {
    thread_block: u64,
    /// Where a thread control block has the thread's id, if the library publishes it.
    tid_at: Option<u64>,
    /// By their number in the table of a thread.
    files: Vec<File>,
}

struct File {
    number: u64,
    /// An address in it.
    address: u64,
    size: u64,
}

/// The threads of the process whose memory it is, `pid`.
pub(super) fn read(
    pid: u32,
    threads: &Threads,
    memory: &(impl Memory + ?Sized),
    mappings: &[Mapping],
    modules: &Modules,
) -> Tasks {
    let library = Library::read(pid, memory, modules);
    let ended = mappings
        .iter()
        .filter_map(|mapping| library.ended_stack(memory, mapping))
        .collect();
    let threads = threads
        .each(Stopped::clone)
        .into_iter()
        .map(|Stopped { tid, registers, sp }| {
            let pointer = registers.as_ref().map(arch::thread_pointer);
            let mut thread = Thread {
                tid,
                // A thread is a task of its own there.
                name: tasks::name_of(tid),
                registers: registers
                    .as_ref()
                    .map_or_else(Vec::new, |registers| arch::general(registers).into()),
                stack: None,
                owns_mapping: false,
                storage: Vec::new(),
                control: pointer.map(|pointer| arch::control(pointer, library.thread_block)),
            };
            thread.find_stack(sp, mappings);
            if let Some(pointer) = pointer.filter(|&pointer| pointer != 0) {
                thread.storage = library.storage(memory, mappings, pointer);
            }
            thread
        })
        .collect();
    Tasks { threads, ended }
}

impl Thread {
    fn find_stack(&mut self, sp: Option<u64>, mappings: &[Mapping]) {
        let Some((sp, mapping)) = sp.and_then(|sp| Some((sp, maps::find(mappings, sp)?))) else {
            return;
        };
        // The C library puts the control block at the upper end of the stacks that it makes.
        let control = self
            .control
            .as_ref()
            .filter(|control| mapping.contains(control.start) && control.start >= sp);
        let end = control
            .and_then(|control| control.end.checked_next_multiple_of(PAGE))
            .map_or(mapping.end, |end| end.min(mapping.end));
        self.owns_mapping =
            control.is_some() || mapping.path.as_deref() == Some(Path::new("[stack]"));
        self.stack = Some(sp..end);
    }
}

impl Library {
    fn read(pid: u32, memory: &(impl Memory + ?Sized), modules: &Modules) -> Self {
        let symbols = ["libc.so", "libpthread"].iter().find_map(|prefix| {
            let mut named = modules
                .iter()
                .filter(|module| module.name.starts_with(prefix));
            named.find_map(|module| Symbols::read(&modules.open(module)?))
        });
        let linked = link_order::read(pid).ok().flatten().unwrap_or_default();
        let mut files = Vec::new();
        match symbols.as_ref().and_then(|symbols| symbols.number_at) {
            Some(number_at) => files.extend(
                linked
                    .iter()
                    .filter_map(|linked| File::linked(linked, number_at, memory, modules)),
            ),
            // The program is the first to get a number.
            None => files.extend(
                modules
                    .iter()
                    .filter(|_| linked.is_empty())
                    .find_map(|module| {
                        Some(File {
                            number: 1,
                            address: module.range.start,
                            size: module.thread_local?.size,
                        })
                    }),
            ),
        }
        Self {
            tid_at: symbols.as_ref().and_then(|symbols| symbols.tid_at),
            thread_block: symbols.map_or(THREAD_BLOCK, |symbols| symbols.thread_block),
            files,
        }
    }

    /// The stack of a thread that has ended, if a mapping is one: below the thread's control block, which still has
    /// memory for the next thread. The id in it was cleared by the kernel, or made negative by pthread_join.
    fn ended_stack(
        &self,
        memory: &(impl Memory + ?Sized),
        mapping: &Mapping,
    ) -> Option<Range<u64>> {
        let permissions = mapping.permissions;
        let is_stack = mapping.path.is_none() && permissions.write && !permissions.shared;
        let tid_at = self.tid_at.filter(|_| is_stack)?;
        let mut bytes = [0; WORDS_OF_TOP * 8];
        let top = mapping.end.saturating_sub(bytes.len() as u64);
        if top < mapping.start || !memory.read(top, &mut bytes) {
            return None;
        }
        let (words, _) = bytes.as_chunks();
        let word = |index: usize| words.get(index).copied().map(u64::from_le_bytes);
        let control = (0..WORDS_OF_TOP).rev().find_map(|index| {
            let at = top + 8 * index as u64;
            let read = |offset: u64| word(index + (offset / 8) as usize);
            arch::is_control(at, tid_at, read).then_some(at)
        })?;
        let tid = memory.half(control + tid_at)?.cast_signed();
        (tid <= 0).then_some(mapping.start..control)
    }

    /// The thread-local storage of the thread with this thread pointer.
    fn storage(
        &self,
        memory: &(impl Memory + ?Sized),
        mappings: &[Mapping],
        pointer: u64,
    ) -> Vec<Storage> {
        let table = pointer.checked_add(arch::STORAGE_TABLE);
        let table = table.and_then(|at| memory.word(at));
        let entries = self.files.iter().filter(|file| file.number <= MAX_FILES);
        let mut found: Vec<Storage> = entries
            .filter_map(|file| {
                let start = memory.word(table?.checked_add(file.number * 16)?)?;
                // Entries that the thread has not used yet are -1.
                let end = start.checked_add(file.size)?;
                maps::find(mappings, start)?
                    .contains(end.checked_sub(1)?)
                    .then_some(())?;
                Some(Storage {
                    range: start..end,
                    file: Some(file.address),
                })
            })
            .collect();
        if found.is_empty()
            && let Some(mapping) = maps::find(mappings, pointer)
        {
            let storage = arch::storage(pointer, MAX_STATIC);
            found.push(Storage {
                range: storage.start.max(mapping.start)..storage.end.min(mapping.end),
                file: None,
            });
        }
        found
    }
}

impl File {
    fn linked(
        linked: &LinkedFile,
        number_at: u64,
        memory: &(impl Memory + ?Sized),
        modules: &Modules,
    ) -> Option<Self> {
        let module = modules.containing(linked.dynamic)?;
        let number = memory.word(linked.entry.checked_add(number_at)?)?;
        (number != 0).then_some(Self {
            number,
            address: linked.dynamic,
            size: module.thread_local?.size,
        })
    }
}

/// The layout that glibc publishes for debuggers (nptl_db/db_info.c).
struct Symbols {
    thread_block: u64,
    /// Where an entry of the loader's list has the number of its file's thread-local storage.
    number_at: Option<u64>,
    /// Where a thread control block has the thread's id.
    tid_at: Option<u64>,
}

impl Symbols {
    fn read(file: &fs::File) -> Option<Self> {
        let bytes = FileBytes::new(file);
        let elf = Elf::parse(&bytes).ok()?;
        // Each field is { bits, number of elements, offset }.
        let number = |name: &str, index: usize| {
            let variable = elf.variables().find(|variable| variable.name == name)?;
            let bytes = elf.initial(variable.virt, 4 * (index + 1))?;
            let number = bytes.get(4 * index..)?.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*number)))
        };
        let thread_block = number("_thread_db_sizeof_pthread", 0)?;
        let number_at = number("_thread_db_link_map_l_tls_modid", 2);
        Some(Self {
            thread_block: thread_block.min(2 * PAGE),
            number_at: number_at.filter(|&at| at < 2 * PAGE),
            tid_at: number("_thread_db_pthread_tid", 2).filter(|&at| at < 2 * PAGE),
        })
    }
}
