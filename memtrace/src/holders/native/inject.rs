//! System calls that a stopped thread makes for memtrace. Afterwards its registers are restored, including which
//! of its own calls was interrupted, so the kernel restarts that one, as after any other stop.

use super::super::memory::{Live, Memory};
use super::stop::Held;
use crate::{
    arch::{self, SYSTEM_CALL, SystemCall},
    process::{
        maps,
        ptrace::{self, Status},
        tasks,
    },
};
use std::{
    io,
    time::{Duration, Instant},
};

/// How long a thread may take to begin a call. A frozen one does not begin.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most of a file's code that is searched for an instruction, bytes.
const MOST_CODE: u64 = 1 << 20;

/// Why a thread did not make a call.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(
        "its system calls are filtered (seccomp), and memtrace may not suspend that: {0}; run as root"
    )]
    Seccomp(#[source] io::Error),
    #[error("its thread {tid} cannot be made to call the kernel: {source}")]
    Failed { tid: u32, source: io::Error },
}

/// The result of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called {
    /// Negative: an error.
    pub(super) result: i64,
    /// The process that the call has made: stopped before its first instruction, and killed when the thread of
    /// memtrace that traces it ends.
    pub(super) made: Option<u32>,
}

/// A thread that can make calls.
pub(super) struct Caller {
    tid: u32,
    /// Address of an instruction that makes a system call.
    place: u64,
}

impl Caller {
    /// A stopped thread as one; `None`: it must not be disturbed now. `spare`: see [`instruction`].
    pub(super) fn new(tid: u32, held: &Held, memory: &Live, spare: Option<u64>) -> Option<Self> {
        let registers = held.registers.filter(arch::is_native)?;
        // A signal that is about to be delivered would be lost.
        if held.signal != 0 {
            return None;
        }
        let is_in_call = SystemCall::is_in(&registers);
        if !is_in_call && is_in_sequence(tid, memory) {
            return None;
        }
        let own = SystemCall::place(&registers);
        let has_own = is_in_call && has_instruction(memory, own);
        let place = if has_own { own } else { spare? };
        Some(Self { tid, place })
    }

    /// Makes a call; other arguments than these are 0. The thread is as before then, whether it worked or not.
    pub(super) fn call(
        &self,
        number: libc::c_long,
        arguments: [u64; 4],
    ) -> Result<Called, CallError> {
        let tid = self.tid;
        let failed = |source| CallError::Failed { tid, source };
        let registers = ptrace::registers(tid).map_err(failed)?;
        let blocked = ptrace::blocked_signals(tid).map_err(failed)?;
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD;
        // A filter may kill a process for a call.
        match tasks::is_under_seccomp(tid) {
            true => ptrace::set_options(tid, options | libc::PTRACE_O_SUSPEND_SECCOMP)
                .map_err(CallError::Seccomp)?,
            false => ptrace::set_options(tid, options).map_err(failed)?,
        }
        let mut changed = registers;
        SystemCall::make(&mut changed, self.place, number, arguments);
        // Nothing can block SIGSTOP.
        let mut taken = None;
        let called = ptrace::block_signals(tid, !0)
            .and_then(|()| ptrace::set_registers(tid, &changed))
            .and_then(|()| self.go_through(&mut taken));
        let restored = ptrace::set_registers(tid, &registers)
            .and_then(|()| ptrace::block_signals(tid, blocked))
            .and_then(|()| ptrace::set_options(tid, 0));
        if let (Some(signal), Some(pid)) = (taken, tasks::tgid_of(tid)) {
            // SAFETY: no memory is involved. The process is stopped, so its number is not another's.
            unsafe { libc::kill(pid.cast_signed(), signal) };
        }
        let called = called.map_err(failed)?;
        restored.map_err(failed)?;
        Ok(called)
    }

    /// Lets the thread make the call in its registers, up to a stop like the one before. `taken`: a signal that was
    /// about to be delivered meanwhile.
    fn go_through(&self, taken: &mut Option<i32>) -> io::Result<Called> {
        let called = self.returned(taken);
        // An interrupted call cannot be restored in the stop at the call's return.
        ptrace::interrupt(self.tid)?;
        if called.is_ok() {
            ptrace::resume(self.tid, 0)?;
        }
        // However long that takes: the thread's own registers must be put back.
        while !matches!(self.next(None, taken)?, Status::Trap | Status::GroupStop) {
            ptrace::resume(self.tid, 0)?;
        }
        called
    }

    /// The result of the call, at whose return the thread is stopped; an error if it did not begin.
    fn returned(&self, taken: &mut Option<i32>) -> io::Result<Called> {
        let mut made = None;
        let mut has_begun = false;
        loop {
            ptrace::resume_to_call(self.tid)?;
            // The call that has begun ends; there is nothing else to do.
            let patience = (!has_begun).then_some(PATIENCE);
            match self.next(patience, taken)? {
                Status::Call if has_begun => break,
                Status::Call => has_begun = true,
                Status::Made => made = Some(bound(self.tid)?),
                _ => {}
            }
        }
        let registers = ptrace::registers(self.tid)?;
        let result = SystemCall::made(&registers).result;
        Ok(Called { result, made })
    }

    fn next(&self, patience: Option<Duration>, taken: &mut Option<i32>) -> io::Result<Status> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let status = ptrace::wait_for(self.tid, deadline)?;
        match status {
            Status::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            Status::Signal(signal) => *taken = Some(signal),
            _ => {}
        }
        Ok(status)
    }
}

/// The process that a thread has just made, bound to the life of memtrace's own thread.
fn bound(tid: u32) -> io::Result<u32> {
    let made = ptrace::made(tid)?;
    ptrace::wait_for(made, None)?;
    ptrace::set_options(made, libc::PTRACE_O_EXITKILL)?;
    Ok(made)
}

/// Whether a thread may be in a restartable sequence (rseq(2)), which the kernel would forget about if the thread
/// were elsewhere meanwhile.
fn is_in_sequence(tid: u32, memory: &Live) -> bool {
    /// `struct rseq.rseq_cs`.
    const SEQUENCE: u64 = 8;
    ptrace::restartable_sequence(tid)
        .and_then(|address| memory.word(address + SEQUENCE))
        .is_some_and(|sequence| sequence != 0)
}

fn has_instruction(memory: &Live, place: u64) -> bool {
    let mut bytes = [0; SYSTEM_CALL.len()];
    memory.read(place, &mut bytes) && bytes == SYSTEM_CALL
}

/// The address of a system call instruction, for threads outside system calls: the kernel's own code in the process
/// (vDSO) has some, and so has the C library.
pub(super) fn instruction(pid: u32) -> Option<u64> {
    let mappings = maps::read(pid).ok()?;
    let memory = Live::new(pid);
    let mut code: Vec<&maps::Mapping> = mappings
        .iter()
        .filter(|mapping| mapping.permissions.execute && mapping.permissions.read)
        .collect();
    let is_of_kernel = |mapping: &maps::Mapping| {
        let path = mapping.path.as_deref();
        path.is_some_and(|path| path.as_os_str() == "[vdso]")
    };
    code.sort_by_key(|mapping| !is_of_kernel(mapping));
    code.into_iter().find_map(|mapping| {
        let mut bytes = vec![0; mapping.len().min(MOST_CODE) as usize];
        let found = memory.read(mapping.start, &mut bytes).then(|| {
            bytes
                .array_windows()
                .position(|window| window == &SYSTEM_CALL)
        })??;
        Some(mapping.start + found as u64)
    })
}
