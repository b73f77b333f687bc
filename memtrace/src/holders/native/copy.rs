//! The helper that copies a process, by a system call that one of the process's own threads makes (clone(2) without
//! any flag): the memory is the program's, shared until either writes to it, and no instruction ever runs in it.
//!
//! The program does not notice: `wait(-1)` ignores a child that sends no signal when it ends, ptrace(2) holds the child
//! from its birth, and another such call reaps it afterwards. A separate process does all of this: if memtrace were
//! killed in the middle, nothing could restore a thread's registers or reap the copy. The copy itself ends with the
//! helper, however that ends.

use super::super::memory::Live;
use super::copied::{Gone, Made, Message};
use super::inject::{self, CallError, Called, Caller};
use super::stop::{PATIENCE_FOR_ALL, StopError, Tracees};
use crate::process::{
    ptrace::{self, Status},
    tasks,
};
use std::{
    fs, io,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

/// Attempts to find a thread that can make a call.
const TRIES: usize = 50;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Makes the out-of-memory killer choose the copy before any other process.
const FIRST_TO_GO: &str = "1000";

/// Copies a process, and keeps the copy until memtrace, at the other end of the line, has no use for it or is gone.
pub(super) fn keep(pid: u32, mut line: &UnixStream) {
    // Messages that cannot be sent are ignored: then memtrace is gone.
    let (made, number) = match make(pid) {
        Ok(made) => made,
        Err(error) => {
            let _ = Message::Failed(error.to_string()).send(line);
            return;
        }
    };
    let (copy, stopped) = (made.copy, made.stopped);
    let _ = Message::Made(made).send(line);
    // Nothing ever comes but the end.
    let _ = io::copy(&mut line, &mut io::sink());
    end(copy);
    let (is_reaped, stopped_again) = reap(pid, number);
    let longest_stop = stopped.max(stopped_again);
    let _ = Message::Gone(Gone {
        longest_stop,
        is_reaped,
    })
    .send(line);
}

/// A copy, and its number in the pid namespace of the program.
fn make(pid: u32) -> Result<(Made, u64), StopError> {
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
        // Only a preference: the kernel decides what it kills.
        let _ = fs::write(format!("/proc/{copy}/oom_score_adj"), FIRST_TO_GO);
        let made = Made {
            copy,
            threads,
            stopped,
        };
        return Ok((made, called.result.cast_unsigned()));
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

/// Kills a copy whose birth was not reported, because the thread that made it was killed in the middle. Untraced, it
/// would run.
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

/// Explains why the kernel refused a clone.
fn refusal(result: i64) -> String {
    let error = io::Error::from_raw_os_error(result.unsigned_abs() as i32);
    let why = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "its user or control group may not create more processes (RLIMIT_NPROC, pids.max)"
        }
        Some(libc::ENOMEM) => {
            "there is not enough memory, or the kernel will not commit as much again (vm.overcommit_memory)"
        }
        Some(libc::EPERM | libc::ENOSYS) => "it may not create processes",
        _ => return format!("clone failed: {error}"),
    };
    format!("{why}; use --stop")
}

/// Kills the copy and waits for its end.
fn end(copy: u32) {
    // SAFETY: no memory is involved. It has not been reaped, so its number is still its own.
    unsafe { libc::kill(copy.cast_signed(), libc::SIGKILL) };
    while ptrace::wait_for(copy, None).is_ok_and(|status| status != Status::Ended) {}
}

/// Reaps the copy. Returns whether that succeeded, and the longest stop of a thread of the program.
fn reap(pid: u32, number: u64) -> (bool, Duration) {
    let spare = inject::instruction(pid);
    let memory = Live::new(pid);
    let options = libc::__WALL | libc::WNOHANG;
    let arguments = [number, 0, options.cast_unsigned().into(), 0];
    let mut longest = Duration::ZERO;
    for _ in 0..TRIES {
        // If the process has ended, init inherits the copy.
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
