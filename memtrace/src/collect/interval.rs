//! Once an interval: the changes since the last one, and the losses so far.

use std::time::Duration;

use memtrace_common::loss::Reason;

use super::{
    collector::{CollectError, Collector},
    holes,
    missing::Missing,
    schedule::Tick,
    sink::Message,
};
use crate::recording::Interval;

impl Collector {
    /// Hands the changes since the last interval to the store. A scan adds the ages of live blocks
    /// and the memory they hold open, which costs a pass over all of them.
    ///
    /// # Errors
    /// The store or the kernel side has failed.
    pub(super) fn interval(&mut self, now_ns: u64, tick: Tick) -> Result<(), CollectError> {
        if let Some(pauser) = &self.control.pauser {
            pauser.wake();
        }
        self.control.kernel.flush_log();
        let (mut counted, emitted) = self.control.kernel.counters()?;
        let of_ledger = self.accounts.ledger.counts().by_reason();
        for (reason, count) in self.accounts.losses.clone().into_iter().chain(of_ledger) {
            *counted.entry(reason).or_default() += count;
        }
        if !self.control.abilities.python_frames {
            // No Python frames were wanted, so none are missing.
            counted.remove(&Reason::PythonAmbiguous);
        }
        let losses = Reason::ALL.map(|reason| (reason, counted.remove(&reason).unwrap_or(0)));
        self.describe_libraries()?;
        for group in self.accounts.folding.take_changed() {
            self.send(Message::Process(group))?;
        }
        let samples = self
            .accounts
            .sampling
            .sample(&mut self.processes, &mut *self.control.kernel);
        let device_usage = self.device_usage(tick.last)?;
        let interval = Interval {
            time_ns: now_ns,
            commit_later: tick.commit_later,
            unfinished: tick.unfinished,
            ends_round: tick.ends_round,
            halve: tick.halve,
            changes: self.accounts.ledger.take_changes(),
            folded: self.accounts.folding.take_folded(),
            memory: samples.memory,
            system: Some(samples.system),
            cgroups: samples.cgroups,
            members: samples.members,
            device_usage,
            losses: losses.to_vec(),
            emitted,
            received: self.accounts.received,
            births: if tick.scan {
                self.accounts.ledger.births(now_ns)
            } else {
                Vec::new()
            },
            holes: if tick.scan {
                holes::of(&self.accounts.ledger, &self.processes)
            } else {
                Vec::new()
            },
        };
        self.accounts.missing = Missing::of(&losses);
        self.send(Message::Interval(Box::new(interval)))?;
        Ok(())
    }

    /// The recent cost of writing an interval.
    pub(super) fn cost_of_writing(&self) -> Duration {
        self.output.sink.cost()
    }
}
