//! The roots of native memory, where references begin.

use super::super::memory::Memory;
use super::super::reference::cost;
use super::frames::Functions;
use super::threads::{self, Storage, Tasks, Thread};
use super::{Blocks, Modules, Threads};
use crate::{
    process::{
        maps::{self, Mapping},
        pagemap::ResidentPages,
    },
    recording::ANONYMOUS,
    units,
};
use std::ops::Range;

/// The kind of a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::holders) enum RootKind {
    /// Variables of a file.
    Global,
    ThreadLocal,
    /// The part of a stack that is in use.
    Stack,
    /// Memory that may or may not be in use: only the program knows.
    Mapping,
}

impl RootKind {
    /// The cost of believing a word there, see [`cost`].
    pub(in crate::holders) fn cost(self) -> u32 {
        match self {
            Self::Global | Self::ThreadLocal => cost::KNOWN_BLOCK,
            Self::Stack => cost::STACK,
            Self::Mapping => cost::UNKNOWN,
        }
    }
}

/// Memory in which references begin. A range of variables or of a stack may have blocks inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::holders) struct RootRange {
    /// Absolute.
    pub(in crate::holders) start: u64,
    pub(in crate::holders) end: u64,
    pub(in crate::holders) kind: RootKind,
}

/// A register of a thread, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::holders) struct RegisterRoot {
    pub(in crate::holders) tid: u32,
    pub(in crate::holders) name: &'static str,
    pub(in crate::holders) value: u64,
}

/// See the module.
pub(in crate::holders) struct Roots {
    ranges: Vec<RootRange>,
    threads: Vec<Thread>,
    /// Stacks of threads that have ended.
    ended: Vec<Range<u64>>,
    mappings: Vec<Mapping>,
    functions: Functions,
}

impl Roots {
    /// `known` are ranges that something else accounts for: memory of allocators and of Python.
    pub(in crate::holders) fn new(
        pid: u32,
        threads: &Threads,
        memory: &(impl Memory + ?Sized),
        mappings: &[Mapping],
        modules: &Modules,
        blocks: &Blocks,
        known: &[Range<u64>],
    ) -> Self {
        let functions = Functions::new(pid, threads.clone());
        let Tasks { mut threads, ended } = threads::read(pid, threads, memory, mappings, modules);
        for thread in &mut threads {
            thread.leave_fiber(blocks);
        }
        let mut ranges = Vec::new();
        let mut add = |range: &Range<u64>, kind| {
            ranges.push(RootRange {
                start: range.start,
                end: range.end,
                kind,
            });
        };
        let mut known = known.to_vec();
        known.sort_by_key(|range| range.start);
        for range in modules.iter().flat_map(|module| &module.writable) {
            // The allocator's own variables lead to freed memory.
            for range in remainder(range.clone(), &known) {
                add(&range, RootKind::Global);
            }
        }
        for thread in &threads {
            // The C library keeps both at the upper end of the stack that it makes.
            let is_apart = |range: &&Range<u64>| {
                thread
                    .stack
                    .as_ref()
                    .is_none_or(|stack| !stack.contains(&range.start))
            };
            let storage = thread.storage.iter().map(|storage| &storage.range);
            storage
                .chain(&thread.control)
                .filter(is_apart)
                .for_each(|range| add(range, RootKind::ThreadLocal));
            thread
                .stack
                .iter()
                .for_each(|range| add(range, RootKind::Stack));
        }
        let mut taken: Vec<Range<u64>> =
            ranges.iter().map(|range| range.start..range.end).collect();
        taken.extend_from_slice(&known);
        taken.extend(threads.iter().filter_map(|thread| thread.below(mappings)));
        taken.extend_from_slice(&ended);
        taken.sort_by_key(|range| range.start);
        let others = mappings.iter().filter(|mapping| is_pool(mapping));
        for mapping in others {
            for range in remainder(mapping.start..mapping.end, &taken) {
                ranges.push(RootRange {
                    start: range.start,
                    end: range.end,
                    kind: RootKind::Mapping,
                });
            }
        }
        let ranges = written(pid, ranges, mappings);
        Self {
            ranges,
            threads,
            ended,
            mappings: mappings.to_vec(),
            functions,
        }
    }

