//! The ledger of live allocations: events in, totals per site out.
//!
//! Pure: uses no clock, no file, no process, and neither aya nor tokio; the same events always give
//! the same totals.
//!
//! `table` and `regions` know which blocks are live at which addresses, `totals` the figures they
//! count for; `space` joins them for one address space, and this file maps processes to address
//! spaces.

mod births;
mod cache;
mod device_blocks;
mod device_totals;
mod fold;
mod holes;
mod lineage;
mod physical;
mod regions;
mod space;
mod survivors;
mod table;
mod totals;

#[cfg(test)]
mod tests;

use crate::event::{Action, Device, Event, Layer, StackId};
use crate::hash::FastMap;
use births::BirthScan;
pub(crate) use device_totals::{
    CacheTotals, DeviceTotals, Failure, FailureKey, StreamKey, StreamTotals,
};
pub(crate) use holes::{HeldOpen, Hole};
use lineage::Ancestor;
use memtrace_common::loss::Reason;
use space::{Birth, Space};
pub(crate) use survivors::{Extent, HeapCopy, Survivors};
use totals::Book;

/// Number of log₂ buckets of [`SiteTotals::lifetimes`]: bucket `i` counts
/// blocks freed after [2^i, 2^(i+1)) nanoseconds (bucket 0 also 0 ns).
pub(crate) const LIFETIME_BUCKETS: usize = 48;

/// The bucket of a lifetime, or of an age.
fn bucket_of(ns: u64) -> usize {
    (ns.max(1).ilog2() as usize).min(LIFETIME_BUCKETS - 1)
}

fn without_zeros_at_end(counts: &[u64]) -> Box<[u64]> {
    let used = counts.iter().rposition(|count| *count > 0);
    counts[..used.map_or(0, |last| last + 1)].into()
}

/// A process of the recording (a tgid may come back; an id does not). From 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// An allocation site: process, layer and stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteKey {
    pub process: ProcessId,
    pub layer: Layer,
    pub stack: StackId,
    /// The layer's caller was itself an allocator (mappings, and device memory).
    pub by_allocator: bool,
    /// The device of its memory; also `None` for memory of no device.
    pub device: Device,
}

/// Figures of a site and of a whole layer of a process. Sizes in bytes. For vm and python a block
/// is a contiguous piece of a mapping: a munmap in the middle turns one into two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Live, allocated by this process itself since tracing began.
    pub live_bytes: u64,
    pub live_count: u64,
    /// Live, inherited from the parent at fork and not released here since.
    pub inherited_bytes: u64,
    pub inherited_count: u64,
    /// Ever allocated.
    pub alloc_bytes: u64,
    pub alloc_count: u64,
    /// Ever released, of the memory allocated here. For a mapping a cut counts its bytes, and a
    /// piece counts once it is completely gone.
    pub free_bytes: u64,
    pub free_count: u64,
    /// Largest `live_bytes` ever, and when (CLOCK_MONOTONIC ns).
    pub peak_bytes: u64,
    pub peak_ns: u64,
}

/// Totals of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTotals {
    pub totals: Totals,
    /// `live_bytes`, `live_count` at the moment the whole layer of the process was at its peak.
    /// Valid as of `peak_epoch`; if the layer's `peak_epoch` is newer, this site has not changed
    /// since that peak, so its live figures are the figures at the peak.
    pub at_peak_bytes: u64,
    pub at_peak_count: u64,
    pub peak_epoch: u64,
    /// First and last allocation, CLOCK_MONOTONIC ns.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Lifetimes of the blocks whose end was seen (not those replaced after a
    /// lost release), see [`LIFETIME_BUCKETS`]; zeros at the end are left out.
    pub lifetimes: Box<[u64]>,
}

/// Totals of one layer of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerTotals {
    pub totals: Totals,
    /// Counts the layer's peaks, see [`SiteTotals::at_peak_bytes`].
    pub peak_epoch: u64,
    /// vm only: bytes mapped before tracing began and still mapped.
    pub before_attach_bytes: u64,
    /// Live at the exec that cleared them, summed over all execs.
    pub cleared_by_exec_bytes: u64,
    pub cleared_by_exec_count: u64,
}

