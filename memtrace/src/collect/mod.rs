//! The collector: records of the kernel side in, the recording out.
//!
//! It keeps, for each traced process, what its addresses mean and which probes
//! it has; it follows children and new libraries, feeds the ledger, and hands
//! an interval's changes to the store. [`session`] owns the time line: start,
//! waiting, signals, end.

mod addresses;
mod modules;
pub mod session;
mod stacks;
pub mod store;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use memtrace_common::{
    event::{Alloc, Kind, Lifecycle, Map, Stack, Stop, Unmap, flags},
    loss::{Effect, Reason},
    process::FileKey,
};

use self::{
    addresses::Addresses,
    modules::{ModuleIndex, Modules},
    stacks::Stacks,
    store::{Message, Stopped, Store},
};
use crate::{
    bpf::{
        self, Link, Tracer, TracerError,
        decode::{self, Record},
    },
    event::{Action, Event, Layer, MapKind, StackId},
    ledger::Ledger,
    probes::allocator::ExtraAllocator,
    process::{
        self,
        maps::{self, MapsError},
        memory::{self, Identity, Sampler},
    },
    recording::{Interval, Origin, ProcessRow, StackRow},
};

/// Why recording cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error(transparent)]
    Tracer(#[from] TracerError),
    #[error(transparent)]
    Store(#[from] Stopped),
    #[error("process {tgid} cannot be traced: {source}")]
    Target { tgid: u32, source: MapsError },
}

/// A traced process.
struct Process {
    row: ProcessRow,
    sampler: Sampler,
    /// Probes on allocation functions.
    links: Vec<Link>,
    /// It has the probes of every allocator known so far, and gets those of new ones.
    probed: bool,
}

/// See the module.
pub struct Collector {
    tracer: Tracer,
    store: Store,
    ledger: Ledger,
    modules: Modules,
    stacks: Stacks,
    /// By tgid; a process that ended is gone from here.
    processes: HashMap<u32, Process>,
    addresses: HashMap<u32, Addresses>,
    received: u64,
    /// What was lost as of the last interval, whatever the effect.
    lost_events: u64,
    /// User-side losses, by reason; the ledger counts its own.
    losses: HashMap<Reason, u64>,
    page_size: u64,
    /// Links of ended processes, dropped off the hot path: closing one waits for RCU.
    retired: Vec<Link>,
    warned: HashSet<PathBuf>,
}

impl Collector {
    pub fn new(
        tracer: Tracer,
        store: Store,
        allocators: Vec<ExtraAllocator>,
        page_size: u64,
    ) -> Self {
        Self {
            tracer,
            store,
            ledger: Ledger::new(page_size),
            modules: Modules::new(allocators),
            stacks: Stacks::default(),
            processes: HashMap::new(),
            addresses: HashMap::new(),
            received: 0,
            lost_events: 0,
            losses: HashMap::new(),
            page_size,
            retired: Vec::new(),
            warned: HashSet::new(),
        }
    }

    /// Starts tracing a process: `Attached`, a running one; `Launched`, one that
    /// waits before its exec.
    ///
    /// # Errors
    /// The process is gone, or the kernel side refuses.
    pub fn begin(&mut self, tgid: u32, origin: Origin, now_ns: u64) -> Result<(), CollectError> {
        let identity = memory::identity(tgid).ok();
        let process = self.ledger.start_process(tgid);
        let row = ProcessRow {
            id: process,
            tgid,
            ppid: identity.as_ref().map_or(0, |identity| identity.ppid),
            origin,
            comm: identity
                .as_ref()
                .map_or_else(String::new, |identity| identity.comm.clone()),
            cmdline: identity
                .as_ref()
                .map_or_else(Vec::new, |identity| identity.cmdline.clone()),
            started_ns: now_ns,
            ended_ns: None,
            exit_status: None,
            rss_at_start: (origin == Origin::Attached)
                .then(|| identity.map(|identity| identity.rss_bytes))
                .flatten(),
        };
        self.store.send(Message::Process(row.clone()))?;
        self.addresses.insert(tgid, Addresses::default());
        self.processes.insert(
            tgid,
            Process {
                row,
                sampler: Sampler::new(tgid),
                links: Vec::new(),
                probed: false,
            },
        );
        if origin == Origin::Attached {
            self.inspect(tgid)
                .map_err(|source| CollectError::Target { tgid, source })?;
            self.probe(tgid);
            self.warn_without_probes(tgid);
        }
        self.tracer.trace(tgid)?;
        Ok(())
    }

    /// Tells the ledger what was mapped before. To be called when events are
    /// being recorded but none was handled yet: what both have is then ours.
    pub fn seed(&mut self, tgid: u32) {
        // Again: from now on what is newly mapped is told, but what came since the
        // first look was not.
        if let Err(error) = self.inspect(tgid) {
            tracing::debug!("{error}");
        }
        let Ok(mappings) = maps::read(tgid) else {
            return;
        };
        let heap = maps::heap(&mappings);
        let regions: Vec<(u64, u64)> = mappings
            .iter()
            .map(|mapping| (mapping.start, mapping.len()))
            .collect();
        self.ledger
            .seed_regions(tgid, &regions, heap.map(|heap| (heap.start, heap.end)));
    }

    /// Whether a traced process has not ended.
    pub fn is_running(&self, tgid: u32) -> bool {
        self.processes.contains_key(&tgid)
    }

    /// Records received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Losses of every kind that makes a figure or a stack wrong, as of the last interval.
    pub fn lost_events(&self) -> u64 {
        self.lost_events
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn tracer(&mut self) -> &mut Tracer {
        &mut self.tracer
    }

    /// Handles one record of the ring buffer.
    ///
    /// # Errors
    /// The store has failed; anything else is counted.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(), CollectError> {
        self.received += 1;
        match decode::decode(bytes) {
            Ok((kind, Record::Stack(stack, frames))) => {
                debug_assert_eq!(kind, Kind::Stack);
                self.new_stack(stack, &frames)
            }
            Ok((kind, Record::Alloc(alloc))) => {
                self.allocated(kind, alloc);
                Ok(())
            }
            Ok((kind, Record::Free(free))) => {
                let Ok(layer) = Layer::try_from(free.header.layer) else {
                    self.lost(Reason::Undecodable);
                    return Ok(());
                };
                let addr = free.addr;
                let action = if kind == Kind::Free {
                    Action::Free {
                        layer,
                        addr,
                        repeated: free.header.flags & flags::REPEATED != 0,
                    }
                } else {
                    Action::ReallocBegin { layer, addr }
                };
                self.apply(&free.header, action);
                Ok(())
            }
            Ok((kind, Record::Unmap(unmap))) => {
                self.unmapped(kind, unmap);
                Ok(())
            }
            Ok((kind, Record::Map(map))) => {
                self.mapped(kind, map);
                Ok(())
            }
            Ok((kind, Record::Lifecycle(life))) => self.lifecycle(kind, life),
            Err(error) => {
                tracing::debug!("{error}");
                self.lost(Reason::Undecodable);
                Ok(())
            }
        }
    }

    fn lost(&mut self, reason: Reason) {
        *self.losses.entry(reason).or_default() += 1;
    }

    fn apply(&mut self, header: &memtrace_common::event::Header, action: Action) {
        self.ledger.apply(&Event {
            time_ns: header.time_ns,
            tgid: header.tgid,
            tid: header.tid,
            action,
        });
    }

    fn stack_id(&mut self, key: u64) -> StackId {
        match self.stacks.find(key) {
            Some(id) => id,
            None => {
                // Key 0 was counted by the kernel side.
                if key != 0 {
                    self.lost(Reason::UnknownStack);
                }
                StackId::UNKNOWN
            }
        }
    }

    fn new_stack(&mut self, stack: Stack, frames: &[u64]) -> Result<(), CollectError> {
        let addresses = self.addresses.entry(stack.header.tgid).or_default();
        let located = frames.iter().map(|&addr| addresses.locate(addr)).collect();
        if let Some((id, frames)) = self.stacks.learn(stack.stack, located) {
            let truncated = stack.header.flags & flags::TRUNCATED != 0;
            self.store.send(Message::Stack {
                row: StackRow { id, truncated },
                frames,
            })?;
        }
        Ok(())
    }

    fn allocated(&mut self, kind: Kind, alloc: Alloc) {
        let Ok(layer) = Layer::try_from(alloc.header.layer) else {
            self.lost(Reason::Undecodable);
            return;
        };
        let Alloc { addr, size, .. } = alloc;
        // A realloc that gave nothing has no stack, and needs none.
        let stack = if addr == 0 {
            StackId::UNKNOWN
        } else {
            self.stack_id(alloc.stack)
        };
        let action = if kind == Kind::Alloc {
            Action::Alloc {
                layer,
                addr,
                size,
                stack,
            }
        } else {
            Action::ReallocEnd {
                layer,
                addr,
                size,
                stack,
            }
        };
        self.apply(&alloc.header, action);
    }

    fn unmapped(&mut self, kind: Kind, unmap: Unmap) {
        let Unmap { addr, len, .. } = unmap;
        let action = match kind {
            Kind::UnmapBegin => Action::UnmapBegin { addr, len },
            Kind::RemapBegin => Action::RemapBegin { addr, len },
            _ => Action::UnmapEnd {
                failed: unmap.header.flags & flags::FAILED != 0,
            },
        };
        self.apply(&unmap.header, action);
    }

    fn mapped(&mut self, kind: Kind, map: Map) {
        let failed = map.header.flags & flags::FAILED != 0;
        let by_allocator = map.header.flags & flags::BY_ALLOCATOR != 0;
        let stack = if failed {
            StackId::UNKNOWN
        } else {
            self.stack_id(map.stack)
        };
        let Map { addr, mut len, .. } = map;
        let action = match kind {
            Kind::Mmap => {
                self.code_mapped(&map);
                let map_flags = map.map_flags.cast_signed();
                let kind = MapKind {
                    by_allocator,
                    // MAP_SHARED or MAP_SHARED_VALIDATE, which shares its bit.
                    shared: map_flags & libc::MAP_SHARED != 0,
                    file: map_flags & libc::MAP_ANONYMOUS == 0,
                };
                Action::Mmap {
                    addr,
                    len,
                    stack,
                    kind,
                }
            }
            Kind::Shmat => {
                let mappings = maps::read(map.header.tgid).unwrap_or_default();
                match maps::find(&mappings, addr) {
                    Some(mapping) if mapping.start == addr => len = mapping.len(),
                    _ => {
                        self.lost(Reason::SegmentLengthUnknown);
                        return;
                    }
                }
                let kind = MapKind {
                    by_allocator,
                    shared: true,
                    file: true,
                };
                Action::Mmap {
                    addr,
                    len,
                    stack,
                    kind,
                }
            }
            Kind::Brk => Action::Brk {
                requested: len,
                now: addr,
                stack,
                by_allocator,
            },
            _ => Action::RemapEnd {
                failed,
                addr,
                len,
                flags: map.map_flags,
                stack,
            },
        };
        self.apply(&map.header, action);
    }

    /// Keeps up what addresses mean when code is mapped. A file that was not
    /// seen before stops the process, and is looked at then.
    fn code_mapped(&mut self, map: &Map) {
        if map.prot.cast_signed() & libc::PROT_EXEC == 0 {
            return;
        }
        let end = map.addr + map.len.next_multiple_of(self.page_size);
        let key = FileKey {
            ino: map.ino,
            dev: map.dev,
            pad: 0,
        };
        let file = if map.ino == 0 {
            None
        } else {
            match self.modules.find(module_key(key)) {
                Some(index) => Some((index, map.file_offset)),
                None => return,
            }
        };
        self.addresses
            .entry(map.header.tgid)
            .or_default()
            .insert(map.addr, end, file);
    }

    fn lifecycle(&mut self, kind: Kind, life: Lifecycle) -> Result<(), CollectError> {
        let tgid = life.header.tgid;
        match kind {
            Kind::Fork => self.forked(life),
            Kind::Exec => {
                self.apply(&life.header, Action::Exec);
                self.addresses.entry(tgid).or_default().clear();
                if life.other != tgid
                    && let Some(process) = self.processes.get_mut(&tgid)
                {
                    // Not the leader called exec: the probes were scoped to the old
                    // leader. They go before the new ones come, while the process waits.
                    process.probed = false;
                    bpf::detach(std::mem::take(&mut process.links));
                }
                self.adopt(tgid, 0, life.header.time_ns)
            }
            Kind::Exit => {
                let status = u32::try_from(life.value).unwrap_or(u32::MAX);
                self.apply(&life.header, Action::Exit { status });
                self.ended(tgid, Some(status), life.header.time_ns)
            }
            _ => self.stopped(life),
        }
    }

    /// Says when no allocation function could be probed: an empty heap is then no finding.
    fn warn_without_probes(&self, tgid: u32) {
        if let Some(Process { row, links, .. }) = self.processes.get(&tgid)
            && links.is_empty()
        {
            tracing::warn!(
                "process {tgid} (`{}`) has no symbols of allocation functions: only its address \
                 space (vm) is recorded; name them with `--allocator PATH[:PREFIX]`",
                row.comm
            );
        }
    }

    fn forked(&mut self, life: Lifecycle) -> Result<(), CollectError> {
        let (child, parent) = (life.header.tgid, life.other);
        let shared_vm = life.header.flags & flags::SHARED_VM != 0;
        self.ledger.apply(&Event {
            time_ns: life.header.time_ns,
            tgid: parent,
            tid: life.header.tid,
            action: Action::Fork { child, shared_vm },
        });
        if shared_vm {
            // It runs in the parent's memory until its exec makes it a process of its own.
            return Ok(());
        }
        let addresses = self.addresses.get(&parent).cloned().unwrap_or_default();
        self.addresses.insert(child, addresses);
        self.adopt(child, parent, life.header.time_ns)
    }

    /// Brings a child, or a process after exec, up to date with what it is now.
    fn adopt(&mut self, tgid: u32, parent: u32, now_ns: u64) -> Result<(), CollectError> {
        let Some(id) = self.ledger.process_of(tgid) else {
            return Ok(());
        };
        let identity = memory::identity(tgid).ok();
        let known = self
            .processes
            .get(&tgid)
            .filter(|process| process.row.id == id);
        let mut row = match known {
            Some(process) => process.row.clone(),
            None => {
                // A child that is gone already was, until its exec, what its parent is.
                let like = self.processes.get(&parent).map(|process| &process.row);
                ProcessRow {
                    id,
                    tgid,
                    ppid: parent,
                    origin: Origin::Child,
                    comm: like.map_or_else(String::new, |row| row.comm.clone()),
                    cmdline: like.map_or_else(Vec::new, |row| row.cmdline.clone()),
                    started_ns: now_ns,
                    ended_ns: None,
                    exit_status: None,
                    rss_at_start: None,
                }
            }
        };
        if let Some(Identity {
            comm,
            cmdline,
            ppid,
            ..
        }) = identity
        {
            row.comm = comm;
            row.cmdline = cmdline;
            row.ppid = ppid;
        }
        self.store.send(Message::Process(row.clone()))?;
        match self
            .processes
            .get_mut(&tgid)
            .filter(|process| process.row.id == id)
        {
            Some(process) => process.row = row,
            None => {
                let process = Process {
                    row,
                    sampler: Sampler::new(tgid),
                    links: Vec::new(),
                    probed: false,
                };
                if let Some(old) = self.processes.insert(tgid, process) {
                    self.retired.extend(old.links);
                }
            }
        }
        Ok(())
    }

    fn ended(&mut self, tgid: u32, status: Option<u32>, now_ns: u64) -> Result<(), CollectError> {
        self.addresses.remove(&tgid);
        if self
            .processes
            .get(&tgid)
            .is_some_and(|process| process.row.origin == Origin::Launched)
        {
            self.warn_without_probes(tgid);
        }
        if let Some(mut process) = self.processes.remove(&tgid) {
            process.row.ended_ns = Some(now_ns);
            process.row.exit_status = status;
            self.retired.append(&mut process.links);
            self.store.send(Message::Process(process.row))?;
        }
        Ok(())
    }

    /// A process waits for its probes (or, with `--no-stop`, runs on without).
    fn stopped(&mut self, life: Lifecycle) -> Result<(), CollectError> {
        let tgid = life.header.tgid;
        if Stop::try_from(life.value) != Ok(Stop::Fork) {
            // One that ended meanwhile has nothing left to look at.
            if let Err(error) = self.inspect(tgid) {
                tracing::debug!("{error}");
            }
        }
        self.probe(tgid);
        if Stop::try_from(life.value) == Ok(Stop::Exec) {
            self.adopt(tgid, 0, life.header.time_ns)?;
        }
        if life.header.flags & flags::FAILED == 0 {
            self.tracer.continue_process(tgid);
        }
        Ok(())
    }

    /// Looks at what a process maps; an allocator that was not known before is
    /// probed in every process that has its probes: whichever maps it later
    /// needs no stop then.
    fn inspect(&mut self, tgid: u32) -> Result<(), MapsError> {
        let mappings = maps::read(tgid)?;
        let mut found = Vec::new();
        for mapping in mappings
            .iter()
            .filter(|mapping| mapping.permissions.execute)
        {
            let file = match self.modules.open(tgid, mapping) {
                Ok((index, new)) => {
                    if new {
                        self.introduce(index);
                        if !self.modules.get(index).probes.is_empty() {
                            found.push(index);
                        }
                    }
                    Some((index, mapping.file_offset))
                }
                Err(error) => {
                    if let Some(path) = mapping.path.clone().filter(|_| mapping.ino != 0)
                        && self.warned.insert(path.clone())
                    {
                        tracing::warn!("cannot open `{}`: {error}", path.display());
                        self.lost(Reason::AttachFailed);
                    }
                    None
                }
            };
            self.addresses
                .entry(tgid)
                .or_default()
                .insert(mapping.start, mapping.end, file);
        }
        for index in found {
            let probed: Vec<u32> = self
                .processes
                .iter()
                .filter(|(_, process)| process.probed)
                .map(|(&tgid, _)| tgid)
                .collect();
            for tgid in probed {
                self.probe_module(tgid, index);
            }
        }
        Ok(())
    }

    fn introduce(&mut self, index: ModuleIndex) {
        let module = self.modules.get(index);
        let key = FileKey {
            ino: module.file.key.ino,
            dev: module.file.key.dev,
            pad: 0,
        };
        if let Err(error) = self.tracer.file_known(key) {
            tracing::debug!("{error}");
        }
        match self.modules.reopen(index) {
            Ok(file) => {
                let module = self.modules.get(index);
                let message = Message::Module {
                    index,
                    path: module.file.path.display().to_string(),
                    file,
                    build_id: module.build_id.clone(),
                };
                // A store that has failed shows at the next interval.
                let _ = self.store.send(message);
            }
            Err(error) => tracing::warn!("frames of a module will have no names: {error}"),
        }
    }

    /// Attaches every known allocator's probes, unless the process has them.
    fn probe(&mut self, tgid: u32) {
        match self.processes.get_mut(&tgid) {
            Some(process) if !process.probed => process.probed = true,
            _ => return,
        }
        for index in self.modules.allocators() {
            self.probe_module(tgid, index);
        }
    }

    fn probe_module(&mut self, tgid: u32, index: ModuleIndex) {
        let module = self.modules.get(index);
        match self.tracer.attach(tgid, &module.file.file, &module.probes) {
            Ok(links) => {
                if let Some(process) = self.processes.get_mut(&tgid) {
                    process.links.extend(links);
                }
            }
            // One that has ended meanwhile needs no probes.
            Err(error) if memory::identity(tgid).is_ok() => {
                tracing::warn!("`{}`: {error}", module.file.path.display());
                self.lost(Reason::AttachFailed);
            }
            Err(error) => tracing::debug!("process {tgid} ended while it was probed: {error}"),
        }
    }

    /// Processes whose end was not told though they are gone. To be asked before
    /// the ring buffer is read: an end that is still in it comes first.
    pub fn vanished(&self) -> Vec<u32> {
        self.processes
            .keys()
            .copied()
            .filter(|&tgid| process::has_ended(tgid))
            .collect()
    }

    /// Ends those of `vanished` whose end did not come with the records read since.
    ///
    /// # Errors
    /// The store has failed.
    pub fn bury(&mut self, vanished: &[u32], now_ns: u64) -> Result<(), CollectError> {
        for &tgid in vanished {
            if self.processes.contains_key(&tgid) {
                let action = Action::Exit { status: 0 };
                self.ledger.apply(&Event {
                    time_ns: now_ns,
                    tgid,
                    tid: tgid,
                    action,
                });
                self.ended(tgid, None, now_ns)?;
            }
        }
        Ok(())
    }

    /// Hands the changes since the last interval to the store. `births` adds the
    /// ages of what is outstanding, which costs a scan.
    ///
    /// # Errors
    /// The store or the kernel side has failed.
    pub fn interval(&mut self, now_ns: u64, births: bool) -> Result<(), CollectError> {
        self.tracer.flush_log();
        let retired = std::mem::take(&mut self.retired);
        if !retired.is_empty() {
            std::thread::spawn(move || bpf::detach(retired));
        }
        let (mut losses, emitted) = self.tracer.counters()?;
        for (reason, count) in &mut losses {
            *count += self.losses.get(reason).copied().unwrap_or(0);
        }
        for (reason, count) in self.ledger.counts().by_reason() {
            losses[reason as usize].1 += count;
        }
        let mut samples = Vec::new();
        for process in self.processes.values_mut() {
            if let Ok(sample) = process.sampler.sample() {
                samples.push((process.row.id, sample));
            }
        }
        let interval = Interval {
            time_ns: now_ns,
            changes: self.ledger.take_changes(),
            memory: samples,
            losses: losses.clone(),
            emitted,
            received: self.received,
            births: if births {
                self.ledger.births()
            } else {
                Vec::new()
            },
        };
        self.lost_events = losses
            .iter()
            .filter(|(reason, _)| reason.effect() != Effect::Filtered)
            .map(|(_, count)| count)
            .sum();
        self.store.send(Message::Interval(Box::new(interval)))?;
        Ok(())
    }

    /// Ends tracing and waits for the recording to be written.
    pub fn finish(self, now_ns: u64) -> Result<(), crate::recording::Error> {
        let Self {
            tracer,
            store,
            processes,
            mut retired,
            ..
        } = self;
        let result = store.finish(now_ns);
        retired.extend(processes.into_values().flat_map(|process| process.links));
        bpf::detach(retired);
        drop(tracer);
        result
    }
}

fn module_key(key: FileKey) -> crate::process::files::FileKey {
    crate::process::files::FileKey {
        dev: key.dev,
        ino: key.ino,
    }
}
