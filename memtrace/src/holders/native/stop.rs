//! A short stop of a process that neither the program nor its parent notices.
//!
//! Threads are held in stops of ptrace(2) by a thread of memtrace that does nothing else. When that thread ends, the
//! kernel detaches from whatever it could not stop in time. It also resumes the process by itself after a time
//! limit.
//!
//! A stop for a whole search ([`Stop::until`]) lasts until it is released, or until the user ends it.
//!
//! One effect remains: if the kernel does not keep a system call's time limit across a restart
//! (`epoll_wait` and those of [`interrupted`]), the call waits the full time again.

use crate::{
    arch::{self, ThreadRegisters},
    process::{
        interrupted,
        ptrace::{self, Status},
        tasks,
    },
};
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long it may take until all threads have stopped.
const PATIENCE: Duration = Duration::from_millis(3);

/// The same for a thread by itself: until it stops, it runs.
const PATIENCE_WITH_ONE: Duration = Duration::from_millis(100);

/// No stop lasts longer than this, whatever is done with it, unless it is for a whole search.
const LONGEST: Duration = Duration::from_micros(4500);

/// The same as [`PATIENCE`] for a whole search.
const PATIENCE_FOR_ALL: Duration = Duration::from_millis(500);

/// Time limit for PTRACE_SEIZE of all threads.
const SEIZING: Duration = Duration::from_millis(1500);

/// Between two looks at whether the user has ended a stop.
const ENDING: Duration = Duration::from_millis(10);

/// How long to wait for a thread that has not stopped in time: it may be about to.
const LATE: Duration = Duration::from_millis(20);

/// Between two looks at threads that are about to stop.
const LOOK: Duration = Duration::from_micros(20);

/// After this, the state of threads that have not stopped is read.
const DOUBT: Duration = Duration::from_micros(500);

/// Why a process cannot be stopped.
#[derive(Debug, thiserror::Error)]
pub(in crate::holders) enum StopError {
    #[error(
        "process {pid} is traced already, by `{name}` ({tracer}): let it detach, then try again"
    )]
    TracedAlready { pid: u32, tracer: u32, name: String },
    #[error("process {pid} cannot be traced by ptrace: {source}; run as root")]
    Refused { pid: u32, source: io::Error },
    #[error("process {pid} has ended")]
    Ended { pid: u32 },
    #[error("process {pid} did not stop within {} ms: try again", patience.as_millis())]
    TooSlow {
        pid: u32,
        patience: Duration,
        /// How long its first threads were stopped for nothing.
        lasted: Duration,
    },
    #[error("cannot start a thread: {0}")]
    NoThread(#[source] io::Error),
}

impl StopError {
    /// Whether another attempt may succeed. After a stop of memtrace's own that came too late, the kernel takes a
    /// moment to detach.
    pub(in crate::holders) fn may_pass(&self) -> bool {
        match self {
            Self::TooSlow { .. } => true,
            Self::TracedAlready { tracer, .. } => *tracer == std::process::id(),
            _ => false,
        }
    }

    /// For how long threads were stopped in vain.
    pub(in crate::holders) fn lasted(&self) -> Duration {
        match self {
            Self::TooSlow { lasted, .. } => *lasted,
            _ => Duration::ZERO,
        }
    }
}

/// A thread of a stopped process.
#[derive(Clone, Debug)]
pub(in crate::holders) struct Stopped {
    pub(in crate::holders) tid: u32,
    /// `None`: it waits in the kernel, for a disk or the like, and cannot be stopped. It runs no code of the program,
    /// though the kernel may still write the awaited data to the program's memory.
    pub(in crate::holders) registers: Option<ThreadRegisters>,
    /// Its stack pointer, if known.
    pub(in crate::holders) sp: Option<u64>,
}

/// The threads of a process.
#[derive(Clone, Debug)]
pub(in crate::holders) enum Threads {
    /// Those of this process, which runs: each is stopped for some microseconds to see its state.
    Running(u32),
    /// As they were at the moment that is looked at.
    Stopped(Arc<[Stopped]>),
}

/// The time at which a stop ends if it is not released.
enum Until {
    /// It has lasted this long.
    Lasted(Duration),
    /// The user ends it.
    Ended(Arc<AtomicBool>),
}

/// A process with all threads stopped, until this is dropped. Threads of memtrace that wait for children
/// must not wait for this one meanwhile: its stop would be reported to them.
pub(in crate::holders) struct Stop {
    threads: Vec<Stopped>,
    /// Closed to let the process go.
    release: Option<Sender<()>>,
    worker: Option<JoinHandle<Ended>>,
}

