//! Counts the objects of Python's types now and then, in a thread of its own: which types grow steadily is known at the
//! end of the recording. A count takes 300 ms of CPU time at most, and all counts together a thirtieth of a processor.

use memtrace_common::python::Interpreter;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::{course, process::Process, processes::Processes};
use crate::{
    clock,
    holders::{self, Counted, OfType, Uncounted},
    ledger::ProcessId,
    process,
    recording::{Census, GrowingType},
};

/// The first counts, after the start of the recording, and the time between later ones at first.
const FIRST: Duration = Duration::from_secs(1);

/// Most CPU time of the count of a process.
const MOST_TIME: Duration = Duration::from_millis(300);

/// Counts are followed by a rest of this many times their cost.
const REST: u32 = 30;

/// Counts of a process that are kept. When there are as many, every other one is dropped, and later ones come half as
/// often.
const MOST_COUNTS: usize = 16;

/// Processes that are counted, the first ones. The counts of all take 33 MiB at most.
const MOST_PROCESSES: usize = 16;

/// Types of a process that are reported.
const MOST_TYPES: usize = 8;

/// Objects of a type whose holders are searched for.
const EXAMINED: usize = 64;

/// The objects of a type at a moment.
type ByType = HashMap<String, Counted>;

/// A process to be counted: also its tgid, and its interpreter.
type Counting = (ProcessId, u32, Interpreter);

/// See the module.
pub(super) struct Censuses {
    next_ns: u64,
    spacing: Duration,
    series: HashMap<ProcessId, Series>,
    round: Option<Round>,
}

/// The counts of a process.
#[derive(Default)]
struct Series {
    census: Census,
    /// With their times, CLOCK_MONOTONIC ns.
    counts: Vec<(u64, ByType)>,
}

/// Counts in progress.
struct Round {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Counts>,
}

/// The results of a round.
struct Counts {
    of: Vec<(ProcessId, u64, Result<Vec<Counted>, Uncounted>)>,
    cost: Duration,
}

/// A type that grows, and objects of it that came and stayed.
#[derive(Clone, Debug)]
pub(super) struct Grown {
    pub(super) of: GrowingType,
    pub(super) stayed: OfType,
}

impl Censuses {
    /// The recording began at `started_ns`, CLOCK_MONOTONIC.
    pub(super) fn new(started_ns: u64) -> Self {
        Self {
            next_ns: started_ns + FIRST.as_nanos() as u64,
            spacing: FIRST,
            series: HashMap::new(),
            round: None,
        }
    }

    /// Takes in what was counted, and begins to count if it is time. To be called often.
    pub(super) fn look(&mut self, now_ns: u64, processes: &Processes) {
        if self
            .round
            .as_ref()
            .is_some_and(|round| round.thread.is_finished())
        {
            self.take(now_ns);
        }
        if self.round.is_none() && now_ns >= self.next_ns {
            self.begin(now_ns, processes);
        }
    }

    fn begin(&mut self, now_ns: u64, processes: &Processes) {
        self.next_ns = now_ns + self.spacing.as_nanos() as u64;
        let with_python = |(tgid, process): (u32, &Process)| {
            let interpreter = processes.interpreter(tgid).copied()?;
            let can_be_read = !process.is_32_bit && !process::has_ended(tgid);
            can_be_read.then_some((process.row.id, tgid, interpreter))
        };
        let mut running: Vec<Counting> = processes.iter().filter_map(with_python).collect();
        running.sort_unstable_by_key(|(process, ..)| *process);
        running.truncate(MOST_PROCESSES);
        if running.is_empty() {
            return;
        }
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("memtrace-census".to_owned())
            .spawn(move || count(running, &over));
        match thread {
            Ok(thread) => self.round = Some(Round { is_over, thread }),
            Err(error) => tracing::debug!("cannot start a thread to count objects: {error}"),
        }
    }

    /// Waits for the counts in progress.
    fn take(&mut self, now_ns: u64) {
        let Some(Ok(counts)) = self.round.take().map(|round| round.thread.join()) else {
            return;
        };
        let rest = (REST * counts.cost).max(self.spacing);
        self.next_ns = now_ns + rest.as_nanos() as u64;
        for (process, time_ns, result) in counts.of {
            if self.series.len() < MOST_PROCESSES || self.series.contains_key(&process) {
                self.series.entry(process).or_default().add(time_ns, result);
            }
        }
        if self
            .series
            .values()
            .any(|of| of.counts.len() >= MOST_COUNTS)
        {
            self.spacing *= 2;
            self.series.values_mut().for_each(Series::thin);
        }
    }

