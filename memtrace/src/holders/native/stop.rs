//! A short stop of a process that neither the program nor its parent notices.
//!
//! Threads are held in stops of ptrace(2) by a thread of memtrace that does nothing else. Its end lets go what it
//! could not stop in time: the kernel detaches from threads that run, without a stop. It also goes on by itself when
//! nobody releases the process.
//!
//! What remains to be noticed: a system call whose time limit the kernel does not keep for a restart
//! (`epoll_wait` and those of [`RETURN_EINTR`]) waits that time once more.

use crate::{
    arch::SystemCall,
    process::{
        ptrace::{self, Status},
        tasks,
    },
};
use std::{
    collections::HashMap,
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long it may take until all threads have stopped.
const PATIENCE: Duration = Duration::from_millis(3);

/// The same for a thread by itself: until it stops, it runs.
const PATIENCE_WITH_ONE: Duration = Duration::from_millis(100);

/// No stop lasts longer than this, whatever is done with it.
const LONGEST: Duration = Duration::from_millis(50);

/// Where a thread that has not stopped in time is waited for: it may be about to.
const LATE: Duration = Duration::from_millis(20);

/// Between two looks at threads that are about to stop.
const LOOK: Duration = Duration::from_micros(20);

/// After this, threads that have not stopped are asked what they do.
const DOUBT: Duration = Duration::from_micros(500);

/// System calls that a stop ends with EINTR, where the kernel makes others again by itself (signal(7),
/// "Interruption of system calls and library functions by stop signals").
const RETURN_EINTR: [libc::c_long; 19] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    // Of sockets with a time limit (SO_RCVTIMEO, SO_SNDTIMEO).
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
];

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
    TooSlow { pid: u32, patience: Duration },
    #[error("cannot start a thread: {0}")]
    NoThread(#[source] io::Error),
}

impl StopError {
    /// Whether another attempt may succeed. The kernel takes a moment to detach what a stop of memtrace's own, which came
    /// too late, has left behind.
    pub(in crate::holders) fn may_pass(&self) -> bool {
        match self {
            Self::TooSlow { .. } => true,
            Self::TracedAlready { tracer, .. } => *tracer == std::process::id(),
            _ => false,
        }
    }
}

/// A thread of a stopped process.
#[derive(Clone, Debug)]
pub(in crate::holders) struct Stopped {
    pub(in crate::holders) tid: u32,
    /// `None`: it waits in the kernel, for a disk or the like, and cannot be stopped. It runs no code of the program,
    /// though the kernel may write what it waits for to the program's memory.
    pub(in crate::holders) registers: Option<libc::user_regs_struct>,
}

/// A process of which no thread runs, until this is dropped. Threads of memtrace that wait for children must
/// not wait for this one meanwhile: its stop would be reported to them.
pub(in crate::holders) struct Stop {
    threads: Vec<Stopped>,
    /// Closed to let the process go.
    release: Option<Sender<()>>,
    worker: Option<JoinHandle<Ended>>,
}

/// How a stop went.
#[derive(Clone, Copy, Debug)]
pub(in crate::holders) struct Ended {
    /// From the first thread's stop to the last one's release.
    pub(in crate::holders) lasted: Duration,
    /// It took too long, so the process went on before it was released: what was read last may be torn.
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
        let (answer, answered) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let worker = thread::Builder::new()
            .name("stop".into())
            .spawn(move || hold(pid, patience, &answer, &released))
            .map_err(StopError::NoThread)?;
        let threads = answered.recv().map_err(|_| StopError::Ended { pid })??;
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

