//! Searches for holders before the end of the recording, because the process may not live that long: when memory is
//! about to run out ([`super::pressure`]), when that of a device has run out, and on request (SIGUSR1). They run in a
//! separate thread on a copy of the ledger, so that events are handled meanwhile.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    Collector,
    growing::{self, Which},
    pressure::Course,
    processes::Process,
    release::searchable,
    sampling::Limited,
    sink::{Message, Stopped},
};
use crate::{
    holders::{self, Known, Reading, Wanted},
    host::cgroup::Level,
    ledger::{Extent, HeapCopy},
    process,
    progress::say,
    recording::Found,
    units,
};

/// Between two looks at the levels.
const LOOK: Duration = Duration::from_millis(100);

/// Most malloc blocks of a process that are copied: events wait some 50 ms for that.
const MOST_BLOCKS: usize = 2_000_000;

/// Memory that a search may take. Under a limit that holds for memtrace, too, it has to be there.
const NEED: u64 = 192 << 20;

/// Searches of a process after failed allocations on a device.
const FAILURES: u32 = 3;

/// A process is stopped for at most this long after such a failure, which may be about to end it.
const LONGEST_HALT: Duration = Duration::from_secs(8);

/// See the module.
pub(super) struct Early {
    /// The start of the recording, CLOCK_MONOTONIC ns.
    started_ns: u64,
    looked_ns: u64,
    /// By the place of the control group; of the machine by none.
    courses: HashMap<Option<PathBuf>, Course>,
    /// Searches after failures, by tgid.
    failures: HashMap<u32, u32>,
    search: Option<Search>,
    /// Results of the searches, for people.
    lines: Vec<String>,
}

/// A search in progress.
struct Search {
    cause: String,
    seen: Duration,
    sites: usize,
    /// Sites with known holders.
    known: usize,
    notes: Vec<String>,
    /// How long the process was stopped.
    stood: Option<Duration>,
    /// The user waits for the result.
    is_awaited: bool,
    tgids: Vec<u32>,
    /// The process that is stopped for it, and since when.
    halted: Option<(u32, Instant)>,
    found: Receiver<Outcome>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The result of searching a process.
type Outcome = (u32, Result<Found, holders::Error>);

/// The input of a search.
struct Task {
    tgid: u32,
    wanted: Vec<Wanted>,
    heap: HeapCopy,
    of_devices: Vec<Extent>,
}

impl Early {
    fn new(started_ns: u64) -> Self {
        Self {
            started_ns,
            looked_ns: 0,
            courses: HashMap::new(),
            failures: HashMap::new(),
            search: None,
            lines: Vec::new(),
        }
    }

