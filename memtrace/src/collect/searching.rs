//! Searches for holders while a recording goes on.

use super::{
    census::{self, Censuses},
    collector::Collector,
    early::{Early, FAILURES, LOOK, MOST_BLOCKS, Outcome, Search, Task, announce, run},
    growing::{self, Which},
    process::Process,
    running::searchable,
    sink::{Message, Stopped},
};
use crate::process;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

impl Collector {
    /// From now on, searches begin when memory is about to run out. They also come now and then if the program
    /// `may_end_first`, before the recording, which began at `started_ns`.
    pub(super) fn search_early(
        &mut self,
        started_ns: u64,
        may_end_first: bool,
        most_memory: Option<u64>,
    ) {
        self.early = Some(Early::new(started_ns, may_end_first, most_memory));
        self.censuses = Some(Censuses::new(started_ns));
    }

    /// Collects the results of searches, and begins one if it is time. To be called often.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn look_ahead(&mut self, now_ns: u64) -> Result<(), Stopped> {
        self.hear_search()?;
        if let Some(censuses) = &mut self.censuses {
            censuses.look(now_ns, &self.processes);
        }
        let is_late = |early: &Early| {
            let since = Duration::from_nanos(now_ns.saturating_sub(early.looked_ns));
            let search = early.search.as_ref();
            search.is_none_or(|search| search.cause.is_none()) && since >= LOOK
        };
        if !self.early.as_ref().is_some_and(is_late) {
            return Ok(());
        }
        let levels = self.accounts.sampling.levels(&self.processes);
        let Some(early) = &mut self.early else {
            return Ok(());
        };
        early.looked_ns = now_ns;
        if let Some(of) = early.due(now_ns, levels) {
            early.make_way();
            let percent = of.level.used * 100 / of.level.limit.max(1);
            let whose = match of.place {
                Some(_) => "its control group",
                None => "the machine",
            };
            let cause = format!("when the memory of {whose} was {percent} % full");
            let is_meant = |process: &Process| {
                of.place.is_none() || process.cgroup.is_some_and(|it| of.groups.contains(&it))
            };
            self.begin_search(Which::Largest, Some(cause), now_ns, None, is_meant);
        } else if early.search.is_none() && early.is_regular_due(now_ns) {
            self.begin_search(Which::Growing, None, now_ns, None, |_| true);
        }
        Ok(())
    }

    /// Searches for what keeps memory of rounds of the same work, the first of which began at `since_ns`. Returns whether
    /// a search has begun.
    pub(super) fn search_after_rounds(&mut self, since_ns: u64, now_ns: u64) -> bool {
        if !self.early.as_mut().is_some_and(Early::make_way) {
            return false;
        }
        self.begin_search(Which::GrowingSince(since_ns), None, now_ns, None, |_| true);
        self.is_searching()
    }

    /// Whether a search is in progress.
    pub(super) fn is_searching(&self) -> bool {
        let early = self.early.as_ref();
        early.is_some_and(|early| early.search.is_some())
    }

    /// The user wants to know the holders now. A search in progress goes on.
    pub(super) fn search_now(&mut self, now_ns: u64) {
        let Some(early) = &mut self.early else {
            return announce([
                "holders are not searched for (`--no-holders` or `--no-stop`)".to_owned(),
            ]);
        };
        if !early.make_way() {
            return announce(["a search is in progress".to_owned()]);
        }
        let known = early.lines.len();
        let cause = Some("on request".to_owned());
        self.begin_search(Which::Largest, cause, now_ns, None, |_| true);
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
        let Some(early) = self.early.as_mut() else {
            return;
        };
        if !early.make_way() {
            return;
        }
        let searches = early.failures.entry(tgid).or_default();
        if *searches < FAILURES {
            *searches += 1;
            let cause = "when a device was out of memory".to_owned();
            let halted = self.halt(tgid).then(|| (tgid, Instant::now()));
            self.begin_search(Which::Largest, Some(cause), now_ns, halted, |process| {
                process.row.tgid == tgid
            });
            let is_searched = |early: &Early| early.search.is_some();
            if halted.is_some() && !self.early.as_ref().is_some_and(is_searched) {
                self.go_on(tgid);
            }
        }
    }

    fn begin_search(
        &mut self,
        which: Which,
        cause: Option<String>,
        now_ns: u64,
        halted: Option<(u32, Instant)>,
        is_meant: impl Fn(&Process) -> bool,
    ) {
        let running = searchable(&self.processes, is_meant);
        let mut notes = Vec::new();
        let mut tasks = Vec::new();
        let (mut sites, mut left) = (0, MOST_BLOCKS);
        for of in growing::chosen(which, &self.accounts.ledger, &running, now_ns) {
            let tgid = of.running.tgid;
            match self.accounts.ledger.copy_heap(tgid, left) {
                Some(heap) => {
                    left -= heap.blocks().count();
                    sites += of.sites();
                    let censuses = self.censuses.as_ref();
                    let grown = censuses.map(|all| all.grown(of.running.process));
                    tasks.push(Task {
                        tgid,
                        wanted: of.wanted(&self.accounts.ledger),
                        types: census::searched(grown.as_deref().unwrap_or_default()),
                        heap,
                        of_devices: self.accounts.ledger.device_blocks(tgid),
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
        let redact = self.output.redactor.is_everything();
        let over = Arc::clone(&is_over);
        let since = halted.map(|(_, since)| since);
        let most_memory = early.most_memory;
        let thread = std::thread::Builder::new()
            .name("memtrace-search".to_owned())
            .spawn(move || run(tasks, redact, most_memory, since, &over, &sender));
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
                true if search.cause.is_none() => {
                    if !search.is_over.load(Ordering::Relaxed) {
                        early.last_regular = search.lines();
                    }
                }
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
        early.map_or_else(Vec::new, |early| [early.lines, early.last_regular].concat())
    }
}
