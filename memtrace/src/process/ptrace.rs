//! Requests of ptrace(2) and its wait statuses. Only the thread that has seized
//! a task may make requests about it.

use std::{io, mem, ptr};

use libc::{c_int, c_long, pid_t};

use super::tasks;
use crate::arch::{self, Request, ThreadRegisters, Tracee};

/// The wait status of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It has ended.
    Ended,
    /// It has created a task, which stops on its own and is traced too.
    Made,
    /// exec has succeeded; of its process it is the only thread, with the leader's tid.
    Exec,
    /// Its process was stopped by this signal (a group-stop), which its parent sees.
    GroupStop,
    /// A stop without a signal: its first, the end of a group-stop, or PTRACE_INTERRUPT.
    Trap,
    /// A signal is about to be delivered.
    Signal(c_int),
}

impl Status {
    fn of(status: c_int) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Self::Ended;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 => Self::Signal(signal),
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Self::Trap,
            libc::PTRACE_EVENT_STOP => Self::GroupStop,
            _ => Self::Made,
        }
    }
}

/// The next thread that has stopped or ended, if there is one.
pub(crate) fn wait() -> Option<(u32, Status)> {
    wait_for(-1)
}

/// The same of one thread; -1: of any.
fn wait_for(tid: pid_t) -> Option<(u32, Status)> {
    let mut status = 0;
    // Only for this thread: others may have children of their own.
    let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: waitpid writes one integer to a place that lives.
    let tid = unsafe { libc::waitpid(tid, &raw mut status, options) };
    let tid = u32::try_from(tid).ok().filter(|&tid| tid != 0)?;
    Some((tid, Status::of(status)))
}

/// As [`wait`], but two kinds are returned each time:
///
/// - The end of a process that this one has launched, which is left to whoever waits for its status.
/// - A signal, until the thread is resumed. If its tracer was killed before, it is delivered nevertheless. wait(2) would take
///   it from the thread (`wait_task_stopped`, kernel/exit.c).
pub(crate) fn wait_sparing_children() -> Option<(u32, Status)> {
    let events = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: all-zero bytes are a valid siginfo_t, and waitid writes one to a place that lives.
    let (tid, code, status) = unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let options = events | libc::__WALL | libc::__WNOTHREAD;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, options) != 0 {
            return None;
        }
        (info.si_pid(), info.si_code, info.si_status())
    };
    let which = u32::try_from(tid).ok().filter(|&tid| tid != 0)?;
    let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
    // Events have their number above the signal.
    let is_signal = code == libc::CLD_TRAPPED && status >> 8 == 0;
    match ends.contains(&code) && tasks::is_child(which) {
        true => Some((which, Status::Ended)),
        false if is_signal => Some((which, Status::Signal(status))),
        false => wait_for(tid),
    }
}

/// Whether this process traces a thread or is its parent: much faster than the thread's status in /proc.
pub(crate) fn traces(tid: u32) -> bool {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
    // SAFETY: all-zero bytes are a valid siginfo_t, and waitid writes one to a place that lives.
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        libc::waitid(libc::P_PID, tid, &raw mut info, options) == 0
    }
}

/// Makes this thread the tracer of `tid`, which does not stop for it, and of the tasks that `tid`
/// creates.
pub(crate) fn seize(tid: u32, with_children: bool) -> io::Result<()> {
    let mut options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
    if with_children {
        options |= libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
    }
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// As [`seize`], without the tasks that it creates.
pub(crate) fn seize_alone(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, 0)
}

