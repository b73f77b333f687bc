//! The helper process that opens files (`memtrace open-files`): whatever it waits for, memtrace does not.

use std::{
    ffi::{CStr, CString, OsStr},
    fs::{self, File},
    io::{self, Read},
    mem,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
};

use super::{
    fd_path::fd_path,
    memory_copy::copy_memory,
    wire::{Answer, Failure, Found, LastLink, MEMORY_AT_MOST, Operation, Request, receive, send},
};
use crate::helper;

/// The hidden subcommand of a helper.
pub(crate) const SUBCOMMAND: &str = "open-files";

/// The helper's life: see [`SUBCOMMAND`].
pub(crate) fn open_files() {
    serve(&helper::begin(c"open-files"));
}

/// Answers until memtrace has ended.
pub(super) fn serve(line: &UnixStream) {
    // An error: nobody is there any more.
    let _ = answer_all(line);
}

fn answer_all(line: &UnixStream) -> io::Result<()> {
    // Ready.
    send(line, &(), &[], None)?;
    loop {
        let (request, path, folder) = receive::<Request>(line)?;
        let mut served = Served::default();
        let mut access =
            || -> io::Result<Answer> { Ok(served.find(&request, &path, folder.as_ref())) };
        let answer = match &request.rights {
            Some(rights) => rights.run(access),
            None => access(),
        };
        let answer = answer.unwrap_or_else(|error| Err(error.into()));
        let fd = served.file.as_ref().map(File::as_fd);
        send(line, &answer, &served.bytes, fd)?;
    }
}

/// What goes with an answer.
#[derive(Default)]
struct Served {
    bytes: Vec<u8>,
    file: Option<File>,
}

impl Served {
    fn find(&mut self, request: &Request, path: &[u8], folder: Option<&OwnedFd>) -> Answer {
        let path = CString::new(path).map_err(io::Error::from)?;
        let folder = || folder.ok_or(Failure::Errno(libc::EBADF));
        let find = |last| find(folder()?, &path, last);
        match request.operation {
            Operation::Open(last) => {
                self.file = Some(open(&find(last)?, request)?);
            }
            Operation::Read(most) => {
                let file = open(&find(LastLink::Follow)?, request)?;
                file.take(most).read_to_end(&mut self.bytes)?;
            }
            Operation::Find => drop(find(LastLink::Follow)?),
            Operation::Folder => {
                let found = find(LastLink::Follow)?.metadata()?;
                if !found.is_dir() {
                    return Err(Failure::NotFolder);
                }
                let changed = (found.mtime(), found.mtime_nsec());
                let version = (found.dev(), found.ino(), changed.0, changed.1);
                return Ok(Found::Folder(version));
            }
            Operation::Names(most) => {
                let mut entries = fs::read_dir(fd_path(&find(LastLink::Follow)?))?;
                for entry in entries.by_ref().take(most).flatten() {
                    self.bytes.extend(entry.file_name().as_bytes());
                    self.bytes.push(0);
                }
                let more = entries.next().is_some();
                return Ok(Found::Names { more });
            }
            Operation::Memory(most) => {
                let file = File::open(OsStr::from_bytes(path.as_bytes()))?;
                file.take(most).read_to_end(&mut self.bytes)?;
            }
            Operation::MemoryAt { address, bytes } => {
                self.bytes = vec![0; bytes.min(MEMORY_AT_MOST as usize)];
                copy_memory(request.pid.unwrap_or(0), address, &mut self.bytes)?;
            }
            Operation::Mapped => {
                let path = OsStr::from_bytes(path.as_bytes());
                let found = File::options()
                    .read(true)
                    .custom_flags(libc::O_PATH)
                    .open(path)?;
                self.file = Some(open(&found, request)?);
            }
        }
        Ok(Found::It)
    }
}

