//! Files whose path a traced process may have made up. Each is opened with no more rights than that process has, by a
//! helper process within a deadline (`opener.rs`, `serve.rs`): another user's file system may never answer.

mod fd_path;
mod memory_copy;
mod opener;
mod serve;
mod wire;

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use self::wire::{Found, MEMORY_AT_MOST, Operation, Request, Version};
pub(crate) use self::{
    fd_path::fd_path,
    memory_copy::copy_memory,
    serve::{SUBCOMMAND, open_files},
    wire::LastLink,
};
use crate::{
    rights::{Rights, owns_mounts, shares_user_namespace},
    units,
};

/// The directory that a process takes for `/`, and its rights to the files below. Clones share the descriptors.
#[derive(Clone, Debug)]
pub(crate) struct Root(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: File,
    /// `None`: memtrace's own.
    process: Option<Process>,
}

/// See [`Root::place`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    folder: (u64, u64),
    mounts: Option<PathBuf>,
    user: Option<u32>,
}

/// The process whose root it is.
#[derive(Debug)]
struct Process {
    pid: u32,
    /// Its `/proc/PID`, which never becomes another process's.
    folder: File,
    /// As last known.
    rights: Mutex<Rights>,
}

impl Root {
    /// The root of process `tgid`, with its rights; it serves on after the process has ended, with the rights that it
    /// had last.
    ///
    /// # Errors
    /// The process is gone or may not be inspected; `PermissionDenied` also if it has the rights of several users.
    pub(crate) fn of_process(tgid: u32) -> io::Result<Self> {
        let folder = place(Path::new(&format!("/proc/{tgid}")))?;
        let rights = rights(&folder)?;
        let directory = place(&fd_path(&folder).join("root"))?;
        let process = Process {
            pid: tgid,
            folder,
            rights: Mutex::new(rights),
        };
        Ok(Self(Arc::new(Inner {
            directory,
            process: Some(process),
        })))
    }

