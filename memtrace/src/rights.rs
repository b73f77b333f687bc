//! A user's rights to files, taken on by one thread for the time of an access.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use serde::{Deserialize, Serialize};

/// Passes read permission checks (capabilities(7)).
const DAC_READ_SEARCH: u32 = 2;
/// The same, and others.
const DAC_OVERRIDE: u32 = 1;

/// Who accesses files, as the kernel checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rights {
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// May read and search everything.
    reads_all: bool,
}

impl Rights {
    /// Those of a user who has no group but this one.
    pub(crate) fn of_user(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: vec![gid],
            reads_all: false,
        }
    }

    /// Those that a `/proc/PID/status` shows. `with_capabilities`: its capabilities count here, because it is in this
    /// user namespace.
    ///
    /// # Errors
    /// `PermissionDenied` for a process with identities of several users, such as a set-user-ID program: whose choice
    /// a path is, nobody knows. `InvalidData` for another text.
    pub(crate) fn of_status(status: &str, with_capabilities: bool) -> io::Result<Self> {
        let words = |key: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.ok_or(ErrorKind::InvalidData)
                .map(str::split_whitespace)
        };
        let ids = |key: &str| -> io::Result<Vec<u32>> {
            let ids = words(key)?.map(str::parse).collect::<Result<_, _>>();
            ids.map_err(|_| ErrorKind::InvalidData.into())
        };
        let (uid, gid) = (only(&ids("Uid")?)?, only(&ids("Gid")?)?);
        let capabilities = words("CapEff")?.next().unwrap_or_default();
        let capabilities =
            u64::from_str_radix(capabilities, 16).map_err(|_| ErrorKind::InvalidData)?;
        let may_read_all = 1 << DAC_READ_SEARCH | 1 << DAC_OVERRIDE;
        Ok(Self {
            uid,
            gid,
            groups: ids("Groups")?,
            reads_all: with_capabilities && capabilities & may_read_all != 0,
        })
    }

    /// Runs `access` with these rights, and with no capability beyond them.
    ///
    /// # Errors
    /// Those of `access`; `PermissionDenied` if this thread may not take them on.
    pub(crate) fn run<T>(&self, access: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _taken = Taken::take_on(self)?;
        access()
    }
}

/// The real, effective, saved and file system's ID, if they are the same.
fn only(ids: &[u32]) -> io::Result<u32> {
    match ids {
        [id, rest @ ..] if rest.iter().all(|other| other == id) => Ok(*id),
        [] => Err(ErrorKind::InvalidData.into()),
        _ => Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "the process has the rights of several users",
        )),
    }
}

/// Rights that this thread has until this is dropped. The C library's functions would change those of all threads.
struct Taken {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    capabilities: Capabilities,
}

impl Taken {
    fn take_on(rights: &Rights) -> io::Result<Self> {
        let taken = Self {
            uid: set_fsuid(u32::MAX),
            gid: set_fsgid(u32::MAX),
            groups: groups()?,
            capabilities: Capabilities::now()?,
        };
        let is_other = taken.uid != rights.uid;
        let has_groups = taken.groups == rights.groups || set_groups(&rights.groups).is_ok();
        set_fsgid(rights.gid);
        set_fsuid(rights.uid);
        // Neither call reports errors; an invalid ID changes nothing and returns the current one. Of their own
        // processes, ordinary users may read with their own groups.
        let is_it = set_fsuid(u32::MAX) == rights.uid
            && (!is_other || has_groups && set_fsgid(u32::MAX) == rights.gid);
        if !is_it {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                format!(
                    "reading files as user {} needs CAP_SETUID and CAP_SETGID",
                    rights.uid
                ),
            ));
        }
        let kept = u64::from(rights.reads_all) << DAC_READ_SEARCH;
        taken
            .capabilities
            .with_effective(kept & taken.capabilities.permitted())
            .set()?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // The right to change the others comes first, and again last: a change of the user takes some away.
        let _ = self.capabilities.set();
        set_fsuid(self.uid);
        set_fsgid(self.gid);
        let _ = set_groups(&self.groups);
        let _ = self.capabilities.set();
    }
}

/// The user ID before.
fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: affects the rights of this thread only.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// The group ID before.
fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: affects the rights of this thread only.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

