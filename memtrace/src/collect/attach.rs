//! The beginning of tracing a process: one that runs, or one that waits before its exec.

use super::{
    collector::{CollectError, Collector},
    process::Process,
    sink::Message,
};
use crate::{
    event::{Action, Event},
    process::{self, maps, memory},
    recording::{Origin, ProcessRow},
};
use std::time::Duration;

impl Collector {
    /// Starts tracing a process: `Attached`, a running one; `Launched`, one that waits before its
    /// exec. `patience` limits the wait for unwind tables of a running one.
    ///
    /// # Errors
    /// The process is gone, or the kernel side refuses. The recording has nothing of the process then.
    pub(super) fn begin(
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
            id: self.accounts.ledger.start_process(tgid),
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
        let process = Process::new(row.clone(), self.accounts.sampling.least_rest);
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
        self.control.kernel.watch_code(tgid)?;
        self.seize(tgid);
        if origin == Origin::Attached {
            let files = self
                .inspect(tgid)
                .map_err(|source| CollectError::Target { tgid, source })?;
            if !self.control.tables.wait(&files, patience) {
                tracing::warn!(
                    "unwind tables are still being compiled; stacks are truncated until they are ready"
                );
            }
            self.control.announce();
            self.control.kernel.distrust_code(tgid)?;
            // A zombie can be inspected, too.
            if process::has_ended(tgid) {
                return Err(CollectError::Ended(tgid));
            }
        }
        Ok(self.control.kernel.trace(tgid)?)
    }

    /// Forgets a process that could not be traced.
    fn abandon(&mut self, tgid: u32, now_ns: u64) {
        self.accounts.ledger.apply(&Event {
            time_ns: now_ns,
            tgid,
            tid: tgid,
            action: Action::Exit { status: 0 },
        });
        self.forget(tgid);
    }

    /// The record of an attached process begins, now that all its probes are set. To be called when events are being
    /// recorded but none was handled yet.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn observe(&mut self, tgid: u32, now_ns: u64) -> Result<(), CollectError> {
        self.seed(tgid);
        let Some(process) = self.processes.get_mut(tgid) else {
            return Ok(());
        };
        process.row.started_ns = now_ns;
        if let Ok(identity) = memory::identity(tgid) {
            process.row.rss_at_start = Some(identity.rss_bytes);
        }
        let row = process.row.clone();
        Ok(self.send(Message::Process(row))?)
    }

    /// Seeds the ledger with earlier mappings: a mapping known to both is then ours.
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
        self.accounts
            .ledger
            .seed_regions(tgid, &regions, heap.map(|heap| (heap.start, heap.end)));
    }
}