/// Changes since the last call of `Ledger::take_changes`.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub sites: Vec<(SiteKey, SiteTotals)>,
    pub layers: Vec<((ProcessId, Layer), LayerTotals)>,
    pub devices: Vec<((ProcessId, Device), DeviceTotals)>,
    pub streams: Vec<(StreamKey, StreamTotals)>,
    pub failures: Vec<(FailureKey, Failure)>,
}

/// Live blocks of one site by birth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Births {
    /// Upper edge of the births counted (CLOCK_MONOTONIC ns) → bytes, count. Ascending. At most 256
    /// rows: if a site has more distinct seconds, neighbours are merged.
    pub rows: Vec<(u64, u64, u64)>,
    /// Number of blocks by age, in the buckets of [`SiteTotals::lifetimes`], without zeros at the end;
    /// empty for a process that has ended.
    pub ages: Box<[u64]>,
}

impl Births {
    /// Total of all its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.iter().map(|(_, bytes, _)| bytes).sum()
    }
}

/// Errors in the events themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Reason::UnknownFree`].
    pub unknown_free: u64,
    /// [`Reason::AddressReused`].
    pub address_reused: u64,
    /// [`Reason::OutcomeLost`].
    pub outcome_lost: u64,
}

impl Counts {
    /// Every count by its reason, zero included.
    pub fn by_reason(&self) -> [(Reason, u64); 3] {
        [
            (Reason::UnknownFree, self.unknown_free),
            (Reason::AddressReused, self.address_reused),
            (Reason::OutcomeLost, self.outcome_lost),
        ]
    }
}

/// Live allocations of all processes of a recording.
pub struct Ledger {
    page_size: u64,
    book: Book,
    /// By tgid; a process that ended stays until the changes are taken.
    processes: FastMap<u32, Process>,
    /// Births of processes that ended since the last [`Ledger::births`].
    ended_births: Vec<(SiteKey, Births)>,
}

struct Process {
    id: ProcessId,
    memory: AddressSpace,
}

enum AddressSpace {
    Own(Box<Space>),
    /// After vfork: that of the process with this tgid.
    Borrowed(u32),
    Ended,
}

impl Ledger {
    /// `page_size` in bytes, a power of two.
    pub fn new(page_size: u64) -> Ledger {
        Ledger {
            page_size,
            book: Book::default(),
            processes: FastMap::default(),
            ended_births: Vec::new(),
        }
    }

    /// A process that the collector attaches to or launches; forked children come by
    /// [`Action::Fork`]. If `tgid` was known, that process has ended.
    pub fn start_process(&mut self, tgid: u32) -> ProcessId {
        self.end(tgid);
        let id = self.book.new_process();
        self.put(
            tgid,
            id,
            AddressSpace::Own(Space::new(id, self.page_size).into()),
        );
        id
    }

    /// Mappings (address, bytes) that existed before attach and count only as
    /// [`LayerTotals::before_attach_bytes`]; parts already reported by events are left out. `brk`:
    /// start of the heap and the program break. Does nothing for a process that does not run.
    pub fn seed_regions(&mut self, tgid: u32, regions: &[(u64, u64)], brk: Option<(u64, u64)>) {
        if let Some(Process {
            memory: AddressSpace::Own(space),
            ..
        }) = self.processes.get_mut(&tgid)
        {
            space.seed(regions, brk, &mut self.book);
        }
    }

    /// The latest process with this tgid, also when it has ended since the changes were last taken.
    pub fn process_of(&self, tgid: u32) -> Option<ProcessId> {
        self.processes.get(&tgid).map(|process| process.id)
    }

    /// Applies one event. Events must come in order of time. An unknown process starts here: its
    /// fork was lost.
    pub fn apply(&mut self, event: &Event) {
        let Event {
            time_ns,
            tgid,
            tid,
            action,
        } = *event;
        match action {
            Action::Fork { child, shared_vm } => self.fork(tgid, child, shared_vm),
            Action::Exec => self.exec(tgid),
            Action::Exit { .. } => self.end(tgid),
            _ => match self.processes.get_mut(&tgid) {
                Some(Process {
                    memory: AddressSpace::Own(space),
                    ..
                }) => apply_to_space(space, &mut self.book, tid, time_ns, action),
                // Events of a vfork child on borrowed memory carry the owner's tgid.
                Some(Process {
                    memory: AddressSpace::Borrowed(_),
                    ..
                }) => {}
                Some(Process {
                    memory: AddressSpace::Ended,
                    ..
                })
                | None => {
                    self.start_process(tgid);
                    self.apply(event);
                }
            },
        }
    }

