//! State inherited by this process at its start, as far as Rust's runtime changes it before `main`:
//! a launched command is to get the same.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

/// SIGPIPE was ignored. The runtime ignores it in any case.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Standard input, output and error were open. The runtime opens /dev/null in place of those that
/// were not.
static OPEN: [AtomicBool; 3] = [const { AtomicBool::new(true) }; 3];

#[used]
// SAFETY: the C library calls the entries of this section, as functions of this type, before
// `main`.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: all-zero bytes are a valid sigaction; the calls change nothing but that.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGPIPE, ptr::null(), &mut now) == 0 {
            SIGPIPE_IGNORED.store(now.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        for (fd, open) in (0..).zip(&OPEN) {
            open.store(libc::fcntl(fd, libc::F_GETFD) != -1, Ordering::Relaxed);
        }
    }
}

/// A descriptor that this process was given for itself: a launched command does not get it.
///
/// # Errors
/// It is not open, or it is standard input, output or error.
pub(crate) fn descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::other("0, 1 and 2 are the standard streams"));
    }
    // SAFETY: the call changes a flag of a descriptor, and no memory.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and whoever started this process has given it away.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether SIGPIPE was ignored.
pub(crate) fn ignored_sigpipe() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

/// Whether standard input, output and error were open.
pub(crate) fn open_streams() -> [bool; 3] {
    OPEN.each_ref().map(|open| open.load(Ordering::Relaxed))
}
