//! The recording: one SQLite file, written once an interval, read by every other command. Knows
//! neither aya nor tokio, and counts nothing itself: it stores and returns the ledger's figures.
//! `docs/reference/recording.md` has the tables.

pub(crate) mod budget;
mod compat;
mod create;
mod decode;
mod device_tables;
mod encode;
mod error;
mod facts;
mod file;
#[cfg(test)]
pub(crate) mod fixture;
mod fold;
mod guard;
mod history;
mod holders;
mod killed;
mod open;
mod output;
mod overview;
mod put;
mod read;
mod samples;
mod schema;
mod series;
mod site_series;
mod sites;
mod snapshot;
mod stacks;
mod thin;
mod types;
mod unsearched;
mod untraced;
pub(crate) mod variables;
mod varint;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use create::{may_record, may_write, write_private};
pub(crate) use device_tables::{DeviceSnapshot, LibraryRow};
pub(crate) use error::Error;
pub(crate) use facts::{Fact, PACKAGE_FOLDERS, capacity_of};
pub(crate) use fold::SHORT_LIVED;
pub(crate) use history::{IntervalId, SiteFigures};
pub(crate) use holders::{
    ANONYMOUS, Answer, AsOf, Collector, Found, Holders, Kept, LEAST_CHAIN, PERHAPS_IN_USE,
    PERHAPS_WEAK, Path, Retainer, Retainers, STRUCTURE, Sample, Step, StepKind, Way, WayKind,
};
pub(crate) use open::Recording;
pub(crate) use overview::Overview;
pub use samples::MemorySample;
pub(crate) use samples::{CgroupSample, SystemSample};
pub(crate) use site_series::{SitePoint, SiteSeries};
pub(crate) use snapshot::{
    At, BirthsAt, FailureSnapshot, LayerSnapshot, Moment, ProcessSnapshot, SiteSnapshot, Snapshot,
};
pub(crate) use stacks::{Stack, Stacks};
pub(crate) use types::{Census, GrowingType, Objects};
pub(crate) use unsearched::{Unknown, Unsearched};
pub(crate) use untraced::Untraced;
pub use write::Writer;

use crate::{
    event::StackId,
    ledger::{Births, Changes, Holes, ProcessId, SiteKey},
};
use memtrace_common::{loss::Reason, unwind::End};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Facts about the recording as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Length of an interval, nanoseconds. With an automatic interval, a recording that is read has
    /// the usual one, because it grows with the recording.
    pub interval_ns: u64,
    /// Chosen automatically.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interval_is_auto: bool,
    /// Bytes of a page on the recorded machine.
    pub page_size: u64,
    /// Function prefixes of the allocators that were named with `--allocator`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocator_prefixes: Vec<String>,
    /// malloc was left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_heap: bool,
}

/// The way in which a process came into the recording.
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
    /// CLOCK_MONOTONIC ns; for an attached process the moment at which all its probes were set.
    pub started_ns: u64,
    /// `None` while it runs.
    pub ended_ns: Option<u64>,
    /// Wait status as in waitpid(2), if the process exited by itself.
    pub exit_status: Option<u32>,
    /// Resident set when tracing of it began, bytes: memory that the ledger cannot know.
    pub rss_at_start: Option<u64>,
    /// For a group: the number of ended processes it stands for, see
    /// [`crate::ledger::Ledger::fold`]. Its `tgid` is 0, it began with the first of them and ended
    /// with the last.
    pub folded: Option<u64>,
}

impl ProcessRow {
    /// Processes that this row is about.
    pub fn processes(&self) -> u64 {
        self.folded.unwrap_or(1)
    }

    pub fn is_group(&self) -> bool {
        self.folded.is_some()
    }
}

/// Everything that one interval adds.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// To be committed with a later one: a commit waits for the disk.
    pub commit_later: bool,
    /// It is not over yet, and is written in case that memtrace is killed: the next one takes its place.
    pub unfinished: bool,
    /// The program has done its work once more, see [`Recording::rounds`].
    pub ends_round: bool,
    /// Merge pairs of intervals afterwards: there are too many.
    pub halve: bool,
    pub changes: Changes,
    /// Processes that were folded into groups: their rows are deleted.
    pub folded: Vec<ProcessId>,
    pub memory: Vec<(ProcessId, MemorySample)>,
    pub system: Option<SystemSample>,
    /// By number of the control group.
    pub cgroups: Vec<(u32, CgroupSample)>,
    /// Processes whose control group was not known before, and its number.
    pub members: Vec<(ProcessId, u32)>,
    /// Process totals on a device, bytes, if available.
    pub device_usage: Vec<(ProcessId, u8, u64)>,
    /// Absolute counts so far, one per reason, zero included.
    pub losses: Vec<(Reason, u64)>,
    /// Records the kernel side tried to emit, and those received, so far.
    pub emitted: u64,
    pub received: u64,
    /// Births of live blocks per site, present only now and then (they need a scan).
    pub births: Vec<(SiteKey, Births)>,
    /// Memory that the blocks of each site hold open, for the processes covered by the same scan.
    pub holes: Vec<(ProcessId, Vec<(SiteKey, Holes)>)>,
}

/// A distinct place in code: one frame, and those inlined there. From 1, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// A distinct chain of callers, see [`Node`]. From 1, without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Above the outermost frame of every stack: no frame.
    pub const ROOT: NodeId = NodeId(0);
}

/// A frame of a stack and, through its parent, all its callers. Stacks are one tree of them,
/// because they have most of their callers in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The caller; a node of a smaller id.
    pub parent: NodeId,
    pub location: LocationId,
}

/// A distinct stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRow {
    pub id: StackId,
    /// Its innermost frame.
    pub node: NodeId,
    /// Why its walk ended.
    pub end: End,
    /// Name of the threads with this stack; `None`: it is empty.
    pub thread: Option<Arc<str>>,
}
