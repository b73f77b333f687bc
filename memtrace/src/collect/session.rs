//! The time line of a recording: start, wait, intervals, signals, end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::unix::AsyncFd,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    capture::Capture,
    collector::{CollectError, Collector, Parts},
    ending::{Ending, Stage},
    error::{SessionError, system},
    holders::{How, Looked},
    job,
    missing::Missing,
    plan::{Plan, default_output, meta},
    priority::Priority,
    readiness::{pidfd, watch},
    rounds::Rounds,
    sampling::Costs,
    schedule::{Schedule, Tick},
    signals::{Signals, pass_on},
    start_after::{Waiting, Watched},
    startup::Startup,
    store::Store,
    tables,
    timings::Timings,
    verify,
};
use crate::{
    bpf::{Kernel, Ring, Tracer},
    clock,
    host::{self, Redactor, Source},
    pause::{Line, Pause, Pauser},
    process::{
        self,
        launch::Launched,
        target::{self, Target},
        terminal,
    },
    progress::{Manner, Progress},
    recording::{self, Meta, Origin, Untraced, Writer},
};

/// The ring buffer is polled this often if nothing wakes the collector.
const POLL: Duration = Duration::from_millis(20);
/// Time for records before anything else gets a turn, checked after each batch of records. (A
/// record may be a process to probe, which takes a thousand times as long as a free.)
const TURN: Duration = Duration::from_millis(50);
const BATCH: usize = 256;
/// Longest time for the records of a round, which come without end if others are emitted faster than they are read.
const OF_A_ROUND: Duration = Duration::from_secs(5);

/// Makes CPython take objects from malloc rather than from arenas (its manual, "Command line and
/// environment").
const PYTHON_OBJECTS: (&str, &str) = ("PYTHONMALLOC", "malloc");

/// Result of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// Records received.
    pub received: u64,
    pub missing: Missing,
    /// Live blocks at the end, and the ledger's memory for them, bytes.
    pub outstanding: u64,
    pub ledger_bytes: u64,
    /// Result of verifying walks.
    pub verified: Option<verify::Counts>,
    pub timings: Timings,
    pub samples: Costs,
    /// Processes of the job that were not traced.
    pub untraced: Vec<Untraced>,
    /// Traced processes that still run although all those of `-p` have ended.
    pub survivors: u64,
    /// `None`: nothing was searched for.
    pub(crate) holders: Option<Looked>,
    /// The recording ended because of a signal: nothing may take long any more.
    pub(crate) is_urgent: bool,
}

