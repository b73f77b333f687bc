//! A copy of a process as of one moment, made by a system call that one of its own threads makes (clone(2) without any
//! flag): the memory is the program's, shared until either writes to it, and no instruction ever runs in it.
//!
//! The program does not notice: a child that sends no signal when it ends is not waited for by `wait(-1)`, it is held
//! by ptrace(2) from its birth, and afterwards another such call takes it away. Its end comes with memtrace's, however
//! that ends; only what is left of a killed child, an entry in the table of processes, stays then.

use super::super::memory::Live;
use super::inject::{self, CallError, Called, Caller};
use super::stop::{PATIENCE_FOR_ALL, StopError, Stopped, Tracees};
use crate::process::{
    ptrace::{self, Status},
    tasks,
};
use std::{
    fs, io,
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Attempts to find a thread that can make a call.
const TRIES: usize = 50;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// What the out-of-memory killer adds to the badness of the copy: it is ended before any other process.
const FIRST_TO_GO: &str = "1000";

/// See the module. It is ended when this is dropped.
pub(in crate::holders) struct Copied {
    made: Made,
    /// Closed to end the copy.
    release: Option<Sender<()>>,
    worker: Option<JoinHandle<Gone>>,
}

struct Made {
    /// Its number.
    copy: u32,
    /// The same in the pid namespace of the program.
    number: u64,
    /// As they were.
    threads: Vec<Stopped>,
    stopped: Duration,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::holders) struct Gone {
    /// The longest time for which the program was stopped.
    pub(in crate::holders) longest_stop: Duration,
    /// Nothing of it is left in the table of processes.
    pub(in crate::holders) is_reaped: bool,
}

impl Copied {
    /// Copies a process.
    ///
    /// # Errors
    /// It cannot be stopped, or may not or cannot make a process.
    pub(in crate::holders) fn new(pid: u32) -> Result<Self, StopError> {
        let (answer, answered) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let worker = thread::Builder::new()
            .name("copy".into())
            .spawn(move || keep(pid, &answer, &released))
            .map_err(StopError::NoThread)?;
        let made = answered.recv().map_err(|_| StopError::Ended { pid })??;
        Ok(Self {
            made,
            release: Some(release),
            worker: Some(worker),
        })
    }

    /// The process that has the memory.
    pub(in crate::holders) fn pid(&self) -> u32 {
        self.made.copy
    }

    /// The program's threads at the moment of the copy.
    pub(in crate::holders) fn threads(&self) -> &[Stopped] {
        &self.made.threads
    }

    /// For how long the program was stopped.
    pub(in crate::holders) fn stopped(&self) -> Duration {
        self.made.stopped
    }

    /// Ends the copy. Nothing says more if memtrace's own thread failed.
    pub(in crate::holders) fn end(mut self) -> Option<Gone> {
        self.release()
    }

    fn release(&mut self) -> Option<Gone> {
        drop(self.release.take());
        self.worker.take()?.join().ok()
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.release();
    }
}

/// The life of the thread that holds the copy.
fn keep(pid: u32, answer: &Sender<Result<Made, StopError>>, released: &Receiver<()>) -> Gone {
    let (copy, number, stopped) = match make(pid) {
        Ok(made) => {
            let known = (made.copy, made.number, made.stopped);
            let _ = answer.send(Ok(made));
            known
        }
        Err(error) => {
            let _ = answer.send(Err(error));
            return Gone {
                longest_stop: Duration::ZERO,
                is_reaped: true,
            };
        }
    };
    // The other end is never used but closed.
    let _ = released.recv();
    end(copy);
    let (is_reaped, stopped_again) = reap(pid, number);
    Gone {
        longest_stop: stopped.max(stopped_again),
        is_reaped,
    }
}

fn make(pid: u32) -> Result<Made, StopError> {
    let not_copied = |why: String| StopError::NotCopied { pid, why };
    let spare = inject::instruction(pid);
    let memory = Live::new(pid);
    for _ in 0..TRIES {
        let begun = Instant::now();
        let mut tracees = Tracees::default();
        tracees.stop(pid, PATIENCE_FOR_ALL)?;
        let threads = tracees.threads();
        let called = by_any(&tracees, &memory, spare, libc::SYS_clone, [0; 4]);
        tracees.release();
        let stopped = begun.elapsed();
        if let Some(Err(CallError::Failed { .. })) = called {
            end_strays(pid);
        }
        let Some(called) = called else {
            thread::sleep(PAUSE);
            continue;
        };
        let called = called.map_err(|error| not_copied(error.to_string()))?;
        let Some(copy) = called.made else {
            return Err(not_copied(refusal(called.result)));
        };
        // Only a wish: the kernel decides what it ends.
        let _ = fs::write(format!("/proc/{copy}/oom_score_adj"), FIRST_TO_GO);
        return Ok(Made {
            copy,
            number: called.result.cast_unsigned(),
            threads,
            stopped,
        });
    }
    Err(not_copied(
        "all of its threads are busy in a way that memtrace must not disturb; try again, or use --stop"
            .to_owned(),
    ))
}

/// Has one of the stopped threads make a call; `None`: none of them can now.
fn by_any(
    tracees: &Tracees,
    memory: &Live,
    spare: Option<u64>,
    number: libc::c_long,
    arguments: [u64; 4],
) -> Option<Result<Called, CallError>> {
    let mut threads = tracees.stopped.iter();
    let caller = threads.find_map(|(&tid, held)| Caller::new(tid, held, memory, spare))?;
    Some(caller.call(number, arguments))
}

/// Kills a copy whose birth was not reported, because the thread that made it was killed in the middle: it would run
/// once nobody traces it.
fn end_strays(pid: u32) {
    /// It stops at once, on a machine that is not too busy.
    const PATIENCE: Duration = Duration::from_secs(1);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match ptrace::wait() {
            Some((tid, status)) if status != Status::Ended && tasks::tgid_of(tid) != Some(pid) => {
                return end(tid);
            }
            Some(_) => {}
            None => thread::sleep(PAUSE),
        }
    }
}

