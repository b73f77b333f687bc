//! Checks whether a process named by the user can be recorded, and explains in one line if it
//! cannot.

use std::{fs, io};

use procfs::process::Stat;

use super::{
    maps::{self, MapsError},
    memory,
};
use crate::process_root;

/// PF_KTHREAD, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("no process has the pid {0}")]
    NoSuchProcess(u32),
    #[error("process {0} cannot be inspected: {1}")]
    Unreadable(u32, io::Error),
    #[error("process {0} (`{1}`) is a zombie: it has exited and its parent has not reaped it yet")]
    Zombie(u32, String),
    #[error("{tid} is a thread of process {tgid}; use `-p {tgid}`")]
    Thread { tid: u32, tgid: u32 },
    #[error("process {0} (`{1}`) is a kernel thread: it has no memory of its own to record")]
    KernelThread(u32, String),
    #[error("process {0} (`{1}`) cannot be inspected: {2}; {remedy}", remedy = remedy())]
    Denied(u32, String, io::Error),
    #[error("process {0} (`{1}`) ended before recording began")]
    Ended(u32, String),
}

fn remedy() -> &'static str {
    // SAFETY: geteuid has no preconditions.
    match unsafe { libc::geteuid() } {
        0 => "a security module or the host of this container forbids it even to root",
        _ => "run memtrace as root on this machine",
    }
}

impl TargetError {
    /// Its files in `/proc` cannot be read.
    fn unreadable(pid: u32, error: io::Error) -> Self {
        // A process that ends between open and read gives ESRCH.
        let is_gone =
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
        match is_gone {
            true => Self::NoSuchProcess(pid),
            false => Self::Unreadable(pid, error),
        }
    }
}

/// A process that can be recorded.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub pid: u32,
    pub name: String,
    /// Why it does not run now, if so.
    pub halted: Option<&'static str>,
}

impl Target {
    /// Inspects a process.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub(crate) fn find(pid: u32) -> Result<Self, TargetError> {
        let unreadable = |error| TargetError::unreadable(pid, error);
        let stat = memory::stat(pid).map_err(unreadable)?;
        let status = memory::read(pid, "status").map_err(unreadable)?;
        let name = stat.comm.clone();
        if let Some(tgid) = tgid(&status).filter(|&tgid| tgid != pid) {
            return Err(TargetError::Thread { tid: pid, tgid });
        }
        if is_kernel_thread(&stat) {
            return Err(TargetError::KernelThread(pid, name));
        }
        if super::has_ended(pid) {
            return Err(TargetError::Zombie(pid, name));
        }
        match maps::read(pid) {
            Err(MapsError::Read { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                return Err(TargetError::Denied(pid, name, source));
            }
            // Other problems show when it is attached to.
            _ => {}
        }
        let halted = match stat.state {
            'T' => Some("stopped"),
            't' => Some("stopped by a debugger"),
            _ if is_frozen(pid) => Some("frozen (cgroup freezer)"),
            _ => None,
        };
        Ok(Self { pid, name, halted })
    }

    /// # Errors
    /// It has ended since.
    pub(crate) fn still_runs(&self) -> Result<(), TargetError> {
        match super::has_ended(self.pid) {
            true => Err(TargetError::Ended(self.pid, self.name.clone())),
            false => Ok(()),
        }
    }
}

pub(super) fn is_kernel_thread(stat: &Stat) -> bool {
    stat.flags & KERNEL_THREAD != 0
}

/// The process that a `/proc/PID/status` is about.
fn tgid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line?.trim().parse().ok()
}

/// Whether the process's control group is frozen: `cgroup.events` of version 2 (cgroup-v2.rst),
/// `freezer.state` of version 1 (freezer-subsystem.rst), in the places where distributions mount
/// them.
fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            return false;
        };
        let says = |file: String, frozen: &str| {
            let text = fs::read_to_string(format!("/sys/fs/cgroup{file}"));
            text.is_ok_and(|text| text.lines().any(|line| line == frozen))
        };
        match controllers {
            "" => ["", "/unified"]
                .iter()
                .any(|mount| says(format!("{mount}{group}/cgroup.events"), "frozen 1")),
            "freezer" => says(format!("/freezer{group}/freezer.state"), "FROZEN"),
            _ => false,
        }
    })
}

/// Whether process `tgid` runs a 32-bit program.
///
/// # Errors
/// It is gone, or its program cannot be read.
pub(crate) fn runs_32_bit(tgid: u32) -> io::Result<bool> {
    let program = format!("/proc/{tgid}/exe");
    is_32_bit(process_root::open_mapped(tgid, program.as_ref())?)
}

/// Whether a file holds a 32-bit program.
pub(crate) fn is_32_bit(mut file: fs::File) -> io::Result<bool> {
    let mut head = [0; 5];
    match io::Read::read_exact(&mut file, &mut head) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(head == *b"\x7fELF\x01"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        os::unix::ffi::OsStrExt,
        process::{Command, Stdio},
    };

    use super::*;
    use crate::process::job;

    #[test]
    fn a_process_whose_name_is_not_utf_8_is_found() {
        // The shell's name is that of the link.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(b"a\xff"));
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let mut shell = Command::new(&program)
            .args(["-c", "exec 3<&0; cat <&3 & echo started; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = [0; 8];
        io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut started).unwrap();

        let target = Target::find(shell.id()).unwrap();
        assert_eq!(target.name, "a\u{fffd}");
        assert!(job::descendants(&[std::process::id()]).contains(&shell.id()));
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn only_a_process_that_is_gone_does_not_exist() {
        let of = |code| TargetError::unreadable(1, io::Error::from_raw_os_error(code));
        for code in [libc::ENOENT, libc::ESRCH] {
            assert!(matches!(of(code), TargetError::NoSuchProcess(1)), "{code}");
        }
        assert!(matches!(of(libc::EACCES), TargetError::Unreadable(1, _)));
        // No pid is as large as this.
        let none = Target::find(u32::MAX >> 1).unwrap_err();
        assert!(matches!(none, TargetError::NoSuchProcess(_)), "{none}");
    }
}
