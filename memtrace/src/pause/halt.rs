//! Processes that are stopped as a whole while the collector searches their memory.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::process::interrupted;

/// No process is stopped for longer than this, whatever the collector does.
const LONGEST: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub(super) struct Halts {
    since: HashMap<u32, Instant>,
    /// Stopped threads: their process, and the signal that they continue with.
    kept: HashMap<u32, (u32, i32)>,
}

impl Halts {
    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// From now on, threads of this process that stop are kept.
    pub(super) fn begin(&mut self, tgid: u32) {
        self.since.insert(tgid, Instant::now());
    }

    /// Keeps a stopped thread of a halted process; false: the process is not halted.
    pub(super) fn keep(&mut self, tgid: u32, tid: u32, signal: i32) -> bool {
        if !self.since.contains_key(&tgid) {
            return false;
        }
        interrupted::hide(tid);
        self.kept.insert(tid, (tgid, signal));
        true
    }

    /// The threads that continue now, with the signals that they get.
    pub(super) fn end(&mut self, tgid: u32) -> Vec<(u32, i32)> {
        self.since.remove(&tgid);
        let is_of_it = |_: &u32, of: &mut (u32, i32)| of.0 == tgid;
        let threads = self.kept.extract_if(is_of_it);
        threads.map(|(tid, (_, signal))| (tid, signal)).collect()
    }

    /// Those that have been stopped for too long, or at all if there is no collector to search them.
    pub(super) fn overdue(&self, is_searched: bool) -> Vec<u32> {
        let limit = match is_searched {
            true => LONGEST,
            false => Duration::ZERO,
        };
        let overdue = self.since.iter().filter(|(_, it)| it.elapsed() >= limit);
        overdue.map(|(&tgid, _)| tgid).collect()
    }

    pub(super) fn forget(&mut self, tid: u32) {
        self.kept.remove(&tid);
    }
}