/// What the kernel's refusal of a clone means, in words.
fn refusal(result: i64) -> String {
    let error = io::Error::from_raw_os_error(result.unsigned_abs() as i32);
    let why = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "its user or its control group may have no more processes (RLIMIT_NPROC, pids.max)"
        }
        Some(libc::ENOMEM) => {
            "there is not enough memory, or the kernel may not promise as much again (vm.overcommit_memory)"
        }
        Some(libc::EPERM | libc::ENOSYS) => "it may not make processes",
        _ => return format!("clone failed: {error}"),
    };
    format!("{why}; use --stop")
}

/// Kills the copy and waits for its end.
fn end(copy: u32) {
    // SAFETY: no memory is involved. Nobody has waited for it yet, so its number is not another's.
    unsafe { libc::kill(copy.cast_signed(), libc::SIGKILL) };
    while ptrace::wait_for(copy, None).is_ok_and(|status| status != Status::Ended) {}
}

/// Takes what is left of the copy out of the table of processes: whether that is done, and for how long a thread of
/// the program was stopped at most.
fn reap(pid: u32, number: u64) -> (bool, Duration) {
    let spare = inject::instruction(pid);
    let memory = Live::new(pid);
    let options = libc::__WALL | libc::WNOHANG;
    let arguments = [number, 0, options.cast_unsigned().into(), 0];
    let mut longest = Duration::ZERO;
    for _ in 0..TRIES {
        // Of a process that has ended, init is the heir.
        let tids = tasks::threads(pid).unwrap_or_default();
        if tids.iter().all(|&tid| tasks::has_ended(tid)) {
            return (true, longest);
        }
        for tid in tids {
            let begun = Instant::now();
            let mut tracees = Tracees::default();
            tracees.stop_one(tid);
            let called = by_any(&tracees, &memory, spare, libc::SYS_wait4, arguments);
            tracees.release();
            longest = longest.max(begun.elapsed());
            if let Some(Ok(called)) = called {
                // The program itself may have waited for it, by __WALL.
                let is_gone = called.result == -i64::from(libc::ECHILD);
                return (is_gone || called.result > 0, longest);
            }
        }
        thread::sleep(PAUSE);
    }
    (false, longest)
}
