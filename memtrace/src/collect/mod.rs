//! The collector: records of the kernel side in, the recording out.
//!
//! It keeps, for each traced process, the meaning of its addresses and its probes; it follows
//! children and new libraries, feeds the ledger, and hands an interval's changes to the store.
//! [`session`] owns the time line: start, waiting, signals, end.

mod addresses;
mod capture;
mod device_records;
mod early;
mod ending;
mod events;
mod exceptions;
mod fingerprint;
mod folding;
mod follow;
mod growing;
mod held_open;
pub(crate) mod holders;
mod holding;
mod images;
mod imports;
pub(crate) mod interruption;
mod interval;
mod job;
mod kernel;
mod location;
mod look;
pub(crate) mod missing;
mod modules;
pub(crate) mod pace;
pub(crate) mod plan;
mod pressure;
mod priority;
mod processes;
mod python;
mod records;
mod release;
pub(crate) mod sampling;
pub(crate) mod session;
mod signals;
mod sink;
mod stacks;
pub(crate) mod start_after;
mod startup;
mod store;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod timings;
pub(crate) mod verify;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use memtrace_common::loss::Reason;
use tokio::sync::Notify;

use self::{
    early::Early,
    folding::Folding,
    follow::Unannounced,
    holding::Waiting,
    imports::Imports,
    kernel::{Abilities, Kernel},
    missing::Missing,
    modules::Modules,
    processes::{Process, Processes},
    python::Pythons,
    sampling::Sampling,
    sink::{Message, Sink, Stopped},
    stacks::StackInterner,
    tables::Tables,
    timings::Timings,
    verify::Verifier,
};
use crate::{
    bpf::{Removal, TracerError},
    event::{Action, Event},
    hold::Hold,
    host::Redactor,
    ledger::Ledger,
    probes::allocator::ExtraAllocator,
    process::{
        self,
        gpus::Gpus,
        maps::{self, MapsError},
        memory,
    },
    recording::{Origin, ProcessRow, Untraced},
};

/// How long attaching waits for unwind tables; the largest programs take a few seconds.
const TABLES_AT_ATTACH: Duration = Duration::from_secs(20);

