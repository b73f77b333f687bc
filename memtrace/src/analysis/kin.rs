//! How the processes of a recording are related to each other.

use std::collections::{HashMap, HashSet};

use crate::{
    hash::FastMap,
    ledger::ProcessId,
    recording::{Origin, Overview, ProcessRow},
};

/// Fewer processes that others took the place of may be chance.
const REPLACED: usize = 2;

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
    /// It is a child, and others of its program ended.
    pub(crate) is_like_ended: bool,
    /// Its parent, if that is in the recording.
    pub(crate) parent: Option<ProcessId>,
    /// Children that it started while recording: those that did not end before it, and the others.
    pub(crate) running: u64,
    pub(crate) ended: u64,
    /// Of those that did not end, how many had their private memory read, and the sum, bytes.
    pub(crate) weighed: u64,
    pub(crate) private_of_weighed: u64,
}

impl Kin {
    /// Whether the process is a child that ended, or will, as others like it did.
    pub(crate) fn is_passing(&self, row: &ProcessRow) -> bool {
        let ends = row.ended_ns.is_some() || self.replaced.is_some() || self.is_like_ended;
        self.is_child && ends
    }
}

/// The relatives of every process.
pub(crate) fn of_all(overview: &Overview) -> FastMap<ProcessId, Kin> {
    let now = overview.time_ns.unwrap_or(overview.meta.started_ns);
    of_rows(&overview.processes, now)
}

fn of_rows(rows: &[ProcessRow], now: u64) -> FastMap<ProcessId, Kin> {
    let tgids: HashSet<u32> = rows.iter().map(|row| row.tgid).collect();
    // Groups and parents outside the pid namespace have no number.
    let has_parent = |row: &ProcessRow| row.ppid != 0 && tgids.contains(&row.ppid);
    let is_child = |row: &ProcessRow| match row.origin {
        Origin::Child => true,
        Origin::Attached => has_parent(row),
        Origin::Launched => false,
    };
    let parents: HashSet<u32> = rows
        .iter()
        .filter(|row| is_child(row))
        .map(|row| row.ppid)
        .collect();
    let mut siblings: HashMap<_, Vec<&ProcessRow>> = HashMap::new();
    let may_have = |row: &&ProcessRow| is_child(row) && has_parent(row) && !row.is_group();
    for row in rows.iter().filter(may_have) {
        let of = (row.ppid, program(row));
        siblings.entry(of).or_default().push(row);
    }
    let replaced: FastMap<ProcessId, u64> = siblings
        .values()
        .flat_map(|rows| replaced(rows, now))
        .collect();
    let ended = rows
        .iter()
        .filter(|row| row.ended_ns.is_some() || row.is_group());
    let ended: HashSet<_> = ended.filter(|row| is_child(row)).map(program).collect();
    let mut all: FastMap<ProcessId, Kin> = FastMap::default();
    let mut latest: HashMap<u32, &ProcessRow> = HashMap::new();
    for row in rows {
        // A parent comes before its children, and may have had the number of one that ended.
        let parent = latest.get(&row.ppid).copied().filter(|_| row.ppid != 0);
        let kin = Kin {
            is_child: is_child(row),
            is_parent: parents.contains(&row.tgid),
            replaced: replaced.get(&row.id).copied(),
            is_like_ended: is_child(row) && ended.contains(&program(row)),
            parent: parent.map(|parent| parent.id),
            ..Kin::default()
        };
        all.insert(row.id, kin);
        latest.insert(row.tgid, row);
        if let Some(parent) = parent.filter(|_| row.origin == Origin::Child)
            && let Some(of) = all.get_mut(&parent.id)
        {
            match outlives(row, parent) {
                true => of.running += 1,
                false => of.ended += 1,
            }
        }
    }
    all
}

/// Whether a child has not ended, or only with its parent.
pub(crate) fn outlives(child: &ProcessRow, parent: &ProcessRow) -> bool {
    /// A parent may end its children first.
    const WITH_IT: u64 = 5_000_000_000;
    let with_parent = |end: u64| {
        let of_parent = parent.ended_ns;
        of_parent.is_some_and(|of| end + WITH_IT >= of)
    };
    child.ended_ns.is_none_or(with_parent)
}

