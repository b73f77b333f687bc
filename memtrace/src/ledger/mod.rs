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
mod figures;
mod fold;
mod holes;
mod keys;
mod lifetimes;
mod lineage;
mod physical;
mod regions;
mod space;
mod survivors;
mod table;
mod totals;

#[cfg(test)]
mod tests;

use crate::event::{Action, Event, Layer};
use crate::hash::FastMap;
use births::BirthScan;
pub(crate) use births::Births;
#[cfg(test)]
pub(crate) use device_totals::StreamKey;
pub(crate) use device_totals::{CacheTotals, DeviceTotals, Failure, FailureKey, StreamTotals};
pub(crate) use figures::{Changes, Counts, LayerTotals, SiteTotals, Totals};
pub(crate) use holes::{Hole, Holes};
pub use keys::ProcessId;
pub(crate) use keys::SiteKey;
pub(crate) use lifetimes::LIFETIME_BUCKETS;
use lineage::Ancestor;
use space::{Birth, Space};
pub(crate) use survivors::{Extent, HeapCopy, Survivors};
use totals::Book;

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
            by_allocator,
        } => space.remap_end(
            tid,
            (!failed).then_some((addr, len)),
            flags,
            by_allocator,
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