/// The reason why recording cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error(transparent)]
    Tracer(#[from] TracerError),
    #[error(transparent)]
    Store(#[from] Stopped),
    #[error("process {tgid} cannot be traced: {source}")]
    Target { tgid: u32, source: MapsError },
    #[error("process {tgid} cannot be inspected: {source}")]
    Unreadable { tgid: u32, source: io::Error },
    #[error("process {0} ended before it could be traced")]
    Ended(u32),
}

/// The parts of a collector.
struct Parts {
    kernel: Box<dyn Kernel>,
    /// `None`: no thread is to be stopped.
    holder: Option<Box<dyn Hold>>,
    sink: Box<dyn Sink>,
    allocators: Vec<ExtraAllocator>,
    redactor: Arc<Redactor>,
    /// Bytes.
    page_size: u64,
    /// Fold short-lived processes that have ended.
    fold: bool,
    /// Summarise Python's imports.
    summarise_imports: bool,
    /// Least time between two readings of the costly figures.
    least_rest: Duration,
}

/// See the module.
struct Collector {
    kernel: Box<dyn Kernel>,
    abilities: Abilities,
    /// `None` if nothing is to be stopped, or once it is gone.
    holder: Option<Box<dyn Hold>>,
    /// Held until tables are there.
    waiting: Vec<Waiting>,
    sink: Box<dyn Sink>,
    ledger: Ledger,
    folding: Folding,
    sampling: Sampling,
    redactor: Arc<Redactor>,
    modules: Modules,
    tables: Tables,
    pythons: Pythons,
    /// Unless imports are to be recorded in full.
    imports: Option<Imports>,
    stacks: StackInterner,
    processes: Processes,
    gpus: Gpus,
    received: u64,
    /// State at the last interval.
    missing: Missing,
    /// User-side losses, by reason; the ledger counts its own.
    losses: HashMap<Reason, u64>,
    page_size: u64,
    /// Removes the probes of ended processes.
    removal: Removal,
    warned: HashSet<PathBuf>,
    unannounced: Vec<Unannounced>,
    /// Processes of the job that are not traced.
    untraced: Vec<Untraced>,
    /// Only if walks are to be verified.
    verifier: Option<Verifier>,
    /// Unless holders are not to be searched for.
    early: Option<Early>,
    timings: Timings,
}

impl Collector {
    fn new(parts: Parts) -> std::io::Result<Self> {
        let Parts {
            kernel,
            holder,
            sink,
            allocators,
            redactor,
            page_size,
            fold,
            summarise_imports,
            least_rest,
        } = parts;
        let abilities = kernel.abilities();
        Ok(Self {
            verifier: if abilities.verifies {
                Some(Verifier::start()?)
            } else {
                None
            },
            early: None,
            timings: Timings::default(),
            tables: Tables::start(kernel.tables())?,
            modules: Modules::new(allocators, abilities.heap),
            kernel,
            abilities,
            holder,
            waiting: Vec::new(),
            sink,
            ledger: Ledger::new(page_size),
            folding: Folding::new(fold),
            sampling: Sampling::new(least_rest),
            redactor,
            pythons: Pythons::default(),
            imports: summarise_imports.then(Imports::default),
            stacks: StackInterner::default(),
            processes: Processes::default(),
            gpus: Gpus::new(least_rest),
            received: 0,
            missing: Missing::default(),
            losses: HashMap::new(),
            page_size,
            removal: Removal::default(),
            warned: HashSet::new(),
            unannounced: Vec::new(),
            untraced: Vec::new(),
        })
    }

    /// Starts tracing a process: `Attached`, a running one; `Launched`, one that waits before its
    /// exec. `patience` limits the wait for unwind tables of a running one.
    ///
    /// # Errors
    /// The process is gone, or the kernel side refuses. The recording has nothing of the process then.
    fn begin(
        &mut self,
        tgid: u32,
        origin: Origin,
        now_ns: u64,
        patience: Duration,
    ) -> Result<(), CollectError> {
        let identity = match memory::identity(tgid) {
            Ok(identity) => Some(identity),
            // It is our own child, and reports itself at its exec.
            Err(_) if origin == Origin::Launched => None,
            Err(source) => return Err(CollectError::Unreadable { tgid, source }),
        };
        let row = ProcessRow {
            id: self.ledger.start_process(tgid),
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
        let process = Process::new(row.clone(), self.sampling.least_rest);
        self.processes.trace(tgid, process);
        let image = match self.start_tracing(tgid, origin, patience) {
            Ok(image) => image,
            Err(error) => {
                self.abandon(tgid, now_ns);
                return Err(error);
            }
        };
        self.send(Message::Process(row))?;
        // Its children run the image too, and may be the only ones to send new stacks.
        self.runs(tgid, image);
        if origin == Origin::Attached {
            self.probe(tgid);
            self.look_for_32_bit(tgid);
            // One that has ended meanwhile has nothing to probe.
            if !process::has_ended(tgid) {
                self.warn_without_probes(tgid);
            }
            self.describe(tgid)?;
        }
        Ok(())
    }

    /// Makes the kernel side trace a process, whose probes are set after that: they let exceptions
    /// pass from the first one on. Returns the image that the process runs.
    fn start_tracing(
        &mut self,
        tgid: u32,
        origin: Origin,
        patience: Duration,
    ) -> Result<u64, CollectError> {
        self.kernel.watch_code(tgid)?;
        self.seize(tgid);
        if origin == Origin::Attached {
            let files = self
                .inspect(tgid)
                .map_err(|source| CollectError::Target { tgid, source })?;
            if !self.tables.wait(&files, patience) {
                tracing::warn!(
                    "unwind tables are still being compiled; stacks are truncated until they are ready"
                );
            }
            self.announce();
            self.kernel.distrust_code(tgid)?;
            // A zombie can be inspected, too.
            if process::has_ended(tgid) {
                return Err(CollectError::Ended(tgid));
            }
        }
        Ok(self.kernel.trace(tgid)?)
    }

    /// Forgets a process that could not be traced.
    fn abandon(&mut self, tgid: u32, now_ns: u64) {
        self.ledger.apply(&Event {
            time_ns: now_ns,
            tgid,
            tid: tgid,
            action: Action::Exit { status: 0 },
        });
        self.forget(tgid);
    }

    /// Seeds the ledger with earlier mappings. To be called when events are being recorded but none
    /// was handled yet: a mapping known to both is then ours.
    fn seed(&mut self, tgid: u32) {
        // Again: new mappings are reported from now on, but those made since the first look were
        // not.
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
    fn is_running(&self, tgid: u32) -> bool {
        self.processes.is_traced(tgid)
    }

    /// Traced processes that have not ended.
    fn running(&self) -> u64 {
        let ended = self.vanished().len();
        (self.processes.which(|_| true).len() - ended) as u64
    }

    /// Whether a traced process may write to memtrace's terminal.
    fn shares_terminal(&self) -> bool {
        let tgids = self.processes.which(|_| true).into_iter();
        tgids.into_iter().any(process::terminal::is_shared_with)
    }

    /// Records received so far.
    fn received(&self) -> u64 {
        self.received
    }

    /// Losses of every kind that makes a figure or a stack wrong, as of the last interval.
    fn missing(&self) -> Missing {
        self.missing
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn kernel(&mut self) -> &mut dyn Kernel {
        &mut *self.kernel
    }

    fn hand_over_stacks(&mut self) -> Result<(), Stopped> {
        match self.stacks.take_news() {
            Some(news) => self.sink.send(Message::Stacks(news)),
            None => Ok(()),
        }
    }

    /// Hands a message over behind all stacks so far.
    fn send(&mut self, message: Message) -> Result<(), Stopped> {
        self.hand_over_stacks()?;
        self.sink.send(message)
    }

    /// Notified when an unwind table is done: [`Collector::look_around`] has something to do.
    fn table_news(&self) -> Arc<Notify> {
        self.tables.news()
    }

    /// Handles everything that does not come through the ring buffer.
    fn look_around(&mut self) {
        self.hear_holder();
        self.continue_ready();
        self.refresh_code();
    }

    /// Result of verifying walks, once everything was read; `None` if none were to be verified.
    fn verified(&mut self) -> Option<verify::Counts> {
        let mut counts = self.verifier.take()?.finish();
        match self.kernel.sampling() {
            Ok(sampling) => counts.add_sampling(&sampling),
            Err(error) => tracing::debug!("{error}"),
        }
        Some(counts)
    }

    /// Durations of walks; empty if they were not measured.
    fn timings(&mut self) -> Timings {
        std::mem::take(&mut self.timings)
    }
}