/// Continues a stopped thread, with `signal` delivered unless it is 0.
pub(crate) fn resume(tid: u32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Leaves a thread in its group-stop, and hears of its end.
pub(crate) fn listen(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Has a running thread stop, as [`Status::Trap`].
pub(crate) fn interrupt(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// As [`resume`], and ends the tracing.
pub(crate) fn detach(tid: u32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// Whether the signal that is about to be delivered was sent by the kernel.
pub(crate) fn is_from_kernel(tid: u32) -> bool {
    // SAFETY: all-zero bytes are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let place = (&raw mut info) as usize;
    request(libc::PTRACE_GETSIGINFO, tid, 0, place).is_ok() && info.si_code == libc::SI_KERNEL
}

/// A system call after which a process is to have another tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// ptrace, which was refused.
    Refused {
        request: u64,
        /// As in the thread's pid namespace.
        pid: u32,
    },
    /// The thread has made a child that nobody traces, which is going to trace its parent.
    Cloned,
}

/// The call at whose return a thread is stopped, if it is one of those.
pub(crate) fn tracing_call(tid: u32) -> Option<Call> {
    let registers = registers(tid).ok()?;
    let call = arch::SystemCall::made(&registers);
    let is = |number: c_long| call.number == number.cast_unsigned();
    if is(libc::SYS_ptrace) && call.result == -i64::from(libc::EPERM) {
        let [request, pid] = arch::SystemCall::arguments(&registers, &Stopped(tid))?;
        let pid = pid as u32;
        return Some(Call::Refused { request, pid });
    }
    let has_cloned = (is(libc::SYS_clone) || is(libc::SYS_clone3)) && call.result > 0;
    has_cloned.then_some(Call::Cloned)
}

/// Has a thread, stopped at the return of a system call, make that call again.
pub(crate) fn repeat_call(tid: u32) -> io::Result<()> {
    let mut registers = registers(tid)?;
    match arch::SystemCall::repeat(&mut registers, &Stopped(tid)) {
        Some(()) => arch::write_registers(&Stopped(tid), &registers),
        None => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The same of a call that the stop has interrupted, unless a signal's handler runs first.
pub(crate) fn repeat_unless_handled(tid: u32, mut registers: ThreadRegisters) -> io::Result<()> {
    match arch::SystemCall::repeat_unless_handled(&mut registers, &Stopped(tid)) {
        Some(()) => arch::write_registers(&Stopped(tid), &registers),
        None => Ok(()),
    }
}

/// The registers of a stopped thread.
pub(crate) fn registers(tid: u32) -> io::Result<ThreadRegisters> {
    arch::read_registers(&Stopped(tid))
}

/// A stopped thread.
struct Stopped(u32);

impl Tracee for Stopped {
    fn ask(&self, what: Request, addr: usize, data: usize) -> io::Result<()> {
        request(what, self.0, addr, data)
    }

    fn read(&self, address: u64) -> Option<u64> {
        let mut word = 0;
        // As the system call does, and not the C libraries, whose result would be the word.
        let place = (&raw mut word) as usize;
        // SAFETY: the request writes a word to a place that lives.
        let result = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                c_long::from(libc::PTRACE_PEEKDATA),
                self.0 as pid_t,
                address,
                place,
            )
        };
        (result == 0).then_some(word)
    }

    fn is_about_to_handle_a_signal(&self) -> bool {
        // SAFETY: all-zero bytes are a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        let place = (&raw mut info) as usize;
        let is_known = request(libc::PTRACE_GETSIGINFO, self.0, 0, place).is_ok();
        // Stops without a signal have an event's number above it.
        let delivered = is_known && info.si_code >> 8 != libc::PTRACE_EVENT_STOP;
        tasks::handles_signal(self.0, delivered.then_some(info.si_signo))
    }
}

fn request(request: Request, tid: u32, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: `data` is a number, or an address that the request reads or writes.
    let result: c_long = unsafe {
        libc::ptrace(
            request,
            tid as pid_t,
            ptr::without_provenance_mut::<libc::c_void>(addr),
            ptr::with_exposed_provenance_mut::<libc::c_void>(data),
        )
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::process::ExitStatusExt, process::Command, thread};

    #[test]
    fn stops_are_distinguished() {
        let stop = |event: c_int, signal: c_int| Status::of(event << 16 | signal << 8 | 0x7f);
        let event_stop = libc::PTRACE_EVENT_STOP;
        for (status, expected) in [
            (stop(0, libc::SIGUSR1), Status::Signal(libc::SIGUSR1)),
            // Signals without a name of their own.
            (stop(0, 63), Status::Signal(63)),
            (stop(0, libc::SIGTRAP), Status::Signal(libc::SIGTRAP)),
            (stop(event_stop, libc::SIGTRAP), Status::Trap),
            (stop(event_stop, libc::SIGTSTP), Status::GroupStop),
            (stop(libc::PTRACE_EVENT_EXEC, libc::SIGTRAP), Status::Exec),
            (stop(libc::PTRACE_EVENT_CLONE, libc::SIGTRAP), Status::Made),
            (stop(libc::PTRACE_EVENT_VFORK, libc::SIGTRAP), Status::Made),
            (Status::of(3 << 8), Status::Ended),
            (Status::of(libc::SIGKILL), Status::Ended),
        ] {
            assert_eq!(status, expected);
        }
    }

    #[test]
    fn a_signal_outlives_a_tracer_that_knows_of_it() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let tid = child.id();
        let tracer = thread::spawn(move || {
            seize_alone(tid).unwrap();
            // SAFETY: no memory is involved.
            unsafe { libc::kill(tid.cast_signed(), libc::SIGTERM) };
            loop {
                match wait_sparing_children() {
                    Some(stop) => break stop,
                    None => thread::yield_now(),
                }
            }
        });
        assert_eq!(tracer.join().unwrap(), (tid, Status::Signal(libc::SIGTERM)));
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn the_status_of_a_launched_process_is_left_to_its_parent() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let tid = child.id();
        seize_alone(tid).unwrap();
        child.kill().unwrap();
        let end = loop {
            match wait_sparing_children() {
                Some(end) => break end,
                None => thread::yield_now(),
            }
        };
        assert_eq!(end, (tid, Status::Ended));
        assert_eq!(wait_sparing_children(), Some(end));
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
