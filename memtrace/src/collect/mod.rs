//! The collector: records of the kernel side in, the recording out.
//!
//! It keeps, for each traced process, what its addresses mean and which probes
//! it has; it follows children and new libraries, feeds the ledger, and hands
//! an interval's changes to the store. [`session`] owns the time line: start,
//! waiting, signals, end.

mod addresses;
mod devices;
mod follow;
mod modules;
mod python;
pub mod session;
mod stacks;
pub mod store;
mod tables;
pub mod timings;
pub mod verify;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use memtrace_common::{
    code::KnownFile,
    event::{Alloc, Kind, Map, Stack, Unmap, flags},
    loss::{Effect, Reason},
    process::FileKey,
    unwind::{End, Word},
};

use self::{
    addresses::{Addresses, Location},
    devices::OnDevices,
    modules::{ModuleIndex, Modules},
    python::Pythons,
    stacks::Stacks,
    store::{Message, Stopped, Store},
    tables::Tables,
    timings::Timings,
    verify::Verifier,
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
        self, files,
        gpus::Gpus,
        maps::{self, MapsError},
        memory::{self, Sampler},
    },
    recording::{Interval, Origin, ProcessRow, StackRow},
};

/// Attaching waits so long for unwind tables; the largest programs take a few seconds.
const TABLES_AT_ATTACH: Duration = Duration::from_secs(20);

/// A process whose code has not changed, as far as is logged, is looked at so often at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    tables: Tables,
    pythons: Pythons,
    stacks: Stacks,
    /// By tgid; a process that ended is gone from here.
    processes: HashMap<u32, Process>,
    addresses: HashMap<u32, Addresses>,
    /// By tgid, once a process has used a device.
    on_devices: HashMap<u32, OnDevices>,
    gpus: Gpus,
    received: u64,
    /// When the code of a process was looked at by its request, by tgid.
    looked_at: HashMap<u32, Instant>,
    /// What was lost as of the last interval, whatever the effect.
    lost_events: u64,
    /// User-side losses, by reason; the ledger counts its own.
    losses: HashMap<Reason, u64>,
    page_size: u64,
    /// Links of ended processes, dropped off the hot path: closing one waits for RCU.
    retired: Vec<Link>,
    warned: HashSet<PathBuf>,
    /// Files that the kernel side is to know, see [`Collector::announce`].
    unannounced: Vec<(FileKey, KnownFile)>,
    /// Only where walks are to be verified.
    verifier: Option<Verifier>,
    timings: Timings,
}