    /// All ranges; for those of kind [`RootKind::Mapping`], only the parts outside blocks.
    pub(in crate::holders) fn ranges<'a>(
        &'a self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = RootRange> + 'a {
        self.ranges.iter().flat_map(move |range| {
            let blocks = (range.kind == RootKind::Mapping).then_some(blocks);
            Parts::new(blocks, range.clone())
        })
    }

    /// Whether a stack is within a range: its thread, or the C library, keeps it.
    pub(in crate::holders) fn has_stack(&self, range: &Range<u64>) -> bool {
        let stacks = self
            .threads
            .iter()
            .filter_map(|thread| thread.stack.as_ref());
        stacks
            .chain(&self.ended)
            .any(|stack| stack.start < range.end && range.start < stack.end)
    }

    /// The thread-local variables of the files with these names.
    pub(super) fn thread_local<'a>(
        &'a self,
        modules: &'a Modules,
        is_wanted: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = Range<u64>> + 'a {
        let storage = self.threads.iter().flat_map(|thread| &thread.storage);
        storage.filter_map(move |storage| {
            let module = modules.containing(storage.file?)?;
            is_wanted(&module.name).then(|| storage.range.clone())
        })
    }

    /// The registers of all threads, as they were when this was made.
    pub(in crate::holders) fn registers(&self) -> impl Iterator<Item = RegisterRoot> + '_ {
        self.threads.iter().flat_map(|thread| {
            thread.registers.iter().map(|&(name, value)| RegisterRoot {
                tid: thread.tid,
                name,
                value,
            })
        })
    }

    /// A programmer's name for the word at an address in one of the ranges. Naming a function on a stack stops its
    /// running thread for some microseconds, so do not call this during a [`super::Stop`].
    pub(in crate::holders) fn describe(
        &self,
        memory: &(impl Memory + Sync + ?Sized),
        modules: &Modules,
        address: u64,
    ) -> String {
        let of_thread = self.threads.iter().find_map(|thread| {
            let what = thread.describe(modules, address).or_else(|| {
                thread.stack.as_ref()?.contains(&address).then(|| {
                    match self.functions.at(memory, modules, thread.tid, address) {
                        Some(name) => format!("stack of {name}"),
                        None => "stack".to_owned(),
                    }
                })
            })?;
            Some(format!("thread {}: {what}", thread.name))
        });
        of_thread
            .or_else(|| modules.describe(address))
            .unwrap_or_else(|| self.describe_mapping(modules, address))
    }

    /// A programmer's name for a register; as [`Roots::describe`].
    pub(in crate::holders) fn describe_register(
        &self,
        memory: &(impl Memory + Sync + ?Sized),
        modules: &Modules,
        register: &RegisterRoot,
    ) -> String {
        let thread = self
            .threads
            .iter()
            .find(|thread| thread.tid == register.tid);
        let name = thread.map_or("", |thread| &thread.name);
        let mut what = format!("thread {name}: register {}", register.name);
        let current = self.functions.current(memory, modules, register.tid);
        if let Some(function) = current {
            what += &format!(" of {function}");
        }
        what
    }

    /// The kind of the word at an address in a range of this kind: thread-local variables lie within stacks.
    pub(in crate::holders) fn kind(&self, kind: RootKind, address: u64) -> RootKind {
        let is_thread_local = |thread: &Thread| {
            let storage = thread.storage.iter().map(|storage| &storage.range);
            storage
                .chain(&thread.control)
                .any(|range| range.contains(&address))
        };
        match self.threads.iter().any(is_thread_local) {
            true => RootKind::ThreadLocal,
            false => kind,
        }
    }

    fn describe_mapping(&self, modules: &Modules, address: u64) -> String {
        let Some(mapping) = maps::find(&self.mappings, address) else {
            return format!("memory at {address:#x}");
        };
        let size = units::size(mapping.len());
        match mapping.path.as_deref() {
            Some(path) => format!("mapping of {size} ({})", path.display()),
            None => match modules.runtime().filter(|of| !of.uses_malloc) {
                Some(runtime) => format!("heap of {}, mapping of {size}", runtime.name),
                None => format!("{ANONYMOUS} of {size}"),
            },
        }
    }
}