    /// The types of a process that grow, as of now; the one that takes the most memory first.
    pub(super) fn grown(&self, process: ProcessId) -> Vec<Grown> {
        self.series
            .get(&process)
            .map_or_else(Vec::new, Series::grown)
    }

    /// Ends counts in progress, and returns the processes that were counted and the types that grow.
    pub(super) fn end(mut self) -> Vec<(ProcessId, Census, Vec<Grown>)> {
        if let Some(round) = &self.round {
            round.is_over.store(true, Ordering::Relaxed);
            self.take(0);
        }
        let all = self.series.iter();
        all.map(|(process, of)| (*process, of.census, of.grown()))
            .collect()
    }
}

impl Series {
    fn add(&mut self, time_ns: u64, result: Result<Vec<Counted>, Uncounted>) {
        let reason = match result {
            Ok(counted) => {
                let by_type = counted.into_iter().map(|of| (of.name.clone(), of));
                self.counts.push((time_ns, by_type.collect()));
                &mut self.census.counted
            }
            Err(Uncounted::TooLarge) => &mut self.census.too_large,
            Err(Uncounted::Unreadable) => &mut self.census.unreadable,
        };
        *reason += 1;
    }

    /// Drops every other count, but not the last.
    fn thin(&mut self) {
        let mut kept = self.counts.len() % 2 == 1;
        self.counts.retain(|_| {
            kept = !kept;
            !kept
        });
    }

    fn grown(&self) -> Vec<Grown> {
        let Some((_, last)) = self.counts.last() else {
            return Vec::new();
        };
        let mut grown: Vec<Grown> = last
            .keys()
            .filter_map(|name| self.grown_type(name))
            .collect();
        grown.sort_by(|a, b| {
            let by_bytes = b.stayed.bytes.cmp(&a.stayed.bytes);
            by_bytes.then_with(|| a.of.name.cmp(&b.of.name))
        });
        grown.truncate(MOST_TYPES);
        grown
    }

    fn grown_type(&self, name: &str) -> Option<Grown> {
        let counts: Vec<course::Point> = self
            .counts
            .iter()
            .map(|(time_ns, by_type)| course::Point::of(*time_ns, by_type.get(name)))
            .collect();
        let window = course::growing(&counts)?;
        let sample = |index: usize| {
            let of = self
                .counts
                .get(index)
                .and_then(|(_, by_type)| by_type.get(name));
            of.map_or(&[][..], |of| &of.sample)
        };
        let (first, last) = (counts.get(window.start)?, counts.get(window.end - 1)?);
        let (before, meanwhile) = (
            sample(window.start),
            sample((window.start + window.end) / 2),
        );
        let came = sample(window.end - 1).iter();
        let stayed = came.filter(|object| !before.contains(object) && meanwhile.contains(object));
        Some(Grown {
            of: GrowingType {
                name: name.to_owned(),
                first: first.objects(),
                last: last.objects(),
                examined: 0,
                unreached: 0,
                ways: Vec::new(),
            },
            stayed: OfType {
                name: name.to_owned(),
                bytes: last.objects().bytes.saturating_sub(first.objects().bytes),
                addresses: stayed.take(EXAMINED).copied().collect(),
            },
        })
    }
}

/// By how much types grew, bytes.
pub(super) fn bytes(grown: &[Grown]) -> u64 {
    grown.iter().map(|of| of.stayed.bytes).sum()
}

/// What is searched for of the types that grow.
pub(super) fn searched(grown: &[Grown]) -> Vec<OfType> {
    grown.iter().map(|of| of.stayed.clone()).collect()
}

/// The thread's work.
fn count(processes: Vec<Counting>, is_over: &AtomicBool) -> Counts {
    let cpu_time = || Duration::from_nanos(clock::now_ns(libc::CLOCK_THREAD_CPUTIME_ID));
    let begin = cpu_time();
    let mut of = Vec::new();
    for (process, tgid, interpreter) in processes {
        let begin = cpu_time();
        let has_to_end = || is_over.load(Ordering::Relaxed);
        let is_late = || has_to_end() || cpu_time() - begin > MOST_TIME;
        let time_ns = clock::monotonic_ns();
        let counted = holders::count(tgid, interpreter, &is_late);
        if !has_to_end() {
            of.push((process, time_ns, counted));
        }
    }
    Counts {
        of,
        cost: cpu_time() - begin,
    }
}
