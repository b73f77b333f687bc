//! Searches for holders before the end of the recording, because the process may not live that long: when memory is
//! about to run out ([`super::pressure`]), when that of a device has run out, now and then if the program may end before
//! the recording, and on request (SIGUSR1). They run in a separate thread on a copy of the ledger, so that events are
//! handled meanwhile.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{pressure::Course, sampling::Limited};
use crate::{
    holders::{self, Known, OfSites, OfType, Reading, Wanted},
    host::cgroup::Level,
    ledger::{Extent, HeapCopy},
    progress::say,
    recording::Found,
    units,
};

/// Between two looks at the levels.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Most malloc blocks of a process that are copied: events wait some 50 ms for that.
pub(super) const MOST_BLOCKS: usize = 2_000_000;

/// Memory that a search may take. Under a limit that holds for memtrace, too, it has to be there.
const NEED: u64 = 192 << 20;

/// Searches of a process after failed allocations on a device.
pub(super) const FAILURES: u32 = 3;

/// A process is stopped for at most this long after such a failure, which may be about to end it.
const LONGEST_HALT: Duration = Duration::from_secs(8);

/// The first of the searches that come now and then, after the start of the recording. Each later one comes after twice
/// the time: the longer a recording, the rarer they are.
const FIRST: Duration = Duration::from_secs(20);

/// See the module.
pub(super) struct Early {
    /// The start of the recording, CLOCK_MONOTONIC ns.
    pub(super) started_ns: u64,
    /// Bytes that a search may take, see [`Known`].
    pub(super) most_memory: Option<u64>,
    /// When the next search comes without a cause, since the start; `None`: never.
    regular: Option<Duration>,
    /// The memory left is not enough for a search.
    is_tight: bool,
    /// The result of the last of these, for people.
    pub(super) last_regular: Vec<String>,
    pub(super) looked_ns: u64,
    /// By the place of the control group; of the machine by none.
    pub(super) courses: HashMap<Option<PathBuf>, Course>,
    /// Searches after failures, by tgid.
    pub(super) failures: HashMap<u32, u32>,
    pub(super) search: Option<Search>,
    /// Results of the searches, for people.
    pub(super) lines: Vec<String>,
}

/// A search in progress.
pub(super) struct Search {
    /// `None`: it comes now and then.
    pub(super) cause: Option<String>,
    pub(super) seen: Duration,
    pub(super) sites: usize,
    /// Sites with known holders.
    pub(super) known: usize,
    pub(super) notes: Vec<String>,
    /// How long the process was stopped.
    pub(super) stood: Option<Duration>,
    /// The user waits for the result.
    pub(super) is_awaited: bool,
    pub(super) tgids: Vec<u32>,
    /// The process that is stopped for it, and since when.
    pub(super) halted: Option<(u32, Instant)>,
    pub(super) found: Receiver<Outcome>,
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) thread: JoinHandle<()>,
}

/// The result of searching a process.
pub(super) type Outcome = (u32, Result<Found<OfSites>, holders::Error>);

/// The input of a search.
pub(super) struct Task {
    pub(super) tgid: u32,
    pub(super) wanted: Vec<Wanted>,
    pub(super) types: Vec<OfType>,
    pub(super) heap: HeapCopy,
    pub(super) of_devices: Vec<Extent>,
}

impl Early {
    /// `is_regular`: also searches now and then.
    pub(super) fn new(started_ns: u64, is_regular: bool, most_memory: Option<u64>) -> Self {
        Self {
            started_ns,
            most_memory,
            regular: is_regular.then_some(FIRST),
            is_tight: false,
            last_regular: Vec::new(),
            looked_ns: 0,
            courses: HashMap::new(),
            failures: HashMap::new(),
            search: None,
            lines: Vec::new(),
        }
    }

    /// Abandons a search that has no cause: it comes again. Returns whether another one may begin.
    pub(super) fn make_way(&mut self) -> bool {
        let regular = self.search.take_if(|search| search.cause.is_none());
        if let Some(regular) = regular {
            regular.is_over.store(true, Ordering::Relaxed);
        }
        self.search.is_none()
    }

    /// Whether it is time for a search that needs no other cause.
    pub(super) fn is_regular_due(&mut self, now_ns: u64) -> bool {
        let elapsed = Duration::from_nanos(now_ns.saturating_sub(self.started_ns));
        let is_due = !self.is_tight && self.regular.is_some_and(|next| elapsed >= next);
        if is_due {
            self.regular = Some(2 * elapsed);
        }
        is_due
    }

