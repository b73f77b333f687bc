//! The recording: one SQLite file, written once an interval, read by every
//! other command. Knows neither aya nor tokio, and counts nothing itself: what
//! the ledger says is stored and given back. `docs/recording.md` has the tables.

mod create;
mod decode;
mod devices;
mod error;
mod read;
mod schema;
mod snapshot;
mod varint;
mod write;

#[cfg(test)]
mod tests;

pub use create::create_private;
pub use devices::{DeviceSnapshot, LibraryRow};
pub use error::Error;
pub use read::Recording;
pub use snapshot::{
    At, BirthsAt, FailureSnapshot, LayerSnapshot, Moment, ProcessSnapshot, SiteSnapshot, Snapshot,
    StackFrames,
};
pub use write::Writer;

use crate::{
    event::StackId,
    ledger::{Births, Changes, ProcessId, SiteKey},
};
use memtrace_common::{loss::Reason, unwind::End};
use serde::{Deserialize, Serialize};

/// Facts about the recording as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// memtrace's version.
    pub version: String,
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// memtrace's own command line.
    pub command: Vec<String>,
    /// Unix time of the start, nanoseconds.
    pub started_unix_ns: u64,
    /// CLOCK_MONOTONIC of the same moment: the zero of every time in the recording.
    pub started_ns: u64,
    /// Length of an interval, nanoseconds.
    pub interval_ns: u64,
    /// Bytes of a page on the recorded machine.
    pub page_size: u64,
}

/// How a process came into the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Attached,
    Launched,
    /// Forked (or spawned) by a traced process.
    Child,
}

/// One process. Written when first seen and whenever something changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    pub id: ProcessId,
    pub tgid: u32,
    pub ppid: u32,
    pub origin: Origin,
    pub comm: String,
    pub cmdline: Vec<String>,
    /// CLOCK_MONOTONIC ns; for an attached process the moment of attaching.
    pub started_ns: u64,
    /// `None` while it runs.
    pub ended_ns: Option<u64>,
    /// Wait status as of waitpid(2), where the process ended by itself.
    pub exit_status: Option<u32>,
    /// Resident set when tracing of it began, bytes: what the ledger cannot know about.
    pub rss_at_start: Option<u64>,
}

/// A process's memory at one interval. Bytes, except counts. `None`: could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySample {
    pub rss_anon: Option<u64>,
    pub rss_file: Option<u64>,
    pub rss_shmem: Option<u64>,
    pub pss: Option<u64>,
    pub private_dirty: Option<u64>,
    pub shared_dirty: Option<u64>,
    pub swap: Option<u64>,
    pub anon_huge_pages: Option<u64>,
    pub lazy_free: Option<u64>,
    pub vm_size: Option<u64>,
    pub vm_pte: Option<u64>,
    /// Counts.
    pub threads: Option<u64>,
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub children: Option<u64>,
}

/// Everything that one interval adds; one transaction.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    pub changes: Changes,
    pub memory: Vec<(ProcessId, MemorySample)>,
    /// Bytes that a process has of a device in all, where that could be had.
    pub device_usage: Vec<(ProcessId, u8, u64)>,
    /// Absolute counts so far, one per reason, zero included.
    pub losses: Vec<(Reason, u64)>,
    /// Records the kernel side tried to emit, and those received, so far.
    pub emitted: u64,
    pub received: u64,
    /// Births of outstanding blocks per site, present only now and then (it costs a scan).
    pub births: Vec<(SiteKey, Births)>,
}

/// A distinct stack, besides its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRow {
    pub id: StackId,
    /// Why its walk ended.
    pub end: End,
    /// Name of the threads whose stack it is, where threads are told apart.
    pub thread: Option<String>,
}