/// Records until the command or the attached processes end, the time is over, or a signal comes.
/// `ready` is called once everything is being recorded, `recorded` once the recording is complete.
/// Returns the wait status of the launched command, which may run on after that.
///
/// # Errors
/// See [`SessionError`]; whatever was recorded before stays readable.
pub(crate) async fn record(
    mut plan: Plan,
    ready: impl FnOnce(&Plan, &Path, &[Untraced]),
    recorded: impl FnOnce(&Summary, &Path),
) -> Result<Option<i32>, SessionError> {
    let targets = find_targets(&plan.pids)?;
    // First of all, so that a misspelt program costs nothing and leaves nothing.
    let mut launched = if plan.command.is_empty() {
        None
    } else {
        let variables: &[_] = match plan.python_objects {
            true => &[PYTHON_OBJECTS],
            false => &[],
        };
        Some(Launched::spawn(&plan.command, variables)?)
    };
    // Not before: a launched command inherits the limit.
    process::raise_file_limit();
    let Some(start_after) = plan.start_after.take() else {
        return record_now(plan, &targets, &mut launched, ready, recorded).await;
    };
    // All that can be known to fail fails before the wait.
    let redactor = redactor(&plan);
    // Without a name of its own, it will be named after the first of the chosen processes.
    if plan.choice.is_none() || plan.output.is_some() {
        let output = output(&plan, launched.as_ref(), &redactor);
        recording::may_record(&output, plan.force)?;
    }
    let waiting = Waiting::new(start_after)?;
    let mut signals = Signals::watch()?;
    if let Some(launched) = &mut launched {
        // From now on it is a process like those of `-p`.
        launched.release()?;
        plan.pids.push(launched.tgid());
    }
    let mut watched = Watched::new(plan.pids, plan.choice.take(), plan.options.follow)?;
    let begins = waiting.wait(&mut watched, launched.as_ref(), &mut signals);
    let begins = begins.await;
    plan.pids = watched.into_pids();
    plan.pids.retain(|&pid| !process::has_ended(pid));
    let result = match (begins, find_targets(&plan.pids)) {
        (Ok(true), _) if plan.pids.is_empty() => Err(SessionError::NotBegun),
        (Ok(true), Ok(targets)) => record_now(plan, &targets, &mut launched, ready, recorded).await,
        (Ok(false), _) => Err(SessionError::NotBegun),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    // Whatever happens, the command is waited for, and its status passed on if it is all that there is.
    match (result, &mut launched) {
        (Err(SessionError::NotBegun), Some(launched)) => {
            tracing::warn!("{}", SessionError::NotBegun);
            signals.wait_for(launched).await.map(Some)
        }
        (Err(error), Some(launched)) => {
            tracing::error!("{error}");
            // A status of failure is the command's own, and not memtrace's.
            match signals.wait_for(launched).await? {
                0 => Err(error),
                status => Ok(Some(status)),
            }
        }
        (result, _) => result,
    }
}

fn redactor(plan: &Plan) -> Redactor {
    match plan.redact {
        true => Redactor::everything(),
        false => Redactor::default(),
    }
}

fn output(plan: &Plan, launched: Option<&Launched>, redactor: &Redactor) -> PathBuf {
    let named = plan.output.clone();
    named.unwrap_or_else(|| default_output(plan, launched, redactor))
}

async fn record_now(
    mut plan: Plan,
    targets: &[Target],
    launched: &mut Option<Launched>,
    ready: impl FnOnce(&Plan, &Path, &[Untraced]),
    recorded: impl FnOnce(&Summary, &Path),
) -> Result<Option<i32>, SessionError> {
    // Before the programs are loaded, see `Line`.
    let line = plan.stop.then(Line::new).transpose();
    let line = line.map_err(system("make a socket"))?;
    // Not before: a launched command inherits ignored signals.
    let is_shared = targets.iter().any(|of| terminal::is_shared_with(of.pid));
    let manner = Manner::beside(is_shared);
    let startup = Startup::begin("loading the tracing programs", manner);
    let mut startup = startup.map_err(system("watch for signals"))?;
    let (mut tracer, ring) = Tracer::load(plan.options)?;
    let pauser = match line {
        Some(line) => {
            let pauser = start_pauser(line, &mut tracer, plan.options.follow)?;
            Some(Box::new(pauser) as Box<dyn Pause>)
        }
        None => None,
    };
    if tracer.mounted_tracefs {
        tracing::info!("mounted tracefs at `/sys/kernel/tracing`");
    }
    let redactor = redactor(&plan);
    let output = output(&plan, launched.as_ref(), &redactor);
    let meta = meta(&plan, &redactor);
    let mut writer = Writer::create(&output, plan.force, &meta)?;
    startup.created(&output);
    writer.facts(&host::machine(&Source::host(), &redactor))?;
    let redactor = Arc::new(redactor);
    let store = Store::start(writer, plan.debuginfod.clone(), Arc::clone(&redactor))
        .map_err(system("start a thread"))?;
    let allocators = plan.allocators.clone();
    let page_size = process::page_size();
    let mut collector = Collector::new(Parts {
        kernel: Box::new(tracer),
        pauser,
        sink: Box::new(store),
        allocators,
        redactor,
        page_size,
        fold: plan.fold,
        summarise_imports: plan.summarise_imports,
        least_rest: plan.spacing.least_rest(),
    })
    .map_err(system("start a thread"))?;
    let ending = Ending::watch(output.clone(), launched.is_some());
    let ending = ending.map_err(system("watch for signals"))?;
    let rounds = Rounds::new(plan.rounds.take()).map_err(system("wait for rounds"))?;
    let mut session = Session::new(ring, plan.capture.as_deref(), ending, rounds, meta)?;

    let result = session
        .run(
            &mut collector,
            &plan,
            targets,
            launched.as_mut(),
            &mut startup,
            |untraced| ready(&plan, &output, untraced),
        )
        .await;
    session.rounds.close();
    session.ending.enter(Stage::Releasing);
    // A command whose recording ended early goes on with its work, and so do descendants.
    let manner = Manner::beside(collector.shares_terminal());
    let progress = Progress::shown("recording ended; reading the last events", manner);
    // One moment for all probes; records emitted before it are still read.
    let stopped = collector
        .kernel()
        .set_recording(false)
        .map_err(CollectError::from);
    // A program that was past the switch may still emit; this waits for all of them.
    // SAFETY: no memory is involved. A kernel without it at worst leaves such a record unread.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    let result = match result.and(stopped.map_err(SessionError::from)) {
        Ok(()) => session.conclude(&mut collector, &plan),
        Err(error) => Err(error),
    };
    let mut summary = Summary {
        received: collector.received(),
        missing: collector.missing(),
        outstanding: collector.ledger().outstanding(),
        ledger_bytes: collector.ledger().table_bytes(),
        verified: collector.verified(),
        timings: collector.timings(),
        samples: collector.sample_costs(),
        untraced: collector.untraced().to_vec(),
        survivors: match launched.is_none() && ended_with(&plan.pids, &collector) {
            true => collector.running(),
            false => 0,
        },
        holders: None,
        is_urgent: false,
    };
    let ended_ns = clock::monotonic_ns();
    progress.doing("recording ended; removing the probes");
    let mut released = collector.release();
    session.ending.enter(Stage::Completing);
    if result.is_ok() && plan.holders {
        let how = How {
            now_ns: ended_ns,
            redact: plan.redact,
            most_memory: plan.search_memory,
        };
        summary.holders = released.look_for_holders(&how, &progress, &session.ending);
    } else if result.is_ok() {
        released.look_for_none(ended_ns);
    }
    progress.doing(match &plan.debuginfod {
        Some(config) => format!(
            "recording ended; writing names, waiting at most {:?} for debug files",
            config.timeout
        ),
        None => "recording ended; writing the names of functions".to_owned(),
    });
    let written = released.finish(ended_ns, &|| session.ending.ends_names());
    drop(progress);
    summary.is_urgent = session.ending.complete();
    // A store that failed is why the session ended.
    let result = written.map_err(SessionError::from).and(result);
    if result.is_ok() {
        recorded(&summary, &output);
    }
    let status = match launched {
        Some(launched) if launched.is_released() => Some(session.signals.wait_for(launched).await?),
        _ => None,
    };
    match (result, status) {
        (Err(error), Some(failure @ 1..)) => {
            tracing::error!("{error}");
            Ok(Some(failure))
        }
        (result, status) => result.map(|()| status),
    }
}