impl Collector {
    pub fn new(
        tracer: Tracer,
        store: Store,
        allocators: Vec<ExtraAllocator>,
        page_size: u64,
    ) -> std::io::Result<Self> {
        Ok(Self {
            verifier: if tracer.verifies {
                Some(Verifier::start()?)
            } else {
                None
            },
            timings: Timings::default(),
            tables: Tables::start(tracer.rows())?,
            modules: Modules::new(allocators, tracer.heap),
            tracer,
            store,
            ledger: Ledger::new(page_size),
            pythons: Pythons::default(),
            stacks: Stacks::default(),
            processes: HashMap::new(),
            addresses: HashMap::new(),
            on_devices: HashMap::new(),
            gpus: Gpus::default(),
            received: 0,
            looked_at: HashMap::new(),
            lost_events: 0,
            losses: HashMap::new(),
            page_size,
            retired: Vec::new(),
            warned: HashSet::new(),
            unannounced: Vec::new(),
        })
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
        self.tracer.watch_code(tgid)?;
        if origin == Origin::Attached {
            let files = self
                .inspect(tgid)
                .map_err(|source| CollectError::Target { tgid, source })?;
            if !self.tables.wait(&files, TABLES_AT_ATTACH) {
                tracing::warn!("unwind tables are still being made: stacks end early until then");
            }
            self.announce();
            self.tracer.code.distrust(tgid).map_err(TracerError::from)?;
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
            Ok((_, Record::PythonCode(code, areas))) => {
                if let Some((id, code)) = self.pythons.learn(&code, &areas) {
                    self.store.send(Message::Code(id, code))?;
                }
                Ok(())
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
            Ok((_, Record::Verify(sample))) => {
                if let Some(verifier) = &mut self.verifier {
                    verifier.sample(sample);
                }
                Ok(())
            }
            Ok((_, Record::DeviceAlloc(alloc))) => {
                self.device_alloc(alloc);
                Ok(())
            }
            Ok((_, Record::DeviceReport(report))) => {
                self.device_report(report);
                Ok(())
            }
            Ok((kind, Record::DeviceRange(range))) => {
                self.device_range(kind, range);
                Ok(())
            }
            Ok((_, Record::Timing(timing))) => {
                self.timings.add(&timing);
                Ok(())
            }
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
        let Ok(end) = End::try_from(stack.end) else {
            self.lost(Reason::Undecodable);
            return Ok(());
        };
        let tgid = stack.header.tgid;
        self.addresses.entry(tgid).or_default();
        let addresses = &self.addresses[&tgid];
        let located = frames
            .iter()
            .enumerate()
            .filter_map(|(index, &word)| {
                Some(match Word::decode(word) {
                    Some(Word::File { exec, vaddr }) => self.modules.locate(exec, vaddr),
                    Some(Word::Absolute(addr)) => addresses.locate(tgid, addr),
                    Some(Word::Python(code)) => {
                        let at = frames.get(index + 1).copied().and_then(Word::decode);
                        let frame = self.python_frame(stack.image, code, at);
                        if matches!(frame, Location::Python(id, _) if self.pythons.is_shim(id)) {
                            return None;
                        }
                        frame
                    }
                    // Said by the one before.
                    Some(Word::PythonAt { .. }) => return None,
                    None => Location::Unmapped(word),
                })
            })
            .collect();
        if let Some((id, frames)) = self.stacks.learn(stack.stack, located, end) {
            self.store.send(Message::Stack {
                row: StackRow {
                    id,
                    end,
                    thread: None,
                },
                frames,
            })?;
        }
        Ok(())
    }

    fn python_frame(&self, image: u64, code: u64, at: Option<Word>) -> Location {
        let Some(Word::PythonAt {
            instruction,
            fingerprint,
        }) = at
        else {
            return Location::UnknownPython(code);
        };
        match self.pythons.locate(image, code, fingerprint, instruction) {
            Some((id, line)) => Location::Python(id, line),
            None => Location::UnknownPython(code),
        }
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
                    arena: false,
                };
                let arena = self.is_arena(map.header.tgid, len, stack, kind);
                Action::Mmap {
                    addr,
                    len,
                    stack,
                    kind: MapKind { arena, ..kind },
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
                    arena: false,
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

    /// Whether a new mapping is an arena of Python's object allocator: private and anonymous, of
    /// exactly an arena's size, and asked for by the interpreter's own code.
    fn is_arena(&self, tgid: u32, len: u64, stack: StackId, kind: MapKind) -> bool {
        self.pythons.interpreter(tgid).is_some_and(|interpreter| {
            !kind.shared
                && !kind.file
                && len == python::arena_size(interpreter)
                && self.stacks.caller(stack) == Some(ModuleIndex(interpreter.exec))
        })
    }

    /// Keeps up what addresses mean when code is mapped. A file that was not
    /// seen before stops the process, and is looked at then.
    fn code_mapped(&mut self, map: &Map) {
        if map.prot.cast_signed() & libc::PROT_EXEC == 0 {
            return;
        }
        let end = map.addr + map.len.next_multiple_of(self.page_size);
        let key = files::FileKey {
            ino: map.ino,
            dev: map.dev,
        };
        let file = if map.ino == 0 {
            None
        } else {
            match self.modules.find(key) {
                Some(index) => self
                    .modules
                    .get(index)
                    .is_elf()
                    .then_some((index, map.file_offset)),
                None => return,
            }
        };
        self.addresses
            .entry(map.header.tgid)
            .or_default()
            .insert(map.addr, end, file);
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

    /// Takes a new snapshot of the code of each process whose code has changed.
    pub fn refresh_code(&mut self) {
        for tgid in self.tracer.code.requests() {
            if !self.processes.contains_key(&tgid) {
                continue;
            }
            // An address that is nowhere asks again and again; what has changed is looked at at once.
            let now = Instant::now();
            if !self.tracer.code.is_behind(tgid)
                && let Some(last) = self.looked_at.get(&tgid)
                && now.duration_since(*last) < LOOK_AGAIN
            {
                continue;
            }
            self.looked_at.insert(tgid, now);
            if let Err(error) = self.inspect(tgid) {
                tracing::debug!("{error}");
            }
        }
        self.announce();
    }

    /// What came of verifying walks, once everything was read; `None` if none were to be verified.
    pub fn verified(&mut self) -> Option<verify::Counts> {
        let mut counts = self.verifier.take()?.finish();
        match self.tracer.unverified() {
            Ok(count) => counts.over_budget = count,
            Err(error) => tracing::debug!("{error}"),
        }
        Some(counts)
    }

    /// What walks took; empty if that was not to be measured.
    pub fn timings(&mut self) -> Timings {
        std::mem::take(&mut self.timings)
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
            device_usage: self.device_usage(),
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
