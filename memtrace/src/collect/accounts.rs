//! The figures of the recording: live memory, samples of processes and machine, and losses.

use super::{folding::Folding, missing::Missing, sampling::Sampling};
use crate::{
    event::{Action, Event},
    ledger::Ledger,
    process::gpus::Gpus,
};
use memtrace_common::{event::Header, loss::Reason};
use std::{collections::HashMap, time::Duration};

/// See the module.
pub(super) struct Accounts {
    pub(super) ledger: Ledger,
    pub(super) folding: Folding,
    pub(super) sampling: Sampling,
    pub(super) gpus: Gpus,
    /// Records so far.
    pub(super) received: u64,
    /// User-side losses, by reason; the ledger counts its own.
    pub(super) losses: HashMap<Reason, u64>,
    /// State at the last interval.
    pub(super) missing: Missing,
}

impl Accounts {
    pub(super) fn new(page_size: u64, fold: bool, least_rest: Duration) -> Self {
        Self {
            ledger: Ledger::new(page_size),
            folding: Folding::new(fold),
            sampling: Sampling::new(least_rest),
            gpus: Gpus::new(least_rest),
            received: 0,
            losses: HashMap::new(),
            missing: Missing::default(),
        }
    }

    pub(super) fn apply(&mut self, header: &Header, action: Action) {
        self.ledger.apply(&Event {
            time_ns: header.time_ns,
            tgid: header.tgid,
            tid: header.tid,
            action,
        });
    }

    pub(super) fn lost(&mut self, reason: Reason) {
        *self.losses.entry(reason).or_default() += 1;
    }
}
