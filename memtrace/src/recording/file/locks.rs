//! SQLite's locks on bytes of the file (<https://sqlite.org/lockingv3.html>), so that other SQLite programs may read a
//! recording that is being written. They belong to the open file: unlike POSIX's, they do not end when another
//! descriptor of this process is closed.

use std::{fs::File, io, os::fd::AsRawFd};

use rusqlite::ffi;

const PENDING: Bytes = Bytes(0x4000_0000, 1);
const RESERVED: Bytes = Bytes(0x4000_0001, 1);
const SHARED: Bytes = Bytes(0x4000_0002, 510);

/// The first, and their number.
#[derive(Clone, Copy)]
struct Bytes(i64, i64);

/// Raises the lock from level `now` to `level` (`SQLITE_LOCK_*`). Returns the level held now: lower than `level` if
/// another process has a lock in the way.
///
/// # Errors
/// The file system has no locks.
pub(super) fn raise(file: &File, now: i32, level: i32) -> io::Result<i32> {
    if now >= level {
        return Ok(now);
    }
    match level {
        ffi::SQLITE_LOCK_SHARED => {
            // A writer that waits for readers to end lets no more of them in.
            if !set(file, PENDING, libc::F_RDLCK)? {
                return Ok(now);
            }
            let shared = set(file, SHARED, libc::F_RDLCK);
            set(file, PENDING, libc::F_UNLCK)?;
            Ok(if shared? { level } else { now })
        }
        ffi::SQLITE_LOCK_RESERVED => {
            let done = set(file, RESERVED, libc::F_WRLCK)?;
            Ok(if done { level } else { now })
        }
        _ => {
            if now < ffi::SQLITE_LOCK_PENDING && !set(file, PENDING, libc::F_WRLCK)? {
                return Ok(now);
            }
            let done = set(file, SHARED, libc::F_WRLCK)?;
            Ok(if done {
                ffi::SQLITE_LOCK_EXCLUSIVE
            } else {
                ffi::SQLITE_LOCK_PENDING
            })
        }
    }
}

/// Lowers it to `level`, which is shared or none.
///
/// # Errors
/// The file system has no locks.
pub(super) fn lower(file: &File, level: i32) -> io::Result<()> {
    if level >= ffi::SQLITE_LOCK_SHARED {
        set(file, SHARED, libc::F_RDLCK)?;
    } else {
        set(file, SHARED, libc::F_UNLCK)?;
    }
    set(file, Bytes(PENDING.0, 2), libc::F_UNLCK)?;
    Ok(())
}

/// Whether somebody is writing it.
///
/// # Errors
/// The file system has no locks.
pub(super) fn is_reserved(file: &File) -> io::Result<bool> {
    let mut lock = flock(RESERVED, libc::F_WRLCK);
    // SAFETY: the descriptor is open, and `lock` lives.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        0 => Ok(i32::from(lock.l_type) != libc::F_UNLCK),
        _ => Err(io::Error::last_os_error()),
    }
}

/// False: another process has a lock in the way.
fn set(file: &File, bytes: Bytes, kind: i32) -> io::Result<bool> {
    let lock = flock(bytes, kind);
    // SAFETY: the descriptor is open, and `lock` lives.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn flock(Bytes(first, number): Bytes, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: first,
        l_len: number,
        l_pid: 0,
    }
}