    /// Lets the process go on. Nothing says more if memtrace's own thread failed.
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

/// Calls `with` for each thread of a process while that one thread is stopped, but `None` for those that cannot be
/// stopped now.
pub(super) fn one_by_one<T: Send>(
    pid: u32,
    with: impl Fn(u32, Option<&libc::user_regs_struct>) -> T + Sync,
) -> Vec<T> {
    let tids = tasks::threads(pid).unwrap_or_default();
    let visit = || tids.iter().map(|&tid| one(tid, &with)).collect();
    // The end of a thread releases what it traces.
    thread::scope(|scope| scope.spawn(visit).join()).unwrap_or_default()
}

/// As [`one_by_one`], for one thread.
pub(super) fn with_thread<T: Send>(
    tid: u32,
    with: impl Fn(u32, Option<&libc::user_regs_struct>) -> T + Sync,
) -> Option<T> {
    thread::scope(|scope| scope.spawn(|| one(tid, &with)).join()).ok()
}

fn one<T>(tid: u32, with: &impl Fn(u32, Option<&libc::user_regs_struct>) -> T) -> T {
    let mut tracees = Tracees::default();
    if tracees.seize(tid).is_ok() {
        tracees.wait(Instant::now() + PATIENCE_WITH_ONE);
    }
    let registers = tracees.stopped.get(&tid).and_then(|held| held.registers);
    let result = with(tid, registers.as_ref());
    tracees.release();
    result
}

/// The life of the thread that holds the process.
fn hold(
    pid: u32,
    patience: Duration,
    answer: &Sender<Result<Vec<Stopped>, StopError>>,
    released: &Receiver<()>,
) -> Ended {
    let begun = Instant::now();
    let mut tracees = Tracees::default();
    let result = tracees.stop(pid, patience);
    let is_stopped = result.is_ok();
    let is_heard = answer.send(result.map(|()| tracees.threads())).is_ok();
    let was_cut = is_stopped
        && is_heard
        && released.recv_timeout(LONGEST.max(patience)) == Err(mpsc::RecvTimeoutError::Timeout);
    tracees.release();
    Ended {
        lasted: begun.elapsed(),
        was_cut,
    }
}

/// A thread in a stop.
struct Held {
    /// To be delivered when it goes on; 0: none.
    signal: i32,
    registers: Option<libc::user_regs_struct>,
}

/// The threads that this thread traces.
#[derive(Default)]
struct Tracees {
    /// Told to stop.
    running: Vec<u32>,
    stopped: HashMap<u32, Held>,
}

impl Tracees {
    fn stop(&mut self, pid: u32, patience: Duration) -> Result<(), StopError> {
        let deadline = Instant::now() + patience;
        loop {
            let tids = tasks::threads(pid).map_err(|_| StopError::Ended { pid })?;
            let mut found_new = false;
            for tid in tids {
                if self.stopped.contains_key(&tid) || self.running.contains(&tid) {
                    continue;
                }
                match self.seize(tid) {
                    Ok(()) => found_new = true,
                    Err(_) if tasks::has_ended(tid) => {}
                    Err(source) => return Err(refused(pid, tid, source)),
                }
            }
            if !self.wait(deadline) {
                return Err(StopError::TooSlow { pid, patience });
            }
            // No thread is left that could make another one.
            if !found_new {
                break;
            }
        }
        match self.stopped.is_empty() && self.running.is_empty() {
            true => Err(StopError::Ended { pid }),
            false => Ok(()),
        }
    }

    fn seize(&mut self, tid: u32) -> io::Result<()> {
        ptrace::seize_alone(tid)?;
        self.running.push(tid);
        ptrace::interrupt(tid)
    }

    /// Whether all have stopped, but for those that cannot.
    fn wait(&mut self, deadline: Instant) -> bool {
        let begun = Instant::now();
        loop {
            while let Some((tid, status)) = ptrace::wait() {
                self.running.retain(|&running| running != tid);
                if status != Status::Ended {
                    self.stopped.insert(tid, Held::new(tid, status));
                }
            }
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
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOK);
        }
    }

    fn threads(&self) -> Vec<Stopped> {
        let stopped = self.stopped.iter().map(|(&tid, held)| Stopped {
            tid,
            registers: held.registers,
        });
        let running = self.running.iter().map(|&tid| Stopped {
            tid,
            registers: None,
        });
        stopped.chain(running).collect()
    }

    /// Lets all go on. Those that have not stopped yet are let go as they stop, or by this thread's end.
    fn release(mut self) {
        let deadline = Instant::now() + LATE;
        let mut is_over = false;
        loop {
            for (tid, held) in self.stopped.drain() {
                // One that was killed meanwhile has nothing to be detached from.
                let _ = ptrace::detach(tid, held.signal);
            }
            if self.running.is_empty() || is_over {
                break;
            }
            is_over = !self.wait(deadline) || self.stopped.is_empty();
        }
    }
}

impl Held {
    fn new(tid: u32, status: Status) -> Self {
        let registers = ptrace::registers(tid).ok();
        // A thread that another stop reaches as well sees EINTR without memtrace, too.
        if let Some(mut registers) = registers
            && status != Status::GroupStop
            && is_interrupted(&registers)
        {
            SystemCall::repeat_unless_handled(&mut registers);
            let _ = ptrace::set_registers(tid, &registers);
        }
        Self {
            signal: match status {
                Status::Signal(signal) => signal,
                _ => 0,
            },
            registers,
        }
    }
}

/// Whether the thread's system call would tell the program of the stop.
fn is_interrupted(registers: &libc::user_regs_struct) -> bool {
    let call = SystemCall::made(registers);
    call.result == -i64::from(libc::EINTR)
        && RETURN_EINTR
            .iter()
            .any(|&number| number.cast_unsigned() == call.number)
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