fn start_pauser(
    line: Line,
    tracer: &mut Tracer,
    with_children: bool,
) -> Result<Pauser, SessionError> {
    let pauser = Pauser::spawn(line, tracer.stop_maps().descriptors(), with_children)
        .map_err(system("start the process that holds others"))?;
    tracer.set_pauser(pauser.pid())?;
    Ok(pauser)
}

struct Session {
    ring: AsyncFd<Ring>,
    capture: Option<Capture>,
    signals: Signals,
    /// SIGUSR1: search for holders now.
    searches: Signal,
    ending: Ending,
    rounds: Rounds,
    meta: Meta,
}

impl Session {
    fn new(
        ring: Ring,
        capture: Option<&Path>,
        ending: Ending,
        rounds: Rounds,
        meta: Meta,
    ) -> Result<Self, SessionError> {
        let ring = watch(ring).map_err(system("watch the ring buffer"))?;
        let capture = capture.map(Capture::create).transpose();
        Ok(Self {
            ring,
            capture: capture.map_err(system("write the capture"))?,
            signals: Signals::watch()?,
            searches: signal(SignalKind::user_defined1()).map_err(system("watch SIGUSR1"))?,
            ending,
            rounds,
            meta,
        })
    }

    async fn run(
        &mut self,
        collector: &mut Collector,
        plan: &Plan,
        targets: &[Target],
        mut launched: Option<&mut Launched>,
        startup: &mut Startup,
        ready: impl FnOnce(&[Untraced]),
    ) -> Result<(), SessionError> {
        for target in targets {
            startup.doing(job::doing(target.pid, &target.name));
            let attached = collector.begin(
                target.pid,
                Origin::Attached,
                clock::monotonic_ns(),
                tables::AT_ATTACH,
            );
            if let Err(error) = attached {
                target.still_runs()?;
                return Err(error.into());
            }
        }
        match plan.options.follow {
            true => collector.join_all(clock::monotonic_ns(), |what| startup.doing(what))?,
            false => collector.leave_out()?,
        }
        for target in targets {
            target.still_runs()?;
        }
        if let Some(launched) = launched.as_ref().filter(|launched| !launched.is_released()) {
            collector.begin(
                launched.tgid(),
                Origin::Launched,
                clock::monotonic_ns(),
                Duration::ZERO,
            )?;
            // It may be gone before it can be inspected.
            let program = std::fs::File::open(launched.program());
            let is_32_bit = program.and_then(target::is_32_bit);
            collector.set_32_bit(launched.tgid(), is_32_bit.unwrap_or(false));
        }
        collector
            .kernel()
            .set_recording(true)
            .map_err(CollectError::from)?;
        // Setting the probes may take long, and shows nothing of a program.
        self.meta.started_unix_ns = clock::unix_ns();
        self.meta.started_ns = clock::monotonic_ns();
        collector.observe_all(&self.meta)?;
        if plan.holders {
            let may_end_first = plan.duration.is_none() || !plan.command.is_empty();
            collector.search_early(self.meta.started_ns, may_end_first, plan.search_memory);
        }
        startup.over();
        ready(collector.untraced());
        let mut child = None;
        if let Some(launched) = &mut launched {
            launched.release()?;
            child = Some(pidfd(launched.tgid()).map_err(system("watch the command"))?);
        }

        let _priority = plan.ahead.then(Priority::raise);
        let start = Instant::now();
        let deadline = plan.duration.map(|duration| start + duration);
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut schedule = Schedule::new(plan.spacing);
        let mut next = start;
        let mut interrupted = false;
        let mut may_miss = plan.options.follow;
        let tables = collector.table_news();
        loop {
            tokio::select! {
                guard = self.ring.readable_mut() => {
                    guard.map_err(system("wait for the ring buffer"))?.clear_ready();
                    self.drain(collector)?;
                }
                _ = poll.tick() => {
                    self.drain(collector)?;
                    let now = clock::monotonic_ns();
                    collector.end_old_imports(now);
                    collector.look_ahead(now).map_err(CollectError::from)?;
                    if self.rounds.is_waiting && !collector.is_searching() {
                        self.rounds.go_on();
                    }
                }
                () = tables.notified() => collector.look_around(),
                () = sleep_until(next) => {
                    let begin = Instant::now();
                    if may_miss {
                        may_miss = collector.join_late(clock::monotonic_ns())?;
                    }
                    let vanished = collector.vanished();
                    let drained = self.drain(collector)?;
                    let now = clock::monotonic_ns();
                    if drained {
                        collector.bury(&vanished, now)?;
                    }
                    let tick = schedule.tick(begin - start, collector.ledger().outstanding());
                    let sampled = Instant::now();
                    collector.interval(now, tick)?;
                    let cost = sampled.elapsed().max(collector.cost_of_writing());
                    next = begin + schedule.until_next(cost);
                }
                began_ns = self.rounds.ended() => {
                    let begin = Instant::now();
                    while !self.drain(collector)? && begin.elapsed() < OF_A_ROUND {}
                    let now = clock::monotonic_ns();
                    collector.interval(now, schedule.round(start.elapsed()))?;
                    if !began_ns.is_some_and(|began| collector.search_after_rounds(began, now)) {
                        self.rounds.go_on();
                    }
                }
                _ = async { child.as_ref().map(AsyncFd::readable)?.await.ok() },
                    if child.is_some() => {
                        self.ending.without_command();
                        return Ok(());
                    }
                () = async { sleep_until(deadline.unwrap_or(start)).await },
                    if deadline.is_some() => return Ok(()),
                _ = self.signals.interrupts.recv() => {
                    // The terminal sends it to the command too, which decides what to do; a second
                    // one ends the recording without it.
                    if child.is_none() || interrupted {
                        self.ending.ask(libc::SIGINT);
                        return Ok(());
                    }
                    interrupted = true;
                }
                _ = self.signals.terminations.recv() => {
                    self.ending.ask(libc::SIGTERM);
                    match &launched {
                        Some(launched) => pass_on(launched, libc::SIGTERM),
                        None => return Ok(()),
                    }
                }
                _ = self.searches.recv() => collector.search_now(clock::monotonic_ns()),
                // The terminal is gone; the command was notified as well.
                _ = self.signals.hangups.recv() => {
                    self.ending.ask(libc::SIGHUP);
                    return Ok(());
                }
            }
            if ended_with(&plan.pids, collector) {
                return Ok(());
            }
        }
    }

