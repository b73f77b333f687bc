//! The user who typed the command, and access to files with their rights.

use std::{
    ffi::{CStr, OsStr},
    io,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    ptr,
};

use crate::rights::Rights;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    gid: u32,
    /// Not the effective user: root by sudo.
    other: bool,
}

impl User {
    pub(super) fn invoking() -> User {
        // SAFETY: geteuid and getegid have no preconditions and cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let id = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        let sudo = id("SUDO_UID").zip(id("SUDO_GID"));
        let (uid, gid, other) = match sudo.filter(|sudo| uid == 0 && sudo.0 != 0) {
            Some((uid, gid)) => (uid, gid, true),
            None => (uid, gid, false),
        };
        User { uid, gid, other }
    }

    /// Whether it is not the effective user.
    pub(super) fn is_other(&self) -> bool {
        self.other
    }

    /// The folder for cached data.
    pub(super) fn cache_home(&self) -> Option<PathBuf> {
        if self.other {
            // The environment is root's here.
            return Some(self.home()?.join(".cache")).filter(|path| path.is_absolute());
        }
        let from = |name| std::env::var_os(name).map(PathBuf::from);
        let absolute = |path: &PathBuf| path.is_absolute();
        let home = || from("HOME").map(|home| home.join(".cache"));
        let cache_home = from("XDG_CACHE_HOME").filter(absolute);
        cache_home.or_else(home).filter(absolute)
    }

    /// From the system's user database.
    fn home(&self) -> Option<PathBuf> {
        let mut buffer = vec![0; 16 << 10];
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are valid for writes, the buffer for its whole length.
        let result = unsafe {
            libc::getpwuid_r(
                self.uid,
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut found,
            )
        };
        if result != 0 || found.is_null() {
            return None;
        }
        // SAFETY: found points to `entry`, which is filled in; its strings are in the buffer.
        let home = unsafe { CStr::from_ptr((*found).pw_dir) };
        Some(PathBuf::from(OsStr::from_bytes(home.to_bytes())))
    }

    /// Runs `access` with this user's rights to files.
    ///
    /// # Errors
    /// Those of `access`, and when the rights cannot be taken on.
    pub(super) fn run<T>(&self, access: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.other {
            true => Rights::of_user(self.uid, self.gid).run(access),
            false => access(),
        }
    }
}