/// How a stop went.
#[derive(Clone, Copy, Debug)]
pub(in crate::holders) struct Ended {
    /// From the first thread's interruption until all that had stopped were let go. One that stops later is let go
    /// at once.
    pub(in crate::holders) lasted: Duration,
    /// It took too long, so the process continued before it was released: the last reads may be torn.
    pub(in crate::holders) was_cut: bool,
}

impl Stop {
    /// Stops all threads of a process.
    ///
    /// # Errors
    /// Another tracer has it, tracing is not permitted, or it does not stop in time; it runs on in each case.
    pub(in crate::holders) fn new(pid: u32) -> Result<Self, StopError> {
        Self::within(pid, PATIENCE)
    }

    /// As [`Stop::new`], with another time limit.
    pub(in crate::holders) fn within(pid: u32, patience: Duration) -> Result<Self, StopError> {
        Self::begin(pid, patience, Until::Lasted(LONGEST.max(patience)))
    }

    /// As [`Stop::new`], until it is dropped or `is_over` is set.
    pub(in crate::holders) fn until(pid: u32, is_over: Arc<AtomicBool>) -> Result<Self, StopError> {
        Self::begin(pid, PATIENCE_FOR_ALL, Until::Ended(is_over))
    }

    fn begin(pid: u32, patience: Duration, until: Until) -> Result<Self, StopError> {
        let (answer, answered) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let worker = thread::Builder::new()
            .name("stop".into())
            .spawn(move || hold(pid, patience, &until, &answer, &released))
            .map_err(StopError::NoThread)?;
        // PTRACE_SEIZE waits for the end of an execve, which may never come. The worker releases all threads when its
        // answer has no receiver.
        let threads = match answered.recv_timeout(patience + SEIZING) {
            Ok(answer) => answer?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(StopError::TooSlow {
                    pid,
                    patience: patience + SEIZING,
                    lasted: Duration::ZERO,
                });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(StopError::Ended { pid }),
        };
        Ok(Self {
            threads,
            release: Some(release),
            worker: Some(worker),
        })
    }

    /// The threads as they stand.
    pub(in crate::holders) fn threads(&self) -> &[Stopped] {
        &self.threads
    }

    /// Resumes the process. If memtrace's own thread failed, there is nothing to report.
    pub(in crate::holders) fn end(mut self) -> Option<Ended> {
        self.release()
    }

    fn release(&mut self) -> Option<Ended> {
        drop(self.release.take());
        self.worker.take()?.join().ok()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.release();
    }
}

impl Threads {
    /// Waits until all threads of a process that somebody else stops have stopped; false: they do not.
    pub(in crate::holders) fn stand_still(pid: u32) -> bool {
        let begun = Instant::now();
        loop {
            let tids = tasks::threads(pid).unwrap_or_default();
            if tids.into_iter().all(tasks::stands_still) {
                return true;
            }
            if begun.elapsed() >= PATIENCE_FOR_ALL {
                return false;
            }
            thread::sleep(LOOK);
        }
    }

    /// Those of a process that is not to be stopped. Only of those that wait in the kernel is it known where they are.
    pub(in crate::holders) fn untouched(pid: u32) -> Self {
        let tids = tasks::threads(pid).unwrap_or_default();
        let threads = tids.into_iter().map(|tid| Stopped::new(tid, None));
        Self::Stopped(threads.collect())
    }

    /// Calls `with` for each thread, with the registers that it has if it can be stopped, and its stack pointer.
    /// One that runs is stopped meanwhile.
    pub(super) fn each<T: Send>(&self, with: impl Fn(&Stopped) -> T + Sync) -> Vec<T> {
        match self {
            Self::Stopped(threads) => threads.iter().map(with).collect(),
            Self::Running(pid) => {
                let tids = tasks::threads(*pid).unwrap_or_default();
                let executes = tasks::is_executing(*pid);
                let visit = || match executes {
                    true => tids
                        .iter()
                        .map(|&tid| with(&Stopped::new(tid, None)))
                        .collect(),
                    false => tids.iter().map(|&tid| one(tid, &with)).collect(),
                };
                // A thread that ends releases everything it traces.
                thread::scope(|scope| scope.spawn(visit).join()).unwrap_or_default()
            }
        }
    }