    /// Handles the contents of the ring buffer; false if there was more than a turn's worth.
    fn drain(&mut self, collector: &mut Collector) -> Result<bool, SessionError> {
        let start = Instant::now();
        self.ring.get_mut().begin();
        while start.elapsed() < TURN {
            for _ in 0..BATCH {
                let Some(record) = self.ring.get_mut().next() else {
                    collector.look_around();
                    return Ok(true);
                };
                if let Some(capture) = &mut self.capture {
                    capture.add(record).map_err(system("write the capture"))?;
                }
                collector.handle(record)?;
            }
        }
        collector.look_around();
        Ok(false)
    }

    /// Reads the remaining records and records the last interval.
    fn conclude(&mut self, collector: &mut Collector, plan: &Plan) -> Result<(), SessionError> {
        while !self.drain(collector)? {}
        if !plan.options.follow {
            collector.leave_out()?;
        }
        collector.describe_all()?;
        let last = Tick {
            scan: true,
            last: true,
            ..Tick::default()
        };
        Ok(collector.interval(clock::monotonic_ns(), last)?)
    }
}

/// Whether the processes that were attached to have all ended, if there were any.
fn ended_with(pids: &[u32], collector: &Collector) -> bool {
    !pids.is_empty() && !pids.iter().any(|&pid| collector.is_running(pid))
}

fn find_targets(pids: &[u32]) -> Result<Vec<Target>, SessionError> {
    pids.iter().map(|&pid| find_target(pid)).collect()
}

fn find_target(pid: u32) -> Result<Target, SessionError> {
    let target = Target::find(pid)?;
    if let Some(halted) = target.halted {
        let name = &target.name;
        tracing::warn!(
            "process {pid} (`{name}`) is {halted}: nothing is recorded until it continues"
        );
    }
    Ok(target)
}
