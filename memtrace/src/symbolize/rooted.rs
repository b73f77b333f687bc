//! Opening files whose path a traced process may have made up.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

/// The directory that a process takes for `/`.
#[derive(Debug)]
pub(super) struct Root(File);

/// What becomes of a path whose last part is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    Refuse,
}

impl Root {
    /// `path` is `/`, or `/proc/PID/root`, which stays that process's root after it has ended.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let directory = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path)?;
        Ok(Self(directory))
    }

    /// Opens the regular file that the process means by `path`: links, absolute ones too, stay
    /// within the root. Nothing but a regular file is opened: opening a device can have effects, and
    /// a FIFO waits for its other end.
    ///
    /// # Errors
    /// `InvalidInput` for what is no regular file, such as a link to refuse; `ENOSYS` before Linux 5.6 (openat2(2)).
    pub(super) fn open_file(&self, path: &Path, last: LastLink) -> io::Result<File> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let follow = match last {
            LastLink::Follow => 0,
            LastLink::Refuse => libc::O_NOFOLLOW,
        };
        // SAFETY: all fields are integers; zero is what openat2(2) expects of those not set.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (libc::O_PATH | libc::O_CLOEXEC | follow) as u64;
        how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
        // SAFETY: path and `how` live, the size is that of `how`.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.0.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let found = unsafe { File::from_raw_fd(fd) };
        if !found.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected a regular file",
            ));
        }
        File::open(fd_path(&found))
    }
}

/// A path to the very inode of an open file, whatever its name means here; valid as long as the file is open.
pub(super) fn fd_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Read, os::unix::fs::symlink};

    #[test]
    fn links_stay_within_the_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("inside"), "inside").unwrap();
        symlink("/inside", dir.path().join("absolute")).unwrap();
        symlink("/etc/passwd", dir.path().join("host")).unwrap();
        symlink("../../../../inside", dir.path().join("up")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        for name in ["inside", "/inside", "/absolute", "up"] {
            let mut text = String::new();
            let mut file = root.open_file(Path::new(name), LastLink::Follow).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{name}");
        }
        let host = root.open_file(Path::new("host"), LastLink::Follow);
        assert_eq!(host.unwrap_err().kind(), io::ErrorKind::NotFound);
        let link = root.open_file(Path::new("absolute"), LastLink::Refuse);
        assert_eq!(link.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_processs_root_is_reached_through_proc() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let root = format!("/proc/{}/root", std::process::id());
        let root = Root::open(Path::new(&root)).unwrap();
        assert!(root.open_file(&path, LastLink::Follow).is_ok());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name lives.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let root = Root::open(Path::new("/")).unwrap();
        for path in [&*fifo, dir.path(), Path::new("/dev/null")] {
            let error = root.open_file(path, LastLink::Follow).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