    /// As [`Threads::each`], for one thread; `None`: unknown.
    pub(super) fn with<T: Send>(&self, tid: u32, with: impl Fn(&Stopped) -> T + Sync) -> Option<T> {
        match self {
            Self::Stopped(threads) => threads.iter().find(|thread| thread.tid == tid).map(with),
            Self::Running(pid) if tasks::is_executing(*pid) => Some(with(&Stopped::new(tid, None))),
            Self::Running(_) => thread::scope(|scope| scope.spawn(|| one(tid, &with)).join()).ok(),
        }
    }
}

fn one<T>(tid: u32, with: &impl Fn(&Stopped) -> T) -> T {
    let mut tracees = Tracees::default();
    tracees.stop_one(tid);
    let registers = tracees.stopped.get(&tid).copied().flatten();
    let result = with(&Stopped::new(tid, registers));
    tracees.release();
    result
}

/// The life of the thread that holds the process.
fn hold(
    pid: u32,
    patience: Duration,
    until: &Until,
    answer: &Sender<Result<Vec<Stopped>, StopError>>,
    released: &Receiver<()>,
) -> Ended {
    let _urgent = Urgent::new();
    let mut tracees = Tracees::default();
    let mut was_cut = false;
    let result = match tracees.stop(pid, patience) {
        Ok(()) => {
            was_cut = answer.send(Ok(tracees.threads())).is_ok()
                && until.comes_before(released, tracees.lasted());
            Ok(())
        }
        Err(error) => Err(error),
    };
    let lasted = tracees.release();
    // Only now may another attempt begin.
    if let Err(error) = result {
        let _ = answer.send(Err(match error {
            StopError::TooSlow { pid, patience, .. } => StopError::TooSlow {
                pid,
                patience,
                lasted,
            },
            error => error,
        }));
    }
    Ended { lasted, was_cut }
}

/// This thread runs before others while a process waits for it. Without the right to that, it does not.
pub(in crate::holders) struct Urgent {
    /// Policy and priority.
    before: Option<(libc::c_long, libc::c_int)>,
}

impl Urgent {
    pub(in crate::holders) fn new() -> Self {
        // The kernel's `struct sched_param` is one integer. musl's functions for these calls always fail.
        let mut before: libc::c_int = 0;
        let urgent: libc::c_int = 1;
        // SAFETY: 0 is this thread; the priorities are read and written by these calls only.
        let before = unsafe {
            let policy = libc::syscall(libc::SYS_sched_getscheduler, 0);
            (policy >= 0
                && libc::syscall(libc::SYS_sched_getparam, 0, &raw mut before) == 0
                && libc::syscall(
                    libc::SYS_sched_setscheduler,
                    0,
                    libc::SCHED_FIFO,
                    &raw const urgent,
                ) == 0)
                .then_some((policy, before))
        };
        Self { before }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some((policy, priority)) = self.before {
            // SAFETY: as above.
            unsafe {
                libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority);
            }
        }
    }
}

impl Until {
    /// Waits until the stop is released or times out, and returns whether it timed out. It has `lasted` this long.
    fn comes_before(&self, released: &Receiver<()>, lasted: Duration) -> bool {
        match self {
            Self::Lasted(time) => {
                let left = time.saturating_sub(lasted);
                released.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
            }
            Self::Ended(is_over) => loop {
                if is_over.load(Ordering::Relaxed) {
                    return true;
                }
                if released.recv_timeout(ENDING) != Err(RecvTimeoutError::Timeout) {
                    return false;
                }
            },
        }
    }
}

impl Stopped {
    fn new(tid: u32, registers: Option<ThreadRegisters>) -> Self {
        let sp = registers.as_ref().map(|it| arch::unwinding_from(it).sp);
        Self {
            tid,
            registers,
            sp: sp.or_else(|| tasks::blocked_at(tid)),
        }
    }
}

/// The threads that this thread traces.
#[derive(Default)]
pub(super) struct Tracees {
    /// Asked to stop.
    running: Vec<u32>,
    /// Their registers.
    pub(super) stopped: HashMap<u32, Option<ThreadRegisters>>,
    /// When the first was asked.
    begun: Option<Instant>,
}

