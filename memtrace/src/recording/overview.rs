//! Everything in a recording except the figures of its sites, which may be millions.

use super::{Error, FailureSnapshot, Meta, ProcessRow, Recording, Stacks, device_tables, read};
use memtrace_common::loss::Reason;

/// State at the last interval.
#[derive(Clone, Debug)]
pub(crate) struct Overview {
    pub meta: Meta,
    /// By id.
    pub processes: Vec<ProcessRow>,
    pub stacks: Stacks,
    /// Allocations that failed on devices, in order of time.
    pub failures: Vec<FailureSnapshot>,
    /// Every reason, zero included.
    pub losses: Vec<(Reason, u64)>,
    pub emitted: u64,
    /// The end of the last interval, CLOCK_MONOTONIC ns.
    pub time_ns: Option<u64>,
}

impl Recording {
    /// Reads the overview.
    pub(crate) fn overview(&self) -> Result<Overview, Error> {
        self.read_overview().map_err(|error| self.reading(&error))
    }

    fn read_overview(&self) -> rusqlite::Result<Overview> {
        let transaction = self.connection().unchecked_transaction()?;
        let last = read::interval(&transaction, u64::MAX)?;
        let failures = device_tables::failures(&transaction, i64::MAX as u64)?;
        let failures = failures.into_iter();
        Ok(Overview {
            meta: self.meta().clone(),
            processes: read::processes(&transaction)?,
            stacks: read::stacks(&transaction, self.meta())?,
            failures: failures
                .map(|(key, failure)| FailureSnapshot { key, failure })
                .collect(),
            losses: read::losses(&transaction, last.id)?,
            emitted: last.emitted,
            time_ns: last.time_ns,
        })
    }
}
