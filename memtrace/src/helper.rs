//! memtrace's own helper processes, which keep running when memtrace is stopped or killed: they release what they hold,
//! and end.

use rustix::{
    cmsg_space,
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};
use std::{
    ffi::CStr,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        mpsc::{RecvError, Sender, channel},
    },
    thread,
};

/// Starts processes in a thread that lives as long as memtrace: with `PR_SET_PDEATHSIG`, a process ends with the thread
/// that started it.
static STARTER: LazyLock<Sender<Box<dyn FnOnce() + Send>>> = LazyLock::new(|| {
    let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
    let run = move || receiver.into_iter().for_each(|start| start());
    // If there is no thread, sending fails.
    let _ = thread::Builder::new()
        .name("memtrace-start".to_owned())
        .spawn(run);
    sender
});

/// Starts a helper process while probes may be set.
///
/// # Errors
/// The thread or the process cannot be started, or the kernel refuses a descriptor.
pub(crate) fn start(subcommand: &'static str, line: &UnixStream) -> io::Result<Child> {
    let number = line.as_raw_fd();
    let spawn = move || {
        leave_descriptors()?;
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        let line = pidfd_getfd(own, number, PidfdGetfdFlags::empty())?;
        command(subcommand, line.into()).spawn()
    };
    let (sender, started) = channel();
    let start = Box::new(move || drop(sender.send(spawn())));
    let sent = STARTER.send(start).map_err(|_| RecvError);
    let started = sent.and_then(|()| started.recv());
    started.map_err(|_| io::Error::other("there is no thread that starts processes"))?
}

/// Sends some of the bytes, and a descriptor with them. Returns how many were sent. A signal does not end a wait.
///
/// # Errors
/// As sendmsg(2).
pub(crate) fn send(
    line: &UnixStream,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [IoSlice::new(bytes)];
    Ok(retry_on_intr(|| {
        sendmsg(line, &parts, &mut with, SendFlags::NOSIGNAL)
    })?)
}

/// Receives some bytes, and the descriptor that came with them. A signal does not end a wait.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn receive(line: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(line, &mut parts, &mut with, flags))?.bytes;
    let fd = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((received, fd))
}

/// Leaves the calling thread, and the processes that it starts, with the standard streams only. A new process has a copy
/// of every descriptor until its exec. If exec closes the last copy of a probe's descriptor, the new process removes the
/// probe, while memtrace takes it for removed already.
///
/// # Errors
/// The kernel is out of memory.
pub(crate) fn leave_descriptors() -> io::Result<()> {
    let (first, flags) = (3, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: only this thread's table changes, which is a new one; nothing that the thread uses is in it.
    match unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A hidden subcommand of this program, as a process in a session of its own. Its standard input is the `line` to
/// memtrace, whose end it sees; of other descriptors it inherits none.
pub(crate) fn command(subcommand: &str, line: UnixStream) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("memtrace")
        .arg(subcommand)
        .stdin(Stdio::from(OwnedFd::from(line)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: the calls are async-signal-safe, and nothing allocates.
    unsafe {
        command.pre_exec(|| {
            // memtrace's inherited descriptors must not be held open by a process that outlives
            // it.
            libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            // Signals from the terminal, such as Ctrl-Z, are not meant for it.
            libc::setsid();
            Ok(())
        });
    }
    command
}

/// To be called first in such a process: its line. Signals that would end or stop it are not meant for it.
pub(crate) fn begin(name: &CStr) -> UnixStream {
    // SAFETY: the name ends in a zero; otherwise it would be `exe`. Standard input is the line, and nothing else owns
    // it.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        for signal in [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGPIPE,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        UnixStream::from(OwnedFd::from_raw_fd(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::Read, time::Duration};

    #[test]
    fn a_helper_has_its_line_as_standard_input() {
        let (own, other) = UnixStream::pair().unwrap();
        // This program runs the tests of that name: none. The process ends, and the line with it.
        let mut child = start("no-such-test", &other).unwrap();
        drop(other);
        assert_eq!((&own).read(&mut [0]).unwrap(), 0);
        assert!(child.wait().unwrap().success());
    }

    extern "C" fn ignore(_: libc::c_int) {}

    #[test]
    fn a_signal_does_not_end_a_wait() {
        let (own, other) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGURG, ignore as *const () as libc::sighandler_t) };
        let (sender, tid) = channel();
        let waiting = thread::spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            receive(&own, &mut [0; 8]).unwrap().0
        });
        let tid = tid.recv().unwrap().as_raw_nonzero();
        let stat = format!("/proc/self/task/{tid}/syscall");
        let is_waiting = || {
            let call = std::fs::read_to_string(&stat).unwrap_or_default();
            call.starts_with(&format!("{} ", libc::SYS_recvmsg))
        };
        while !is_waiting() {
            thread::yield_now();
        }
        // SAFETY: no memory is involved.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGURG) };
        send(&other, b"answer", None).unwrap();
        assert_eq!(waiting.join().unwrap(), 6);
    }

    #[test]
    fn a_new_process_has_no_copies_of_descriptors() {
        let file = File::open("/dev/null").unwrap();
        // A number that the new process does not use for its own descriptors.
        // SAFETY: the file is open.
        let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 500) };
        assert!(number >= 500);
        let spawn = move || {
            leave_descriptors().unwrap();
            let mut command = Command::new("true");
            // SAFETY: nothing allocates.
            unsafe {
                command.pre_exec(move || match libc::fcntl(number, libc::F_GETFD) {
                    -1 => Ok(()),
                    _ => Err(io::ErrorKind::AlreadyExists.into()),
                });
            }
            command.status().unwrap()
        };
        assert!(thread::spawn(spawn).join().unwrap().success());
        // This process has it still.
        // SAFETY: nothing else owns it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
