//! The collector's state, by owner, and what every part of it needs.

use super::{
    accounts::Accounts,
    census::Censuses,
    control::Control,
    early::Early,
    missing::Missing,
    naming::Naming,
    output::Output,
    processes::Processes,
    sampling::Costs,
    sink::{Message, Sink, Stopped},
    timings::Timings,
    verify,
    walks::Walks,
};
use crate::{
    bpf::{Kernel, TracerError},
    host::Redactor,
    ledger::Ledger,
    pause::Pause,
    probes::allocator::ExtraAllocator,
    process::{self, maps::MapsError},
};
use std::{io, sync::Arc, time::Duration};
use tokio::sync::Notify;

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
pub(super) struct Parts {
    pub(super) kernel: Box<dyn Kernel>,
    /// `None`: no thread is to be stopped.
    pub(super) pauser: Option<Box<dyn Pause>>,
    pub(super) sink: Box<dyn Sink>,
    pub(super) allocators: Vec<ExtraAllocator>,
    pub(super) redactor: Arc<Redactor>,
    /// Bytes.
    pub(super) page_size: u64,
    /// Fold short-lived processes that have ended.
    pub(super) fold: bool,
    /// Summarise Python's imports.
    pub(super) summarise_imports: bool,
    /// Least time between two readings of the costly figures.
    pub(super) least_rest: Duration,
}

/// See the folder's `mod.rs`. Each field owns its part of the state.
pub(super) struct Collector {
    pub(super) control: Control,
    pub(super) naming: Naming,
    pub(super) accounts: Accounts,
    pub(super) processes: Processes,
    pub(super) output: Output,
    /// Unless holders are not to be searched for.
    pub(super) early: Option<Early>,
    pub(super) censuses: Option<Censuses>,
    pub(super) walks: Walks,
}

impl Collector {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let Parts {
            kernel,
            pauser,
            sink,
            allocators,
            redactor,
            page_size,
            fold,
            summarise_imports,
            least_rest,
        } = parts;
        let control = Control::new(kernel, pauser)?;
        let abilities = &control.abilities;
        Ok(Self {
            naming: Naming::new(allocators, abilities.heap, summarise_imports, page_size),
            accounts: Accounts::new(page_size, fold, least_rest),
            processes: Processes::default(),
            output: Output { sink, redactor },
            early: None,
            censuses: None,
            walks: Walks::start(abilities.verifies)?,
            control,
        })
    }

    /// Whether a traced process has not ended.
    pub(super) fn is_running(&self, tgid: u32) -> bool {
        self.processes.is_traced(tgid)
    }

    /// Traced processes that have not ended.
    pub(super) fn running(&self) -> u64 {
        let ended = self.vanished().len();
        (self.processes.which(|_| true).len() - ended) as u64
    }

    /// Whether a traced process may write to memtrace's terminal.
    pub(super) fn shares_terminal(&self) -> bool {
        let tgids = self.processes.which(|_| true).into_iter();
        tgids.into_iter().any(process::terminal::is_shared_with)
    }

    /// Records received so far.
    pub(super) fn received(&self) -> u64 {
        self.accounts.received
    }

    /// Losses of every kind that makes a figure or a stack wrong, as of the last interval.
    pub(super) fn missing(&self) -> Missing {
        self.accounts.missing
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.accounts.ledger
    }

    pub(super) fn kernel(&mut self) -> &mut dyn Kernel {
        &mut *self.control.kernel
    }

    pub(super) fn hand_over_stacks(&mut self) -> Result<(), Stopped> {
        match self.naming.stacks.take_news() {
            Some(news) => self.output.sink.send(Message::Stacks(news)),
            None => Ok(()),
        }
    }

    /// Hands a message over behind all stacks so far.
    pub(super) fn send(&mut self, message: Message) -> Result<(), Stopped> {
        self.hand_over_stacks()?;
        self.output.sink.send(message)
    }

    /// Notified when an unwind table is done: [`Collector::look_around`] has something to do.
    pub(super) fn table_news(&self) -> Arc<Notify> {
        self.control.tables.news()
    }

    /// Result of verifying walks, once everything was read; `None` if none were to be verified.
    pub(super) fn verified(&mut self) -> Option<verify::Counts> {
        let mut counts = self.walks.verifier.take()?.finish();
        match self.control.kernel.sampling() {
            Ok(sampling) => counts.add_sampling(&sampling),
            Err(error) => tracing::debug!("{error}"),
        }
        Some(counts)
    }

    /// Durations of walks; empty if they were not measured.
    pub(super) fn timings(&mut self) -> Timings {
        std::mem::take(&mut self.walks.timings)
    }

    /// Cost of the samples so far.
    pub(super) fn sample_costs(&self) -> Costs {
        self.accounts.sampling.costs
    }
}