/// A descriptor that only refers to the file found (O_PATH).
fn find(folder: &OwnedFd, path: &CStr, last: LastLink) -> Result<File, Failure> {
    let follow = match last {
        LastLink::Follow => 0,
        LastLink::Refuse => libc::O_NOFOLLOW,
    };
    // SAFETY: all fields are integers; openat2(2) expects zero for unset ones.
    let mut how: libc::open_how = unsafe { mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC | follow) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: path and `how` live, the size is that of `how`.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            folder.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Opens a file that was found, if it is a regular one of a real file system: to open or read anything else can have
/// effects, or wait for ever. A lease on it makes this fail instead of wait.
fn open(found: &File, request: &Request) -> Result<File, Failure> {
    if !found.metadata()?.is_file() {
        return Err(Failure::NotRegular);
    }
    if !is_real(found, request)? {
        return Err(Failure::NotReal);
    }
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(fd_path(found))?;
    Ok(file)
}

/// Whether a file system stores files, and is not a program of a user's. Interfaces of the kernel have no capacity; nor
/// have those in memory, unless they have a limit.
fn is_real(found: &File, request: &Request) -> io::Result<bool> {
    // SAFETY: all fields are integers.
    let mut about: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: the structure lives.
    if unsafe { libc::fstatfs(found.as_raw_fd(), &raw mut about) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Signed with glibc, unsigned with musl.
    let kind = i64::from_ne_bytes(about.f_type.to_ne_bytes());
    Ok(match kind {
        libc::TMPFS_MAGIC | libc::HUGETLBFS_MAGIC | RAMFS_MAGIC => true,
        libc::FUSE_SUPER_MAGIC => mount_of(found, request.pid)?.is_some_and(|it| is_by_root(&it)),
        // The kernel reads the layers of an overlay with the rights of the user who mounted it, FUSE included.
        libc::OVERLAYFS_SUPER_MAGIC => {
            mount_of(found, None)?.is_some()
                || request.owns_mounts && mount_of(found, request.pid)?.is_some()
        }
        EFIVARFS_MAGIC => false,
        _ => about.f_blocks > 0,
    })
}

/// Of include/uapi/linux/magic.h.
const RAMFS_MAGIC: i64 = 0x8584_58f6;
const EFIVARFS_MAGIC: i64 = 0xde5e_81e4;

/// The line of proc_pid_mountinfo(5) for the mount of a file, if process `pid` (`None`: this one) has that mount.
fn mount_of(found: &File, pid: Option<u32>) -> io::Result<Option<String>> {
    // SAFETY: all fields are integers.
    let mut about: libc::statx = unsafe { mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: path and structure live.
    let failed = unsafe {
        libc::statx(
            found.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_MNT_ID,
            &raw mut about,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let of = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let mounts = fs::read(format!("/proc/{of}/mountinfo"))?;
    let mounts = String::from_utf8_lossy(&mounts);
    let id = about.stx_mnt_id.to_string();
    let mut lines = mounts.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(&id));
    Ok(line.map(str::to_owned))
}

/// Whether a FUSE file system is root's, or a virtual machine's (virtiofs). In a user namespace of a user's, theirs says
/// so too, but no process outside of the namespace has access.
fn is_by_root(line: &str) -> bool {
    let Some((_, kind)) = line.rsplit_once(" - ") else {
        return false;
    };
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next(), kind.nth(1).unwrap_or_default());
    name == Some("virtiofs") || options.split(',').any(|option| option == "user_id=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Request = Request {
        rights: None,
        pid: None,
        owns_mounts: true,
        operation: Operation::Find,
    };

    #[test]
    fn interfaces_of_the_kernel_are_no_files() {
        for path in ["/proc/version", "/sys/kernel/notes", "/proc/self/environ"] {
            let found = File::open(path).unwrap();
            assert!(
                matches!(open(&found, &OWN), Err(Failure::NotReal)),
                "{path}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "x").unwrap();
        assert!(open(&File::open(&path).unwrap(), &OWN).is_ok());
        let in_memory = crate::file::of_bytes(b"x").unwrap();
        assert!(open(&in_memory, &OWN).is_ok());
    }

    #[test]
    fn file_systems_of_users_are_told_by_their_mount() {
        for (line, by_root) in [
            (
                "40 1 0:50 / /m rw - fuse.sshfs x rw,user_id=0,group_id=0",
                true,
            ),
            (
                "40 1 0:50 / /m rw - fuse x rw,user_id=2001,group_id=0",
                false,
            ),
            ("40 1 0:50 / /m rw - virtiofs tag rw", true),
            (
                "40 1 0:50 / /m,user_id=0 rw - fuse user_id=0 rw,user_id=5",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_by_root(line), by_root, "{line}");
        }
    }
}
