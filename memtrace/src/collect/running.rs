//! Traced processes whose memory can be searched.

use super::{process::Process, processes::Processes};
use crate::{ledger::ProcessId, process};

/// A process that was traced to the end of the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) tgid: u32,
    pub(super) process: ProcessId,
    /// When tracing of it began, CLOCK_MONOTONIC ns.
    pub(super) since_ns: u64,
}

/// Processes among those that can be searched.
pub(super) fn searchable(processes: &Processes, which: impl Fn(&Process) -> bool) -> Vec<Running> {
    let running = processes.iter().filter(|(tgid, process)| {
        // The addresses of a 32-bit program have half the size.
        !process.is_32_bit && !process::has_ended(*tgid) && which(process)
    });
    let running = running.map(|(tgid, process)| Running {
        tgid,
        process: process.row.id,
        since_ns: process.row.started_ns,
    });
    let mut running: Vec<Running> = running.collect();
    running.sort_unstable_by_key(|running| running.tgid);
    running
}