    /// Changes since the last call, with their new totals. The cost is proportional to the changes,
    /// plus a walk over the blocks of a caching allocator if they changed.
    pub fn take_changes(&mut self) -> Changes {
        for process in self.processes.values_mut() {
            if let AddressSpace::Own(space) = &mut process.memory {
                space.find_free(&mut self.book);
            }
        }
        self.processes
            .retain(|_, process| !matches!(process.memory, AddressSpace::Ended));
        self.book.take_changes()
    }

    /// Own live blocks (not inherited, not from before attach) by site
    /// and birth, of running processes and, once, of those that ended since the
    /// last call. Scans all live blocks. `now_ns`: CLOCK_MONOTONIC.
    pub fn births(&mut self, now_ns: u64) -> Vec<(SiteKey, Births)> {
        let mut scan = BirthScan::at(now_ns);
        for space in self.spaces() {
            scan.add_space(space, &self.book);
        }
        let mut births = std::mem::take(&mut self.ended_births);
        births.extend(scan.finish(&self.book));
        births.sort_unstable_by_key(|(key, _)| *key);
        births
    }

    /// Calls `f` with each hole in the heap of the process with this tgid, in order of addresses.
    /// Sorts its live blocks.
    pub fn for_each_hole(&self, tgid: u32, f: impl FnMut(Hole)) {
        if let Some(Process {
            memory: AddressSpace::Own(space),
            ..
        }) = self.processes.get(&tgid)
        {
            space.for_each_hole(&self.book, f);
        }
    }

    /// Errors in the events so far.
    pub fn counts(&self) -> &Counts {
        &self.book.counts
    }

    /// Blocks in the tables (everything except mappings) of the running processes, inherited ones
    /// included.
    pub fn outstanding(&self) -> u64 {
        self.spaces().map(|space| space.blocks() as u64).sum()
    }

    /// Bytes of those tables; parts still shared by forked processes count once.
    pub fn table_bytes(&self) -> u64 {
        self.spaces().map(|space| space.table_bytes() as u64).sum()
    }

    /// Whether [`Ledger::fold`] takes this process: its last changes were not taken, and it used no
    /// device.
    pub fn is_foldable(&self, process: ProcessId) -> bool {
        self.book.accounts.contains_key(&process) && !self.book.devices.knows(process)
    }

    /// A group for [`Ledger::fold`].
    pub fn new_group(&mut self) -> ProcessId {
        self.book.new_process()
    }

    /// Adds the figures of a process that has just ended to those of `group`, and forgets it: its
    /// changes are no longer reported. Returns false without any change if it is not
    /// [foldable](Ledger::is_foldable).
    ///
    /// A group's figures are sums over its processes, except peaks: those of a layer are of the
    /// process that had the largest, also in [`SiteTotals::at_peak_bytes`], and a site's own is the
    /// largest of any process.
    pub fn fold(&mut self, process: ProcessId, group: ProcessId) -> bool {
        if !self.is_foldable(process) {
            return false;
        }
        self.ended_births.retain(|(key, _)| key.process != process);
        self.book.fold(process, group);
        true
    }

    fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.processes
            .values()
            .filter_map(|process| match &process.memory {
                AddressSpace::Own(space) => Some(&**space),
                AddressSpace::Borrowed(_) | AddressSpace::Ended => None,
            })
    }

    fn put(&mut self, tgid: u32, id: ProcessId, memory: AddressSpace) {
        self.processes.insert(tgid, Process { id, memory });
    }

    fn fork(&mut self, parent: u32, child: u32, shared_vm: bool) {
        if parent == child {
            return;
        }
        self.end(child);
        let id = self.book.new_process();
        // A vfork child that forks copies the memory that it borrowed.
        let owner = match self.processes.get(&parent) {
            Some(Process {
                memory: AddressSpace::Borrowed(owner),
                ..
            }) => *owner,
            _ => parent,
        };
        let memory = if shared_vm {
            AddressSpace::Borrowed(owner)
        } else if let Some(Process {
            memory: AddressSpace::Own(space),
            ..
        }) = self.processes.get(&owner)
        {
            AddressSpace::Own(space.fork(id, &mut self.book).into())
        } else {
            AddressSpace::Own(Space::new(id, self.page_size).into())
        };
        self.put(child, id, memory);
    }

    fn exec(&mut self, tgid: u32) {
        let page_size = self.page_size;
        match self.processes.get_mut(&tgid) {
            Some(process) if !matches!(process.memory, AddressSpace::Ended) => {
                let space = if let AddressSpace::Own(space) = &mut process.memory {
                    space.lose_outcomes(&mut self.book);
                    self.book.clear_by_exec(process.id);
                    space.executed()
                } else {
                    Space::new(process.id, page_size)
                };
                process.memory = AddressSpace::Own(space.into());
            }
            _ => {
                self.start_process(tgid);
            }
        }
    }

    /// The process with this tgid, if there is one, has ended. Its live memory stays on the books.
    fn end(&mut self, tgid: u32) {
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        match std::mem::replace(&mut process.memory, AddressSpace::Ended) {
            AddressSpace::Own(mut space) => {
                space.lose_outcomes(&mut self.book);
                space.find_free(&mut self.book);
                let mut scan = BirthScan::default();
                scan.add_space(&space, &self.book);
                self.ended_births.extend(scan.finish(&self.book));
                self.book.end_process(process.id, space.lineage().process());
            }
            AddressSpace::Borrowed(_) => self.book.end_process(process.id, Ancestor::default()),
            AddressSpace::Ended => {}
        }
    }
}

fn apply_to_space(space: &mut Space, book: &mut Book, tid: u32, time_ns: u64, action: Action) {
    let born = |stack| Birth { stack, time_ns };
    match action {
        Action::Alloc {
            layer,
            addr,
            size,
            stack,
        } => space.alloc(layer, addr, size, born(stack), book),
        Action::Free {
            layer,
            addr,
            repeated,
        } => {
            if !space.free(layer, addr, time_ns, book) && !repeated {
                book.counts.unknown_free += 1;
                if matches!(layer, Layer::CudaRuntime | Layer::Hip) {
                    space.unknown_freed(book);
                }
            }
        }
        Action::ReallocBegin { layer, addr } => space.realloc_begin(tid, layer, addr, book),
        Action::ReallocEnd {
            layer,
            addr,
            size,
            stack,
        } => space.realloc_end(tid, layer, addr, size, born(stack), book),
        Action::Mmap {
            addr,
            len,
            stack,
            kind,
        } => space.mmap(addr, len, kind, born(stack), book),
        Action::UnmapBegin { addr, len } => space.unmap_begin(tid, addr, len, book),
        Action::UnmapEnd { failed } => space.unmap_end(tid, failed, time_ns, book),
        Action::RemapBegin { addr, len } => space.remap_begin(tid, addr, len, book),
        Action::RemapEnd {
            failed,
            addr,
            len,
            flags,
            stack,
        } => space.remap_end(
            tid,
            (!failed).then_some((addr, len)),
            flags,
            born(stack),
            book,
        ),
        Action::Brk {
            now,
            stack,
            by_allocator,
            ..
        } => space.brk(now, by_allocator, born(stack), book),
        Action::DeviceAlloc {
            layer,
            addr,
            size,
            stack,
            device,
            source,
        } => space.device_alloc(layer, addr, size, device, source, born(stack), book),
        Action::DeviceFailed {
            layer,
            size,
            stack,
            device,
            error,
            report,
        } => {
            let key = FailureKey {
                process: space.process(),
                layer,
                device,
                stack,
                error,
            };
            space.device_failed(key, size, report, time_ns, book);
        }
        Action::CachedBlock {
            layer,
            addr,
            size,
            stack,
            device,
            report,
        } => space.cached_block(layer, addr, size, device, report, born(stack), book),
        Action::DeviceRequest {
            layer,
            addr,
            size,
            stream,
        } => {
            space.device_request(layer, addr, size, stream, book);
        }
        Action::DeviceMap { addr, len, handle } => space.device_map(addr, len, handle, book),
        Action::DeviceUnmap { addr, len } => space.device_unmap(addr, len, time_ns, book),
        Action::DeviceRetain { handle } => space.device_retain(handle),
        Action::DevicePool {
            device,
            bytes,
            figure,
        } => book.devices.pool(space.process(), device, bytes, figure),
        // About processes, not about their memory: applied by the caller.
        Action::Fork { .. } | Action::Exec | Action::Exit { .. } => {}
    }
}