    /// The first limit that is about to be reached.
    fn due(&mut self, now_ns: u64, levels: Vec<Limited>) -> Option<Limited> {
        let time = Duration::from_nanos(now_ns);
        let mut due = levels.into_iter().filter_map(|mut of| {
            if of.is_ours {
                of.level = without_need(of.level)?;
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

impl Collector {
    /// From now on, searches begin when memory is about to run out. The recording began at `started_ns`.
    pub(super) fn search_early(&mut self, started_ns: u64) {
        self.early = Some(Early::new(started_ns));
    }

    /// Collects the results of searches, and begins one if it is time. To be called often.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn look_ahead(&mut self, now_ns: u64) -> Result<(), Stopped> {
        self.hear_search()?;
        let is_late = |early: &Early| {
            let since = Duration::from_nanos(now_ns.saturating_sub(early.looked_ns));
            early.search.is_none() && since >= LOOK
        };
        if !self.early.as_ref().is_some_and(is_late) {
            return Ok(());
        }
        let levels = self.levels();
        let Some(early) = &mut self.early else {
            return Ok(());
        };
        early.looked_ns = now_ns;
        if let Some(of) = early.due(now_ns, levels) {
            let percent = of.level.used * 100 / of.level.limit.max(1);
            let whose = match of.place {
                Some(_) => "its control group",
                None => "the machine",
            };
            let cause = format!("when the memory of {whose} was {percent} % full");
            let is_meant = |process: &Process| {
                of.place.is_none() || process.cgroup.is_some_and(|it| of.groups.contains(&it))
            };
            self.begin_search(cause, now_ns, None, is_meant);
        }
        Ok(())
    }

    /// The user wants to know the holders now. A search in progress goes on.
    pub(super) fn search_now(&mut self, now_ns: u64) {
        let Some(early) = &mut self.early else {
            return announce([
                "holders are not searched for (`--no-holders` or `--no-stop`)".to_owned(),
            ]);
        };
        if early.search.is_some() {
            return;
        }
        let known = early.lines.len();
        self.begin_search("on request".to_owned(), now_ns, None, |_| true);
        if let Some(early) = &mut self.early {
            match &mut early.search {
                Some(search) => search.is_awaited = true,
                None => {
                    announce(early.lines.drain(known..));
                    announce(["no site is large enough yet to search for its holders".to_owned()]);
                }
            }
        }
    }

    /// An allocation on a device has failed for good.
    pub(super) fn device_ran_out(&mut self, tgid: u32, now_ns: u64) {
        let Some(early) = self.early.as_mut().filter(|early| early.search.is_none()) else {
            return;
        };
        let searches = early.failures.entry(tgid).or_default();
        if *searches < FAILURES {
            *searches += 1;
            let cause = "when a device was out of memory".to_owned();
            let halted = self.halt(tgid).then(|| (tgid, Instant::now()));
            self.begin_search(cause, now_ns, halted, |process| process.row.tgid == tgid);
            let is_searched = |early: &Early| early.search.is_some();
            if halted.is_some() && !self.early.as_ref().is_some_and(is_searched) {
                self.go_on(tgid);
            }
        }
    }

    fn begin_search(
        &mut self,
        cause: String,
        now_ns: u64,
        halted: Option<(u32, Instant)>,
        is_meant: impl Fn(&Process) -> bool,
    ) {
        let running = searchable(&self.processes, is_meant);
        let mut notes = Vec::new();
        let mut tasks = Vec::new();
        let mut sites = 0;
        for of in growing::chosen(Which::Largest, &self.ledger, &running, now_ns) {
            let tgid = of.running.tgid;
            match self.ledger.copy_heap(tgid, MOST_BLOCKS) {
                Some(heap) => {
                    sites += of.sites();
                    tasks.push(Task {
                        tgid,
                        wanted: of.wanted(&self.ledger),
                        heap,
                        of_devices: self.ledger.device_blocks(tgid),
                    });
                }
                None => notes.push(format!(
                    "process {tgid} has too many blocks to be searched while it is recorded"
                )),
            }
        }
        let Some(early) = self.early.as_mut() else {
            return;
        };
        if tasks.is_empty() {
            early.lines.append(&mut notes);
            return;
        }
        let (sender, found) = channel();
        let is_over = Arc::<AtomicBool>::default();
        let tgids = tasks.iter().map(|task| task.tgid).collect();
        let redact = self.redactor.is_everything();
        let over = Arc::clone(&is_over);
        let since = halted.map(|(_, since)| since);
        let thread = std::thread::Builder::new()
            .name("memtrace-search".to_owned())
            .spawn(move || run(tasks, redact, since, &over, &sender));
        match thread {
            Ok(thread) => {
                early.search = Some(Search {
                    cause,
                    seen: Duration::from_nanos(now_ns.saturating_sub(early.started_ns)),
                    sites,
                    known: 0,
                    notes,
                    stood: None,
                    is_awaited: false,
                    tgids,
                    halted,
                    found,
                    is_over,
                    thread,
                });
            }
            Err(error) => early
                .lines
                .push(format!("cannot start a thread to search: {error}")),
        }
    }

    /// Hands over the results of the search so far.
    fn hear_search(&mut self) -> Result<(), Stopped> {
        let Some(mut search) = self.early.as_mut().and_then(|early| early.search.take()) else {
            return Ok(());
        };
        // Before the channel is emptied.
        let is_done = search.thread.is_finished();
        let outcomes: Vec<Outcome> = search.found.try_iter().collect();
        for (tgid, outcome) in outcomes {
            for mut of in search.take(tgid, outcome) {
                of.seen = Some(search.seen);
                self.send(Message::Holders(of))?;
            }
        }
        if let (true, Some((tgid, since))) = (is_done, search.halted) {
            self.go_on(tgid);
            search.stood = Some(since.elapsed());
        }
        if let Some(early) = &mut self.early {
            match is_done {
                true if search.is_awaited => announce(search.lines()),
                true => early.lines.extend(search.lines()),
                false => early.search = Some(search),
            }
        }
        Ok(())
    }

    /// Ends a search in progress, unless it is the last of its processes. Returns all results, for people.
    pub(super) fn end_early(&mut self) -> Vec<String> {
        let search = self.early.as_mut().and_then(|early| early.search.as_mut());
        if let Some(search) = search {
            let has_ended = search.tgids.iter().all(|&tgid| process::has_ended(tgid));
            search.is_over.store(!has_ended, Ordering::Relaxed);
            while !search.thread.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // If the store has stopped, its result has the reason.
        let _ = self.hear_search();
        let early = self.early.take();
        early.map_or_else(Vec::new, |early| early.lines)
    }
}

impl Search {
    /// The sites worth recording: for the others, an earlier search may know more.
    fn take(
        &mut self,
        tgid: u32,
        outcome: Result<Found, holders::Error>,
    ) -> Vec<crate::recording::Holders> {
        match outcome {
            Ok(found) => {
                let notes = found.notes.iter();
                self.notes
                    .extend(notes.map(|note| format!("process {tgid}: {note}")));
                let known = found.holders.into_iter().filter(|of| !of.ways.is_empty());
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

    fn lines(self) -> Vec<String> {
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
        let line = format!(
            "searched for the holders of the largest sites {}, at {at:.1} s, found them for {} of {}{stood}",
            self.cause, self.known, self.sites
        );
        [vec![line], self.notes].concat()
    }
}

/// Tells the user at once.
fn announce(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        say(&line);
    }
}

/// The thread's work. `halted`: since when the process is stopped, if it is.
fn run(
    tasks: Vec<Task>,
    redact: bool,
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
            is_over: &|| is_over.load(Ordering::Relaxed) || is_late(),
        };
        let found = holders::of_sites(task.tgid, &task.wanted, known, reading.clone());
        if sender.send((task.tgid, found)).is_err() {
            return;
        }
    }
}
