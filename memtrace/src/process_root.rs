//! Opening files whose path a traced process may have made up.

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
};

/// The directory that a process takes for `/`.
#[derive(Debug)]
pub(crate) struct Root(File);

/// How to treat a path whose last part is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Refuse,
}

impl Root {
    /// `path` is `/`, or `/proc/PID/root`, which stays that process's root after it has ended.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let directory = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path)?;
        Ok(Self(directory))
    }

    /// The root of process `tgid`, also after it has ended.
    ///
    /// # Errors
    /// It has ended already, or may not be inspected.
    pub(crate) fn of_process(tgid: u32) -> io::Result<Self> {
        Self::open(Path::new(&format!("/proc/{tgid}/root")))
    }

    /// Opens the regular file that the process means by `path`: links, absolute ones too, stay
    /// within the root. Nothing but a regular file is opened: opening a device can have effects, and
    /// a FIFO waits for its other end.
    ///
    /// # Errors
    /// `InvalidInput` for anything but a regular file, such as a link to refuse; `ENOSYS` before
    /// Linux 5.6 (openat2(2)).
    pub(crate) fn open_file(&self, path: &Path, last: LastLink) -> io::Result<File> {
        let found = self.find(path, last)?;
        if !found.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected a regular file",
            ));
        }
        File::open(fd_path(&found))
    }

    /// The first [`TEXT_AT_MOST`] bytes of a regular file, links followed; `None` if it cannot be
    /// read.
    pub(crate) fn read(&self, path: &Path) -> Option<String> {
        let mut bytes = Vec::new();
        let file = self.open_file(path, LastLink::Follow).ok()?;
        file.take(TEXT_AT_MOST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens the folder that the process means by `path`, links followed as for [`Root::open_file`].
    ///
    /// # Errors
    /// It is not there, or no folder.
    pub(crate) fn open_folder(&self, path: &Path) -> io::Result<Folder> {
        let found = self.find(path, LastLink::Follow)?;
        if !found.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Folder(found))
    }

    /// A descriptor that only refers to the file found (O_PATH).
    fn find(&self, path: &Path, last: LastLink) -> io::Result<File> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let follow = match last {
            LastLink::Follow => 0,
            LastLink::Refuse => libc::O_NOFOLLOW,
        };
        // SAFETY: all fields are integers; openat2(2) expects zero for unset ones.
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
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}

/// A folder of a process's root.
#[derive(Debug)]
pub(crate) struct Folder(File);

impl Folder {
    /// Identifies it and changes when something is added or removed: device, inode, time of the
    /// last change.
    ///
    /// # Errors
    /// Its file system does not answer.
    pub(crate) fn version(&self) -> io::Result<(u64, u64, i64, i64)> {
        let found = self.0.metadata()?;
        Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
    }

    /// Names in it that are text, at most `most`, sorted; and whether there are more.
    ///
    /// # Errors
    /// It cannot be listed.
    pub(crate) fn names(&self, most: usize) -> io::Result<(Vec<String>, bool)> {
        let mut entries = fs::read_dir(fd_path(&self.0))?;
        let mut names: Vec<String> = entries
            .by_ref()
            .take(most)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok((names, entries.next().is_some()))
    }
}

/// Most bytes of a text that are read.
const TEXT_AT_MOST: u64 = 64 << 10;

/// A path to the very inode of an open file, whatever its name means here; valid as long as the file is open.
pub(crate) fn fd_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
    fn folders_are_listed_within_the_root_and_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir_all(dir.path().join("folder").join(name)).unwrap();
        }
        symlink("/folder", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("host")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let folder = root.open_folder(Path::new("/link")).unwrap();
        assert_eq!(
            folder.names(9).unwrap(),
            (["a", "b", "c"].map(String::from).to_vec(), false)
        );
        let (two, more) = folder.names(2).unwrap();
        assert_eq!((two.len(), more), (2, true));
        assert!(folder.version().is_ok());
        assert!(root.open_folder(Path::new("host")).is_err());
        assert!(root.read(Path::new("host/passwd")).is_none());
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
    fn anything_but_a_regular_file_is_refused_at_once() {
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
