//! Events that the pauser waits for: stops and ends of traced threads, and messages.

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

/// A descriptor that is readable when a traced thread has stopped or ended.
pub(super) fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: all-zero bytes are a valid sigset_t; the calls read and write places that live.
    unsafe {
        let mut set = mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Takes the signals that have come; [`ptrace::wait`] finds their reasons.
pub(super) fn drain(children: &OwnedFd) {
    let mut buffer = [0_u8; 1024];
    // SAFETY: the buffer lives and has that many bytes.
    while unsafe {
        libc::read(
            children.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    } > 0
    {}
}

/// Waits until one of them is ready for its events, or for the time.
pub(super) fn poll(fds: &[(i32, i16)], timeout: Option<Duration>) -> io::Result<()> {
    let mut fds: Vec<libc::pollfd> = fds
        .iter()
        .map(|&(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        })
        .collect();
    let millis = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_millis())
            .unwrap_or(i32::MAX)
            .max(1)
    });
    // SAFETY: the list lives and has that many entries.
    match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}
