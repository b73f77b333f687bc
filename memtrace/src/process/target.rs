//! Whether a process that the user names can be recorded, in one line where it cannot.

use std::{fs, io, path::Path};

use super::{maps, maps::MapsError};

/// PF_KTHREAD, include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("no process has the pid {0}")]
    NoSuchProcess(u32),
    #[error(
        "process {0} (`{1}`) is a zombie: it has ended and was not yet waited for by its parent"
    )]
    Zombie(u32, String),
    #[error("{tid} is a thread of process {tgid}; use `-p {tgid}`")]
    Thread { tid: u32, tgid: u32 },
    #[error("process {0} (`{1}`) is a kernel thread: it has no memory of its own to record")]
    KernelThread(u32, String),
    #[error("process {0} (`{1}`) cannot be looked at: {2}; run memtrace as root of this machine")]
    Denied(u32, String, io::Error),
    #[error("process {0} (`{1}`) ended before recording began")]
    Ended(u32, String),
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
    /// Looks at a process.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub(crate) fn find(pid: u32) -> Result<Self, TargetError> {
        let none = |_| TargetError::NoSuchProcess(pid);
        let process = procfs::process::Process::new(pid.cast_signed()).map_err(none)?;
        let status = process.status().map_err(none)?;
        let stat = process.stat().map_err(none)?;
        let name = stat.comm.clone();
        if status.tgid != status.pid {
            let tgid = status.tgid.cast_unsigned();
            return Err(TargetError::Thread { tid: pid, tgid });
        }
        if stat.flags & KERNEL_THREAD != 0 {
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
            // What else is wrong shows when it is attached to.
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

/// Whether the process's control group is frozen: `cgroup.events` of version 2 (cgroup-v2.rst),
/// `freezer.state` of version 1 (freezer-subsystem.rst), where distributions mount them.
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

/// Whether a file holds a 32-bit program, such as `/proc/PID/exe`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn is_32_bit(program: &Path) -> io::Result<bool> {
    let mut head = [0; 5];
    let mut file = fs::File::open(program)?;
    match io::Read::read_exact(&mut file, &mut head) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(head == *b"\x7fELF\x01"),
    }
}