    /// The machine's, for files of its administrator, with memtrace's rights.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(crate) fn host() -> io::Result<Self> {
        Self::at(Path::new("/"))
    }

    /// A folder in the place of the machine's root.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            directory: place(path)?,
            process: None,
        })))
    }

    /// Opens the regular file that the process means by `path`: links, absolute ones too, stay
    /// within the root, and those of `/proc` lead nowhere. Nothing else is opened: opening a device
    /// can have effects, a FIFO waits for its other end, and a file of `/proc` can wait too.
    ///
    /// # Errors
    /// `InvalidInput` for anything but a regular file on a disk or in memory, such as a link to
    /// refuse; `PermissionDenied` if the process may not read it; `WouldBlock` if somebody has a
    /// lease on it; `TimedOut` if the file system does not answer; `ENOSYS` before Linux 5.6
    /// (openat2(2)).
    pub(crate) fn open_file(&self, path: &Path, last: LastLink) -> io::Result<File> {
        let (_, _, fd) = self.ask(Operation::Open(last), path)?;
        fd.map(File::from).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// The first [`TEXT_AT_MOST`] bytes of a regular file, links followed; `None` if it cannot be
    /// read.
    pub(crate) fn read(&self, path: &Path) -> Option<String> {
        let (_, bytes, _) = self.ask(Operation::Read(TEXT_AT_MOST), path).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the process finds something by `path`, links followed.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.ask(Operation::Find, path).is_ok()
    }

    /// Opens the folder that the process means by `path`, links followed as for [`Root::open_file`].
    ///
    /// # Errors
    /// It is not there, or no folder; as [`Root::open_file`].
    pub(crate) fn open_folder(&self, path: &Path) -> io::Result<Folder> {
        match self.ask(Operation::Folder, path)? {
            (Found::Folder(version), ..) => Ok(Folder {
                root: self.clone(),
                path: path.to_owned(),
                version,
            }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Identifies the folder, and the user whose rights it is seen with.
    ///
    /// # Errors
    /// The process has the rights of several users.
    pub(crate) fn place(&self) -> io::Result<Place> {
        let folder = self.0.directory.metadata()?;
        let process = self.0.process.as_ref();
        let user = process.map(Process::rights).transpose()?;
        // A process in another mount namespace can see other files below the same folder.
        let mounts = process.and_then(|of| fs::read_link(fd_path(&of.folder).join("ns/mnt")).ok());
        Ok(Place {
            folder: (folder.dev(), folder.ino()),
            mounts,
            user: user.map(|user| user.uid),
        })
    }

    fn ask(&self, operation: Operation, path: &Path) -> io::Result<opener::Served> {
        let process = self.0.process.as_ref();
        let request = Request {
            rights: process.map(Process::rights).transpose()?,
            pid: process.map(|process| process.pid),
            owns_mounts: process.is_some_and(|process| owns_mounts(&fd_path(&process.folder))),
            operation,
        };
        let user = request.rights.as_ref().map(|rights| rights.uid);
        let folder = Some(self.0.directory.as_fd());
        opener::ask(user, &request, folder, path.as_os_str().as_bytes())
    }
}

impl Process {
    /// It may have fewer rights than before.
    fn rights(&self) -> io::Result<Rights> {
        let mut last = self.rights.lock().unwrap_or_else(PoisonError::into_inner);
        match rights(&self.folder) {
            Ok(now) => *last = now,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // It has ended.
            Err(_) => {}
        }
        Ok(last.clone())
    }
}

/// The rights of the process whose folder of `/proc` this is.
fn rights(folder: &File) -> io::Result<Rights> {
    let folder = fd_path(folder);
    let status = fs::read(folder.join("status"))?;
    let status = String::from_utf8_lossy(&status);
    Rights::of_status(&status, shares_user_namespace(&folder))
}

/// A descriptor that only refers to a folder.
fn place(path: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Opens the file behind a mapping of process `pid` by its link in `/proc/PID/map_files`: the very inode, with
/// memtrace's rights, because the process has it mapped.
///
/// # Errors
/// As [`Root::open_file`]; `PermissionDenied` without CAP_CHECKPOINT_RESTORE and CAP_SYS_ADMIN.
pub(crate) fn open_mapped(pid: u32, link: &Path) -> io::Result<File> {
    let request = Request {
        rights: None,
        pid: Some(pid),
        owns_mounts: owns_mounts(Path::new(&format!("/proc/{pid}"))),
        operation: Operation::Mapped,
    };
    let user = fs::metadata(format!("/proc/{pid}"))?.uid();
    let (_, _, fd) = opener::ask(Some(user), &request, None, link.as_os_str().as_bytes())?;
    fd.map(File::from).ok_or(io::ErrorKind::InvalidData.into())
}

/// The first [`MEMORY_AT_MOST`] bytes of a file of `/proc/PID` that shows the process's memory, such as `cmdline`: that
/// memory can be anywhere, and of any size (prctl(2), PR_SET_MM), also in a file that never answers.
///
/// # Errors
/// As [`read_mappings`], but for its size.
pub(crate) fn read_memory(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    read_of_process(pid, file, MEMORY_AT_MOST)
}

/// A file of `/proc/PID` about its mappings, such as `maps`. A read waits while the process changes a mapping, and that
/// change can wait for a file that never answers.
///
/// # Errors
/// The process is gone or hidden; `TimedOut`; `FileTooLarge` above 32 MiB.
pub(crate) fn read_mappings(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    let bytes = read_of_process(pid, file, MAPPINGS_AT_MOST + 1)?;
    match bytes.len() as u64 > MAPPINGS_AT_MOST {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {}", units::size(MAPPINGS_AT_MOST)),
        )),
        false => Ok(bytes),
    }
}

/// Whether a file of `/proc/PID` about its mappings may be read.
///
/// # Errors
/// As [`read_mappings`].
pub(crate) fn may_read(pid: u32, file: &str) -> io::Result<()> {
    read_of_process(pid, file, 1).map(drop)
}

fn read_of_process(pid: u32, file: &str, most: u64) -> io::Result<Vec<u8>> {
    let folder = format!("/proc/{pid}");
    let user = fs::metadata(&folder)?.uid();
    let request = Request {
        rights: None,
        pid: Some(pid),
        owns_mounts: false,
        operation: Operation::Memory(most),
    };
    let path = format!("{folder}/{file}");
    let (_, bytes, _) = opener::ask(Some(user), &request, None, path.as_bytes())?;
    Ok(bytes)
}

/// The memory of a process. A page may be of a file that never answers, so it is read as such a file is.
#[derive(Debug)]
pub(crate) struct Memory {
    pid: u32,
    user: u32,
}

impl Memory {
    /// # Errors
    /// The process is gone or hidden.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let user = fs::metadata(format!("/proc/{pid}"))?.uid();
        Ok(Self { pid, user })
    }

    /// Fills the buffer, of at most [`MEMORY_AT_MOST`] bytes, from an absolute address on.
    ///
    /// # Errors
    /// Part of it cannot be read; `TimedOut`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], address: u64) -> io::Result<()> {
        let request = Request {
            rights: None,
            pid: Some(self.pid),
            owns_mounts: false,
            operation: Operation::MemoryAt {
                address,
                bytes: buffer.len(),
            },
        };
        let (_, bytes, _) = opener::ask(Some(self.user), &request, None, &[])?;
        if bytes.len() != buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

/// A folder of a process's root.
#[derive(Debug)]
pub(crate) struct Folder {
    root: Root,
    path: PathBuf,
    version: Version,
}

impl Folder {
    /// Identifies it and changes when something is added or removed: device, inode, time of the
    /// last change.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Names in it that are text, at most `most`, sorted; and whether there are more.
    ///
    /// # Errors
    /// It cannot be listed.
    pub(crate) fn names(&self, most: usize) -> io::Result<(Vec<String>, bool)> {
        let (found, bytes, _) = self.root.ask(Operation::Names(most), &self.path)?;
        let names = bytes
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        let names = names.filter_map(|name| String::from_utf8(name.to_vec()).ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok((names, matches!(found, Found::Names { more: true })))
    }
}

/// Most bytes of a text that are read.
const TEXT_AT_MOST: u64 = 64 << 10;

/// Bytes of a file about mappings. The kernel's default limit of 65,530 mappings makes about 8 MiB.
const MAPPINGS_AT_MOST: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::CString, io::Read, os::unix::fs::symlink};

    #[test]
    fn links_stay_within_the_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("inside"), "inside").unwrap();
        symlink("/inside", dir.path().join("absolute")).unwrap();
        symlink("/etc/passwd", dir.path().join("host")).unwrap();
        symlink("../../../../inside", dir.path().join("up")).unwrap();
        let root = Root::at(dir.path()).unwrap();
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
        let root = Root::at(dir.path()).unwrap();
        let folder = root.open_folder(Path::new("/link")).unwrap();
        assert_eq!(
            folder.names(9).unwrap(),
            (["a", "b", "c"].map(String::from).to_vec(), false)
        );
        let (two, more) = folder.names(2).unwrap();
        assert_eq!((two.len(), more), (2, true));
        assert_eq!(
            folder.version(),
            root.open_folder(Path::new("/link")).unwrap().version()
        );
        assert!(root.open_folder(Path::new("host")).is_err());
        assert!(root.read(Path::new("host/passwd")).is_none());
    }

    #[test]
    fn a_processs_root_is_reached_through_proc() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let root = Root::of_process(std::process::id()).unwrap();
        assert!(root.open_file(&path, LastLink::Follow).is_ok());
    }

    #[test]
    fn anything_but_a_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name lives.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let root = Root::host().unwrap();
        for path in [&*fifo, dir.path(), Path::new("/dev/null")] {
            let error = root.open_file(path, LastLink::Follow).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
