//! Descriptors that the session waits for.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};
use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor that becomes readable when the process ends.
pub(super) fn pidfd(tgid: u32) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tgid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    watch(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

pub(super) fn watch<T: AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: both things watched here, a ring buffer and a pidfd, own their
    // descriptor and keep the same one until they are dropped.
    Ok(unsafe { AsyncFd::register_with_interest(source, Interest::READABLE) }?)
}