/// A program and its arguments without their numbers: workers are told the number of a port or of a pipe.
fn program(row: &ProcessRow) -> (&str, Vec<String>) {
    let without_numbers = |word: &String| word.replace(|of: char| of.is_ascii_digit(), "");
    (&row.comm, row.cmdline.iter().map(without_numbers).collect())
}

/// Those of these siblings that come and go, if as many were replaced as run at once. One that lives longer than all that
/// ended stays.
fn replaced(siblings: &[&ProcessRow], now: u64) -> Vec<(ProcessId, u64)> {
    let ends = siblings.iter().filter(|row| is_orderly(row));
    let ends: Vec<(u64, u64)> = ends
        .filter_map(|row| Some((row.ended_ns?, row.ended_ns?.saturating_sub(row.started_ns))))
        .collect();
    let (first_end, longest) = (
        ends.iter().map(|(end, _)| *end).min(),
        ends.iter().map(|(_, life)| *life).max(),
    );
    let (Some(first_end), Some(longest)) = (first_end, longest) else {
        return vec![];
    };
    let lives = siblings.iter().map(|row| {
        let end = row.ended_ns.unwrap_or(u64::MAX);
        (row.started_ns, end, 1.0)
    });
    let at_once = most_at_once(lives) as usize;
    let is_successor = |row: &&&ProcessRow| row.started_ns >= first_end;
    let successors = siblings.iter().filter(is_successor);
    let last_start = successors.clone().map(|row| row.started_ns).max();
    let last_start = last_start.unwrap_or(0);
    let gone = ends.iter().filter(|(end, _)| *end <= last_start).count();
    if gone.min(successors.count()) < at_once.max(REPLACED) {
        return vec![];
    }
    let comes_or_goes = |row: &&&ProcessRow| {
        let went = row.ended_ns.is_some_and(|end| end <= last_start);
        let life = row.ended_ns.unwrap_or(now).saturating_sub(row.started_ns);
        let comes = row.started_ns >= first_end && life <= longest;
        (went || comes) && (row.ended_ns.is_none() || is_orderly(row))
    };
    let replaced = siblings.iter().filter(comes_or_goes);
    replaced.map(|row| (row.id, gone as u64)).collect()
}

/// Whether a process ended as it should, or as its parent asked it to. One that was killed, or failed, may be started again
/// although nobody meant it to end.
fn is_orderly(row: &ProcessRow) -> bool {
    /// SIGHUP, SIGINT, SIGQUIT and SIGTERM in the status of waitpid(2).
    const ASKED: [u32; 4] = [1, 2, 3, 15];
    let status = row.exit_status;
    status.is_some_and(|of| of == 0 || ASKED.contains(&(of & 0x7f)) && of >> 8 == 0)
}

