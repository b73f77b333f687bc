//! memtrace's own helper processes, which keep running when memtrace is stopped or killed: they release what they hold,
//! and end.

use std::{
    ffi::CStr,
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
};

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