impl Tracees {
    pub(super) fn stop(&mut self, pid: u32, patience: Duration) -> Result<(), StopError> {
        loop {
            let tids = tasks::threads(pid).map_err(|_| StopError::Ended { pid })?;
            let mut new = Vec::new();
            // To trace a thread does not stop it: that comes for all at once.
            for tid in tids {
                if self.stopped.contains_key(&tid) || self.running.contains(&tid) {
                    continue;
                }
                match ptrace::seize_alone(tid) {
                    Ok(()) => new.push(tid),
                    Err(_) if tasks::has_ended(tid) => {}
                    Err(source) => return Err(refused(pid, tid, source)),
                }
            }
            // No thread is left that could make another one.
            if new.is_empty() {
                break;
            }
            self.interrupt(&new);
            if !self.wait(patience) {
                return Err(StopError::TooSlow {
                    pid,
                    patience,
                    lasted: self.lasted(),
                });
            }
        }
        match self.stopped.is_empty() && self.running.is_empty() {
            true => Err(StopError::Ended { pid }),
            false => Ok(()),
        }
    }

    /// Stops a thread by itself, if it can be stopped.
    pub(super) fn stop_one(&mut self, tid: u32) {
        if ptrace::seize_alone(tid).is_ok() {
            self.interrupt(&[tid]);
            self.wait(PATIENCE_WITH_ONE);
        }
    }

    fn interrupt(&mut self, tids: &[u32]) {
        self.begun.get_or_insert_with(Instant::now);
        self.running.extend_from_slice(tids);
        for &tid in tids {
            // The end of one that has ended is waited for like a stop.
            let _ = ptrace::interrupt(tid);
        }
    }

    /// Since the first was asked to stop.
    fn lasted(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Whether all that can stop did so within this time after the first was asked.
    fn wait(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            self.see_stops();
            let is_doubtful = begun.elapsed() >= DOUBT;
            if self.running.is_empty()
                || is_doubtful
                    && self
                        .running
                        .iter()
                        .all(|&tid| tasks::is_uninterruptible(tid))
            {
                return true;
            }
            if self.lasted() >= patience {
                return false;
            }
            thread::sleep(LOOK);
        }
    }

    fn see_stops(&mut self) {
        while let Some((tid, status)) = ptrace::wait_sparing_children() {
            if let Status::Signal(signal) = status {
                // A signal kept until the end of the stop would be lost if memtrace were killed. The thread stops again
                // before it handles the signal.
                registers_of(tid, status);
                match ptrace::resume(tid, signal) {
                    Ok(()) => continue,
                    // It was killed meanwhile, and its end is reported soon.
                    Err(_) => break,
                }
            }
            let before = self.running.len();
            self.running.retain(|&running| running != tid);
            if status != Status::Ended {
                self.stopped.insert(tid, registers_of(tid, status));
            } else if self.running.len() == before {
                break;
            }
        }
    }

    pub(super) fn threads(&self) -> Vec<Stopped> {
        let stopped = self.stopped.iter();
        let stopped = stopped.map(|(&tid, &registers)| Stopped::new(tid, registers));
        let running = self.running.iter().map(|&tid| Stopped::new(tid, None));
        stopped.chain(running).collect()
    }

    /// Resumes all threads, and returns for how long the stopped ones were held. The others are released as they stop,
    /// or by this thread's end.
    pub(super) fn release(mut self) -> Duration {
        self.detach();
        let lasted = self.lasted();
        let late = Instant::now() + LATE;
        while !self.running.is_empty() && Instant::now() < late {
            thread::sleep(LOOK);
            self.see_stops();
            self.detach();
        }
        lasted
    }

    fn detach(&mut self) {
        for (tid, _) in self.stopped.drain() {
            // One that was killed meanwhile has nothing to be detached from.
            let _ = ptrace::detach(tid, 0);
        }
    }
}

/// The registers of a thread that has stopped, whose system call does not show it.
fn registers_of(tid: u32, status: Status) -> Option<ThreadRegisters> {
    let registers = ptrace::registers(tid).ok()?;
    // A thread that another stop reaches as well sees EINTR without memtrace, too.
    if status != Status::GroupStop {
        interrupted::repeat(tid, registers);
    }
    Some(registers)
}

fn refused(pid: u32, tid: u32, source: io::Error) -> StopError {
    match tasks::tracer_of(tid) {
        Some(tracer) if tracer != 0 => {
            // A thread of it.
            let tracer = tasks::tgid_of(tracer).unwrap_or(tracer);
            StopError::TracedAlready {
                pid,
                tracer,
                name: tasks::name_of(tracer),
            }
        }
        _ => StopError::Refused { pid, source },
    }
}