/// The most that these add up to at any moment; each has a start, an end and a weight.
pub(crate) fn most_at_once(lives: impl Iterator<Item = (u64, u64, f64)>) -> f64 {
    let changes = lives.flat_map(|(start, end, weight)| [(start, weight), (end, -weight)]);
    let mut changes: Vec<(u64, f64)> = changes.collect();
    // An end before a start of the same moment.
    changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let sums = changes.into_iter().scan(0.0, |sum, (_, change)| {
        *sum += change;
        Some(*sum)
    });
    sums.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100;

    fn row(words: &[&str]) -> ProcessRow {
        ProcessRow {
            id: ProcessId(0),
            tgid: 0,
            ppid: 1,
            origin: Origin::Child,
            comm: "python".into(),
            cmdline: words.iter().map(|word| (*word).into()).collect(),
            started_ns: 0,
            ended_ns: None,
            exit_status: None,
            rss_at_start: None,
            folded: None,
        }
    }

    /// Processes by their start and end, and which of them come and go.
    fn coming_and_going(lives: &[(u64, Option<u64>)]) -> Vec<u64> {
        ended_by(0, lives)
    }

    /// The same with this status at the end.
    fn ended_by(status: u32, lives: &[(u64, Option<u64>)]) -> Vec<u64> {
        let rows: Vec<ProcessRow> = (0..)
            .zip(lives)
            .map(|(id, (started_ns, ended_ns))| ProcessRow {
                id: ProcessId(id),
                started_ns: *started_ns,
                ended_ns: *ended_ns,
                exit_status: ended_ns.map(|_| status),
                ..row(&[])
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
    fn children_that_run_and_that_ended_are_counted_at_their_parent() {
        const SECOND: u64 = 1_000_000_000;
        let process = |id, tgid, ppid, ended_s: Option<u64>| ProcessRow {
            id: ProcessId(id),
            tgid,
            ppid,
            ended_ns: ended_s.map(|end| end * SECOND),
            ..row(&[])
        };
        let rows = [
            process(0, 10, 1, Some(10)),
            process(1, 11, 10, Some(2)),
            process(2, 12, 10, Some(9)),
            // It was adopted.
            process(3, 13, 10, None),
            // Another process has the number of one that ended.
            process(4, 10, 1, None),
            process(5, 14, 10, None),
        ];
        let all = of_rows(&rows, NOW);
        let of = |id| all[&ProcessId(id)];
        assert_eq!((of(0).running, of(0).ended), (2, 1));
        assert_eq!((of(4).running, of(4).ended), (1, 0));
        assert_eq!(of(3).parent, Some(ProcessId(0)));
        assert_eq!(of(4).parent, None);
    }

    #[test]
    fn a_child_whose_program_ends_otherwise_is_passing() {
        let child = |id, ppid, ended_ns, words: &[&str]| ProcessRow {
            id: ProcessId(id),
            tgid: 100 + id,
            ppid,
            origin: Origin::Child,
            ended_ns,
            ..row(words)
        };
        let rows = [
            child(0, 1, None, &["sh"]),
            child(1, 100, Some(20), &["sleep", "1"]),
            child(2, 100, None, &["sleep", "2"]),
            child(3, 100, None, &["server"]),
        ];
        let all = of_rows(&rows, NOW);
        let passing = rows.iter().filter(|row| all[&row.id].is_passing(row));
        let passing: Vec<u32> = passing.map(|row| row.id.0).collect();
        assert_eq!(passing, [1, 2]);
    }

    #[test]
    fn programs_are_alike_but_for_numbers() {
        let [a, b, other] = [
            ["python", "spawn_main(pipe_handle=16)"],
            ["python", "spawn_main(pipe_handle=7)"],
            ["python", "server.py"],
        ]
        .map(|words| row(&words));
        assert_eq!(program(&a), program(&b));
        assert_ne!(program(&a), program(&other));
    }

    #[test]
    fn workers_that_stay_or_only_become_more_do_not() {
        assert!(coming_and_going(&[(0, None), (0, None), (10, None)]).is_empty());
        // All end with the program.
        assert!(coming_and_going(&[(0, Some(99)), (0, Some(99)), (0, Some(100))]).is_empty());
        // One of four ended.
        let one = [(0, Some(30)), (0, None), (0, None), (0, None), (31, None)];
        assert!(coming_and_going(&one).is_empty());
        // A job, and then three servers.
        let servers = [(0, Some(50)), (51, None), (52, None), (53, None)];
        assert!(coming_and_going(&servers).is_empty());
        // Crashed, failed or killed for lack of memory, and started again.
        let again = [(0, Some(30)), (31, Some(60)), (61, Some(90)), (91, None)];
        assert_eq!(ended_by(15, &again), [0, 1, 2, 3]);
        for status in [6, 9, 11, 1 << 8] {
            assert!(ended_by(status, &again).is_empty(), "{status}");
        }
        // A server beside jobs that are started again and again.
        let server = [(0, None), (1, Some(20)), (21, Some(40)), (41, Some(60))];
        assert_eq!(coming_and_going(&server), [1, 2, 3]);
    }
}