impl Thread {
    /// A stack that the program has allocated itself ends with its block.
    fn leave_fiber(&mut self, blocks: &Blocks) {
        let Some(stack) = &mut self.stack else { return };
        if let Some(index) = blocks.containing(stack.start) {
            let block = blocks.block(index);
            stack.end = stack.end.min(block.start.saturating_add(block.size));
        }
    }

    /// The part of its stack that is not in use.
    fn below(&self, mappings: &[Mapping]) -> Option<Range<u64>> {
        let stack = self.stack.as_ref().filter(|_| self.owns_mapping)?;
        Some(maps::find(mappings, stack.start)?.start..stack.start)
    }

    /// A word that belongs to the thread but is not of a function's frame.
    fn describe(&self, modules: &Modules, address: u64) -> Option<String> {
        let holds = |storage: &&Storage| storage.range.contains(&address);
        if let Some(storage) = self.storage.iter().find(holds) {
            let module = storage.file.and_then(|file| modules.containing(file));
            let offset = address - storage.range.start;
            return Some(match module {
                Some(module) => modules.describe_thread_local(module, offset),
                None => "thread-local storage".to_owned(),
            });
        }
        let control = self.control.as_ref()?;
        control
            .contains(&address)
            .then(|| "thread control block (pthread_setspecific)".to_owned())
    }
}

/// The parts of a range that are in no block.
struct Parts<'a> {
    /// `None`: all of it.
    blocks: Option<&'a Blocks>,
    at: u64,
    range: RootRange,
    next: usize,
}

impl<'a> Parts<'a> {
    fn new(blocks: Option<&'a Blocks>, range: RootRange) -> Self {
        let first = blocks.and_then(|blocks| {
            let block = blocks.block(blocks.containing(range.start)?);
            Some(block.start.saturating_add(block.size))
        });
        Self {
            blocks,
            at: first.unwrap_or(range.start),
            next: blocks.map_or(0, |blocks| blocks.first_from(range.start)),
            range,
        }
    }
}

impl Iterator for Parts<'_> {
    type Item = RootRange;

    fn next(&mut self) -> Option<RootRange> {
        while self.at < self.range.end {
            let block = self
                .blocks
                .filter(|blocks| self.next < blocks.len())
                .map(|blocks| blocks.block(self.next))
                .filter(|block| block.start < self.range.end);
            self.next += 1;
            let start = self.at;
            let (end, after) = match block {
                Some(block) => (block.start, block.start.saturating_add(block.size)),
                None => (self.range.end, self.range.end),
            };
            self.at = self.at.max(after);
            if end > start && end - start >= 8 {
                return Some(RootRange {
                    start,
                    end,
                    kind: self.range.kind,
                });
            }
        }
        None
    }
}

/// Whether a mapping may hold objects that the program manages itself.
fn is_pool(mapping: &Mapping) -> bool {
    let is_special = mapping
        .path
        .as_deref()
        .is_some_and(|path| path.as_os_str().as_encoded_bytes().starts_with(b"[v"));
    let permissions = mapping.permissions;
    permissions.read && permissions.write && !permissions.shared && !is_special
}

/// Leaves out unchanged pages of mapped files: they cannot contain addresses of blocks.
fn written(pid: u32, ranges: Vec<RootRange>, mappings: &[Mapping]) -> Vec<RootRange> {
    // Without it, everything is read.
    let Ok(mut pages) = ResidentPages::open(pid) else {
        return ranges;
    };
    let mut kept = Vec::with_capacity(ranges.len());
    for range in ranges {
        let after = mappings.partition_point(|mapping| mapping.start <= range.start);
        let mapping = after.checked_sub(1).map(|index| &mappings[index]);
        let written = match mapping.is_some_and(|mapping| mapping.ino != 0) {
            true => pages.written(range.start..range.end).ok(),
            false => None,
        };
        match written {
            Some(parts) => kept.extend(parts.into_iter().map(|part| RootRange {
                start: part.start,
                end: part.end,
                kind: range.kind,
            })),
            None => kept.push(range),
        }
    }
    kept
}

/// The parts of a range outside the `taken` ones, which are sorted by their start.
fn remainder(range: Range<u64>, taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut at = range.start;
    for other in taken.iter().filter(|other| other.end > range.start) {
        if other.start >= range.end {
            break;
        }
        if other.start > at {
            left.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        left.push(at..range.end);
    }
    left
}
