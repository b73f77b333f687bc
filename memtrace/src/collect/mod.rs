//! The collector: records of the kernel side in, the recording out.
//!
//! It keeps, for each traced process, what its addresses mean and which probes
//! it has; it follows children and new libraries, feeds the ledger, and hands
//! an interval's changes to the store. [`session`] owns the time line: start,
//! waiting, signals, end.

mod addresses;
mod devices;
mod events;
mod exceptions;
mod fingerprint;
mod folding;
mod follow;
mod holding;
mod images;
mod modules;
mod python;
pub mod sampling;
pub mod session;
mod stacks;
mod startup;
pub mod store;
mod tables;
pub mod timings;
pub mod verify;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use memtrace_common::{
    code::KnownFile,
    event::{Kind, Stack},
    loss::{Effect, Reason},
    process::FileKey,
    unwind::{End, Word},
};

use tokio::sync::Notify;

use self::{
    addresses::{Addresses, Location},
    devices::OnDevices,
    fingerprint::Fingerprint,
    folding::Folding,
    holding::Waiting,
    images::Images,
    modules::Modules,
    python::Pythons,
    sampling::Sampling,
    stacks::{Owner, Stacks, Walk},
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
    event::{Action, Event, StackId},
    hold::Holder,
    host::Redactor,
    ledger::Ledger,
    probes::allocator::ExtraAllocator,
    process::{
        self,
        gpus::Gpus,
        maps::{self, MapsError},
        memory::{self, Sampler},
    },
    recording::{Interval, Origin, ProcessRow},
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
    fingerprint: Fingerprint,
    /// Number of its memory control group, once looked at and if it can be seen.
    cgroup: Option<u32>,
    /// Probes on allocation functions.
    links: Vec<Link>,
    /// Probes by which exceptions pass those, so they are taken away later.
    unwinding_links: Vec<Link>,
    /// It has the probes of every allocator known so far, and gets those of new ones.
    probed: bool,
    /// Its threads can be stopped.
    held: bool,
    /// Another tracer wanted it, and was let have it.
    given_up: bool,
    /// How many of the files in which unwinding begins have their probe; `None` where no function
    /// is probed that an exception may leave.
    unwinders: Option<usize>,
    /// It executes a 32-bit program.
    is_32_bit: bool,
}

impl Process {
    fn new(row: ProcessRow) -> Self {
        Self {
            sampler: Sampler::new(row.tgid),
            fingerprint: Fingerprint::default(),
            cgroup: None,
            links: Vec::new(),
            unwinding_links: Vec::new(),
            probed: false,
            held: false,
            given_up: false,
            unwinders: None,
            is_32_bit: false,
            row,
        }
    }
}

/// What a collector is made of.
pub struct Parts {
    pub tracer: Tracer,
    /// `None`: no thread is to be stopped.
    pub holder: Option<Holder>,
    pub store: Store,
    pub allocators: Vec<ExtraAllocator>,
    pub redactor: Arc<Redactor>,
    /// Bytes.
    pub page_size: u64,
    /// Fold short-lived processes that have ended.
    pub fold: bool,
}

