//! How the processes of a recording are related to each other.

use std::collections::{HashMap, HashSet};

use crate::{
    hash::FastMap,
    ledger::ProcessId,
    recording::{Origin, Overview, ProcessRow},
};

/// Fewer processes that took the place of others may be chance.
const SUCCESSORS: usize = 2;

/// The relatives of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kin {
    /// Its parent is in the recording, too: it was forked while recording, or both were attached.
    pub(crate) is_child: bool,
    /// A child of it is.
    pub(crate) is_parent: bool,
    /// If it comes and goes with others of the same parent and program: how many of these ended while others took their
    /// place.
    pub(crate) replaced: Option<u64>,
}

impl Kin {
    /// Whether the process is a child that ended, or will, as others like it did.
    pub(crate) fn is_passing(&self, row: &ProcessRow) -> bool {
        self.is_child && (row.ended_ns.is_some() || self.replaced.is_some())
    }
}

/// The relatives of every process.
pub(crate) fn of_all(overview: &Overview) -> FastMap<ProcessId, Kin> {
    let rows = &overview.processes;
    let tgids: HashSet<u32> = rows.iter().map(|row| row.tgid).collect();
    let is_child = |row: &ProcessRow| match row.origin {
        Origin::Child => true,
        // Groups and parents outside the pid namespace have no number.
        Origin::Attached => row.ppid != 0 && tgids.contains(&row.ppid),
        Origin::Launched => false,
    };
    let parents: HashSet<u32> = rows
        .iter()
        .filter(|row| is_child(row))
        .map(|row| row.ppid)
        .collect();
    let mut siblings: HashMap<_, Vec<&ProcessRow>> = HashMap::new();
    for row in rows.iter().filter(|row| is_child(row) && !row.is_group()) {
        let of = (row.ppid, &row.comm, row.cmdline.first());
        siblings.entry(of).or_default().push(row);
    }
    let now = overview.time_ns.unwrap_or(overview.meta.started_ns);
    let replaced: FastMap<ProcessId, u64> = siblings
        .values()
        .flat_map(|rows| replaced(rows, now))
        .collect();
    rows.iter()
        .map(|row| {
            let kin = Kin {
                is_child: is_child(row),
                is_parent: parents.contains(&row.tgid),
                replaced: replaced.get(&row.id).copied(),
            };
            (row.id, kin)
        })
        .collect()
}

/// Those of these siblings that come and go, if as many took the place of others as run at once. One that lives longer than
/// all that ended stays.
fn replaced(siblings: &[&ProcessRow], now: u64) -> Vec<(ProcessId, u64)> {
    let ended = siblings.iter().filter_map(|row| Some((row.ended_ns?, row)));
    let life = |row: &ProcessRow| row.ended_ns.unwrap_or(now).saturating_sub(row.started_ns);
    let (Some(first_end), Some(longest)) = (
        ended.clone().map(|(end, _)| end).min(),
        ended.clone().map(|(_, row)| life(row)).max(),
    ) else {
        return vec![];
    };
    let is_successor = |row: &&&ProcessRow| row.started_ns >= first_end;
    let successors = siblings.iter().filter(is_successor);
    if successors.clone().count() < at_once(siblings).max(SUCCESSORS) {
        return vec![];
    }
    let last_start = successors.map(|row| row.started_ns).max().unwrap_or(0);
    let number = ended.filter(|(end, _)| *end <= last_start).count() as u64;
    let comes_or_goes = |row: &&&ProcessRow| {
        let went = row.ended_ns.is_some_and(|end| end <= last_start);
        went || row.started_ns >= first_end && life(row) <= longest
    };
    let replaced = siblings.iter().filter(comes_or_goes);
    replaced.map(|row| (row.id, number)).collect()
}

/// The most of these that ran at the same time.
fn at_once(rows: &[&ProcessRow]) -> usize {
    let starts = rows.iter().map(|row| (row.started_ns, true));
    let ends = rows.iter().filter_map(|row| Some((row.ended_ns?, false)));
    let mut changes: Vec<(u64, bool)> = starts.chain(ends).collect();
    // An end before a start of the same moment.
    changes.sort_unstable();
    let (mut running, mut most) = (0_usize, 0);
    for (_, starts) in changes {
        running = match starts {
            true => running + 1,
            false => running.saturating_sub(1),
        };
        most = most.max(running);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100;

    /// Processes by their start and end, and which of them come and go.
    fn coming_and_going(lives: &[(u64, Option<u64>)]) -> Vec<u64> {
        let rows: Vec<ProcessRow> = (0..)
            .zip(lives)
            .map(|(id, (started_ns, ended_ns))| ProcessRow {
                id: ProcessId(id),
                tgid: 0,
                ppid: 1,
                origin: Origin::Child,
                comm: String::new(),
                cmdline: vec![],
                started_ns: *started_ns,
                ended_ns: *ended_ns,
                exit_status: None,
                rss_at_start: None,
                folded: None,
            })
            .collect();
        let mut found = replaced(&rows.iter().collect::<Vec<_>>(), NOW);
        found.sort_unstable();
        found.into_iter().map(|(id, _)| u64::from(id.0)).collect()
    }

    #[test]
    fn workers_that_are_replaced_come_and_go() {
        let two = [(0, Some(40)), (0, Some(45)), (41, Some(90)), (46, None)];
        // The last one has lived for 54, and none that ended for more than 49.
        assert_eq!(coming_and_going(&two), [0, 1, 2]);
        let next = [
            two[0],
            two[1],
            two[2],
            (46, Some(95)),
            (91, None),
            (96, None),
        ];
        assert_eq!(coming_and_going(&next), [0, 1, 2, 3, 4, 5]);
        // One after the other.
        let jobs: Vec<_> = (0..9).map(|n| (n * 10, Some(n * 10 + 9))).collect();
        assert_eq!(coming_and_going(&jobs).len(), 9);
    }

    #[test]
    fn workers_that_stay_or_only_become_more_do_not() {
        assert!(coming_and_going(&[(0, None), (0, None), (10, None)]).is_empty());
        // All end with the program.
        assert!(coming_and_going(&[(0, Some(99)), (0, Some(99)), (0, Some(100))]).is_empty());
        // One of four crashed and was started again.
        let one = [(0, Some(30)), (0, None), (0, None), (0, None), (31, None)];
        assert!(coming_and_going(&one).is_empty());
        // A server beside jobs that are started again and again.
        let server = [(0, None), (1, Some(20)), (21, Some(40)), (41, Some(60))];
        assert_eq!(coming_and_going(&server), [1, 2, 3]);
    }
}