    /// The first limit that is about to be reached.
    pub(super) fn due(&mut self, now_ns: u64, levels: Vec<Limited>) -> Option<Limited> {
        let time = Duration::from_nanos(now_ns);
        self.is_tight = false;
        let is_tight = &mut self.is_tight;
        let mut due = levels.into_iter().filter_map(|mut of| {
            if of.is_ours {
                let left = without_need(of.level);
                *is_tight |= left.is_none();
                of.level = left?;
            }
            let course = self.courses.entry(of.place.clone()).or_default();
            course.is_due(time, of.level).then_some(of)
        });
        let first = due.next();
        // Each takes its level.
        due.for_each(drop);
        first
    }
}

/// The memory left for the program; `None`: not enough for a search.
fn without_need(level: Level) -> Option<Level> {
    let limit = level.limit.checked_sub(NEED)?;
    (level.used <= limit).then_some(Level { limit, ..level })
}

impl Search {
    /// The sites worth recording: for the others, an earlier search may know more.
    pub(super) fn take(
        &mut self,
        tgid: u32,
        outcome: Result<Found<OfSites>, holders::Error>,
    ) -> Vec<crate::recording::Holders> {
        match outcome {
            Ok(found) => {
                let notes = found.notes.iter();
                self.notes
                    .extend(notes.map(|note| format!("process {tgid}: {note}")));
                let known = found
                    .holders
                    .sites
                    .into_iter()
                    .filter(|of| !of.ways.is_empty());
                let known: Vec<_> = known.collect();
                self.known += known.len();
                known
            }
            Err(holders::Error::Over) => {
                let is_late = |(_, since): (u32, Instant)| since.elapsed() >= LONGEST_HALT;
                let why = match self.halted.is_some_and(is_late) {
                    true => "the search took too long",
                    false => "the recording ended during the search",
                };
                self.notes.push(format!("process {tgid}: {why}"));
                Vec::new()
            }
            Err(error) => {
                self.notes.push(error.to_string());
                Vec::new()
            }
        }
    }

    pub(super) fn lines(self) -> Vec<String> {
        let at = self.seen.as_secs_f64();
        if self.is_awaited {
            let found = format!(
                "found the holders of {} of {}, at {at:.1} s",
                self.known,
                units::plural(self.sites as u64, "large site")
            );
            return [vec![found], self.notes].concat();
        }
        let stood = self.stood.map_or(String::new(), |stood| {
            format!(
                " (the process was stopped for {:.1} s)",
                stood.as_secs_f64()
            )
        });
        let of = match self.cause {
            Some(cause) => format!("the largest sites {cause},"),
            None => "growing sites".to_owned(),
        };
        let line = format!(
            "searched for the holders of {of} at {at:.1} s, found them for {} of {}{stood}",
            self.known, self.sites
        );
        [vec![line], self.notes].concat()
    }
}

/// Tells the user at once.
pub(super) fn announce(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        say(&line);
    }
}

/// The thread's work. `halted`: since when the process is stopped, if it is.
pub(super) fn run(
    tasks: Vec<Task>,
    redact: bool,
    most_memory: Option<u64>,
    halted: Option<Instant>,
    is_over: &AtomicBool,
    sender: &Sender<Outcome>,
) {
    let is_late = || halted.is_some_and(|since| since.elapsed() >= LONGEST_HALT);
    let reading = match halted {
        Some(_) => Reading::Standing,
        None => Reading::Untouched,
    };
    for task in tasks {
        let heap = task.heap.sorted();
        let known = Known {
            blocks: &|| Box::new(heap.blocks()),
            of_devices: task.of_devices,
            site_of: &|address| heap.site(address),
            redact,
            most_memory,
            is_over: &|| is_over.load(Ordering::Relaxed) || is_late(),
        };
        let found = holders::of_sites(task.tgid, &task.wanted, &task.types, known, reading.clone());
        if sender.send((task.tgid, found)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_without_a_cause_comes_after_twice_the_time() {
        let due = |may_end_first| -> Vec<u64> {
            let mut early = Early::new(1_000_000_000, may_end_first, None);
            let seconds = 1..200_u64;
            seconds
                .filter(|second| early.is_regular_due((1 + second) * 1_000_000_000))
                .collect()
        };
        assert_eq!(due(true), [20, 40, 80, 160]);
        assert!(due(false).is_empty());
    }
}