fn groups() -> io::Result<Vec<u32>> {
    // SAFETY: with a length of 0, only the number is returned.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).map_err(|_| io::Error::last_os_error())?];
    // SAFETY: the list lives and is that long.
    match unsafe { libc::getgroups(count, groups.as_mut_ptr()) } {
        found if found == count => Ok(groups),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the list lives and is that long; the system call is about this thread only.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Capability sets of a thread: `struct __user_cap_data_struct` twice (include/uapi/linux/capability.h).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Capabilities([[u32; 3]; 2]);

/// `struct __user_cap_header_struct`, version 3, about the calling thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];
const EFFECTIVE: usize = 0;
const PERMITTED: usize = 1;

impl Capabilities {
    fn now() -> io::Result<Self> {
        let mut sets = Self::default();
        // SAFETY: header and sets live and have the sizes of version 3.
        match unsafe { libc::syscall(libc::SYS_capget, HEADER.as_ptr(), &raw mut sets) } {
            0 => Ok(sets),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn set(&self) -> io::Result<()> {
        // SAFETY: as above.
        match unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), &raw const *self) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn permitted(&self) -> u64 {
        let [low, high] = self.0;
        u64::from(low[PERMITTED]) | u64::from(high[PERMITTED]) << 32
    }

    fn with_effective(mut self, effective: u64) -> Self {
        let [low, high] = &mut self.0;
        (low[EFFECTIVE], high[EFFECTIVE]) = (effective as u32, (effective >> 32) as u32);
        self
    }
}

/// Whether the process of a folder of `/proc` is in memtrace's own user namespace, so that its capabilities are about the same files.
pub(crate) fn shares_user_namespace(process: &Path) -> bool {
    let namespace = |of: &Path| fs::read_link(of.join("ns/user")).ok();
    let own = namespace(Path::new("/proc/self"));
    own.is_some() && own == namespace(process)
}

/// Whether the mount namespace of a process, given by its folder of `/proc`, belongs to memtrace's own user namespace.
pub(crate) fn owns_mounts(process: &Path) -> bool {
    /// `NS_GET_USERNS` of include/uapi/linux/nsfs.h.
    const OWNER: libc::Ioctl = 0xb701;
    let owner = || {
        let mounts = File::open(process.join("ns/mnt"))?;
        // SAFETY: it takes nothing, and gives a descriptor that nothing else owns.
        let owner = unsafe { libc::ioctl(mounts.as_raw_fd(), OWNER) };
        if owner < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let owner = unsafe { File::from_raw_fd(owner) }.metadata()?;
        let own = fs::metadata("/proc/self/ns/user")?;
        Ok((owner.dev(), owner.ino()) == (own.dev(), own.ino()))
    };
    owner().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn status(uid: &str, gid: &str, capabilities: &str) -> String {
        format!("Name:\tx\nUid:\t{uid}\nGid:\t{gid}\nGroups:\t4 27 \nCapEff:\t{capabilities}\n")
    }

    #[test]
    fn a_status_has_the_rights_of_one_user() {
        let rights = Rights::of_status(&status("7\t7\t7\t7", "8\t8\t8\t8", "0"), true).unwrap();
        let expected = Rights {
            uid: 7,
            gid: 8,
            groups: vec![4, 27],
            reads_all: false,
        };
        assert_eq!(rights, expected);
        let all = status("0\t0\t0\t0", "0\t0\t0\t0", "000001ffffffffff");
        assert!(Rights::of_status(&all, true).unwrap().reads_all);
        assert!(!Rights::of_status(&all, false).unwrap().reads_all);
    }

    #[test]
    fn a_process_of_several_users_has_none() {
        for (uid, gid) in [
            ("7\t0\t0\t0", "7\t7\t7\t7"),
            ("7\t7\t0\t7", "7\t7\t7\t7"),
            ("7\t7\t7\t7", "7\t5\t5\t5"),
        ] {
            let error = Rights::of_status(&status(uid, gid, "0"), true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{uid} {gid}");
        }
        let error = Rights::of_status("Name:\tx\n", true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn rights_are_taken_on_and_given_back_as_root() {
        let dir = tempfile::tempdir().unwrap();
        let of_root = dir.path().join("of root");
        fs::write(&of_root, "secret").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&of_root, fs::Permissions::from_mode(0o640)).unwrap();
        let read = || fs::read(&of_root);
        let before = (groups().unwrap(), set_fsuid(u32::MAX));
        let user = Rights::of_user(2001, 2001);
        let error = user.run(read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let member = Rights {
            groups: vec![0],
            ..user.clone()
        };
        assert_eq!(member.run(read).unwrap(), b"secret");
        let reader = Rights {
            reads_all: true,
            ..user
        };
        assert_eq!(reader.run(read).unwrap(), b"secret");
        assert_eq!((groups().unwrap(), set_fsuid(u32::MAX)), before);
        assert_eq!(read().unwrap(), b"secret");
    }
}
