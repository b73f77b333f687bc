//! The kernel side's state of a traced process.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Value of the PROCESSES map, keyed by tgid.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Process {
    /// Mixed into stack keys: changes whenever the process's code may have
    /// (exec, a new executable mapping), so a reused address is a new stack.
    pub epoch: u64,
    /// The program that it runs: the same in forked children, another after exec.
    pub image: u64,
    /// The tgid whose memory it runs in: itself, or the parent after vfork.
    pub space: u32,
    /// [`process_flags`].
    pub flags: u32,
}

/// Bits of [`Process::flags`].
pub mod process_flags {
    /// Events are wanted now. Unset while the process waits for its probes.
    pub const ACTIVE: u32 = 1 << 0;
}

/// Key of the FILES map: executable files that the collector has inspected.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct FileKey {
    pub ino: u64,
    /// As the kernel holds it: `MAJOR << 20 | MINOR`.
    pub dev: u32,
    /// See [`FileKey::version`]; 0 if the kernel does not report it.
    pub version: u32,
}

impl FileKey {
    /// Distinguishes a file's present content from that before a write.
    #[inline(always)]
    pub const fn version(mtime_sec: u64, mtime_nsec: u32) -> u32 {
        (mtime_sec as u32).rotate_left(16) ^ mtime_nsec
    }
}
