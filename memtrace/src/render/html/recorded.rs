//! A recording, as its page needs it.

use std::collections::HashMap;

use super::ranking::chosen;
use crate::{
    analysis::{
        courses::Courses,
        suppressions::Suppressions,
        system::SystemSeries,
        verdict::{self, Diagnosis},
    },
    ledger::ProcessId,
    recording::{self, At, Fact, MemorySample, Recording, Snapshot},
};

/// A recording, as its page needs it.
pub(crate) struct Recorded {
    /// At the moment of a report.
    pub(crate) snapshot: Snapshot,
    pub(crate) verdicts: Diagnosis,
    pub(crate) facts: Vec<Fact>,
    /// By process, in order of time.
    pub(crate) memory: HashMap<ProcessId, Vec<(u64, MemorySample)>>,
    /// With the largest sites one by one.
    pub(crate) courses: Courses,
    /// How far a recording without an end reaches, ns.
    pub(crate) cut_off: Option<u64>,
}

impl Recorded {
    /// Reads all of it.
    pub(crate) fn read(recording: &Recording) -> Result<Recorded, recording::Error> {
        let snapshot = recording.snapshot(At::Default)?;
        let machine = SystemSeries::read(recording)?;
        let processes = snapshot.processes.iter().map(|process| process.row.id);
        let memory = processes.map(|id| Ok((id, recording.memory(id)?)));
        Ok(Recorded {
            verdicts: verdict::diagnose(recording, &machine, &Suppressions::default())?,
            facts: recording.facts()?,
            memory: memory.collect::<Result<_, recording::Error>>()?,
            courses: Courses::read(recording, &snapshot, &chosen(&snapshot))?,
            cut_off: recording.cut_off()?,
            snapshot,
        })
    }
}