/// See the module.
pub struct Collector {
    tracer: Tracer,
    /// `None` where nothing is to be stopped, or once it is gone.
    holder: Option<Holder>,
    /// Held until tables are there.
    waiting: Vec<Waiting>,
    store: Store,
    ledger: Ledger,
    folding: Folding,
    sampling: Sampling,
    redactor: Arc<Redactor>,
    modules: Modules,
    tables: Tables,
    pythons: Pythons,
    stacks: Stacks,
    images: Images,
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
    pub fn new(parts: Parts) -> std::io::Result<Self> {
        let Parts {
            tracer,
            holder,
            store,
            allocators,
            redactor,
            page_size,
            fold,
        } = parts;
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
            holder,
            waiting: Vec::new(),
            store,
            ledger: Ledger::new(page_size),
            folding: Folding::new(fold),
            sampling: Sampling::default(),
            redactor,
            pythons: Pythons::default(),
            stacks: Stacks::default(),
            images: Images::default(),
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
            folded: None,
        };
        self.send(Message::Process(row.clone()))?;
        self.addresses.insert(tgid, Addresses::default());
        self.processes.insert(tgid, Process::new(row));
        self.tracer.watch_code(tgid)?;
        self.seize(tgid);
        if origin == Origin::Attached {
            let files = self
                .inspect(tgid)
                .map_err(|source| CollectError::Target { tgid, source })?;
            if !self.tables.wait(&files, TABLES_AT_ATTACH) {
                tracing::warn!("unwind tables are still being made: stacks end early until then");
            }
            self.announce();
            self.tracer.code.distrust(tgid).map_err(TracerError::from)?;
            // Before its probes: they are to let exceptions pass from the first on.
            self.tracer.trace(tgid)?;
            self.probe(tgid);
            self.look_for_32_bit(tgid);
            // One that has ended meanwhile has nothing to probe.
            if !process::has_ended(tgid) {
                self.warn_without_probes(tgid);
            }
            self.describe(tgid)?;
        } else {
            self.tracer.trace(tgid)?;
        }
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
                self.runs(code.header.tgid, code.image);
                if let Some((id, code)) = self.pythons.learn(&code, &areas) {
                    self.store.send(Message::Code(id, code))?;
                }
                self.stacks.forget_last();
                Ok(())
            }
            Ok((kind, Record::Alloc(alloc))) => {
                self.allocated(kind, alloc);
                Ok(())
            }
            Ok((kind, Record::Free(free))) => {
                self.freed(kind, &free);
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
        let (tgid, image) = (stack.header.tgid, stack.image);
        let owner = Owner::of(frames, tgid, image);
        if owner == Some(Owner::Image(image)) {
            self.runs(tgid, image);
        }
        let addresses = self.addresses.entry(tgid).or_default();
        let (modules, pythons) = (&self.modules, &self.pythons);
        let locate = |index: usize| {
            Some(match Word::decode(frames[index]) {
                Some(Word::File { exec, vaddr }) => modules.locate(exec, vaddr),
                Some(Word::Absolute(addr)) => addresses.locate(tgid, image, addr),
                Some(Word::Python(code)) => {
                    let at = frames.get(index + 1).copied().and_then(Word::decode);
                    return pythons.locate(image, code, at);
                }
                // Said by the one before.
                Some(Word::PythonAt { .. }) => return None,
                None => Location::Unmapped(frames[index]),
            })
        };
        let walk = Walk {
            key: stack.stack,
            image,
            words: frames,
            end,
            comm: stack.comm,
            owner,
        };
        self.stacks.learn(&walk, locate);
        if self.stacks.has_much_news() {
            self.hand_over_stacks()?;
        }
        Ok(())
    }

    /// A process runs this image, as far as something of it has to be forgotten later.
    fn runs(&mut self, tgid: u32, image: u64) {
        // Of one whose birth was lost the end may be, too.
        if self.processes.contains_key(&tgid) {
            let gone = self.images.runs(tgid, image);
            self.forget_image(gone);
        }
    }

    /// A process has ended, or executes another program.
    fn forget_code(&mut self, tgid: u32) {
        self.pythons.forget(tgid);
        self.stacks.forget(Owner::Process(tgid));
        let gone = self.images.left(tgid);
        self.forget_image(gone);
    }

    fn forget_image(&mut self, image: Option<u64>) {
        if let Some(image) = image {
            self.pythons.forget_image(image);
            self.stacks.forget(Owner::Image(image));
        }
    }

    fn hand_over_stacks(&mut self) -> Result<(), Stopped> {
        match self.stacks.take_news() {
            Some(news) => self.store.send(Message::Stacks(news)),
            None => Ok(()),
        }
    }

    /// Hands a message over behind all stacks so far.
    fn send(&mut self, message: Message) -> Result<(), Stopped> {
        self.hand_over_stacks()?;
        self.store.send(message)
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

    /// Notified when an unwind table is done: [`Collector::look_around`] has something to do.
    pub fn table_news(&self) -> Arc<Notify> {
        self.tables.news()
    }

    /// Sees to what comes by other ways than the ring buffer.
    pub fn look_around(&mut self) {
        self.hear_holder();
        self.continue_ready();
        self.refresh_code();
    }

    /// Takes a new snapshot of the code of each process whose code has changed.
    fn refresh_code(&mut self) {
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
        if let Some(holder) = &self.holder {
            holder.wake();
        }
        self.tracer.flush_log();
        let retired = std::mem::take(&mut self.retired);
        if !retired.is_empty() {
            std::thread::spawn(move || bpf::detach(retired));
        }
        let (mut counted, emitted) = self.tracer.counters()?;
        let of_ledger = self.ledger.counts().by_reason();
        for (reason, count) in self.losses.clone().into_iter().chain(of_ledger) {
            *counted.entry(reason).or_default() += count;
        }
        let losses = Reason::ALL.map(|reason| (reason, counted.remove(&reason).unwrap_or(0)));
        self.describe_libraries()?;
        for group in self.folding.take_changed() {
            self.send(Message::Process(group))?;
        }
        let samples = self.sample();
        let interval = Interval {
            time_ns: now_ns,
            changes: self.ledger.take_changes(),
            folded: self.folding.take_folded(),
            memory: samples.memory,
            system: Some(samples.system),
            cgroups: samples.cgroups,
            members: samples.members,
            device_usage: self.device_usage(),
            losses: losses.to_vec(),
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
        self.send(Message::Interval(Box::new(interval)))?;
        Ok(())
    }

    /// Ends tracing and waits for the recording to be written.
    pub fn finish(mut self, now_ns: u64) -> Result<(), crate::recording::Error> {
        // If the store has stopped, its result says why.
        let _ = self.hand_over_stacks();
        let Self {
            tracer,
            holder,
            store,
            processes,
            mut retired,
            ..
        } = self;
        let result = store.finish(now_ns);
        let mut unwinding = Vec::new();
        for process in processes.into_values() {
            retired.extend(process.links);
            unwinding.extend(process.unwinding_links);
        }
        bpf::detach(retired);
        bpf::detach(unwinding);
        drop(tracer);
        // Until the last probe is gone an exception may have to pass it.
        drop(holder);
        result
    }
}
