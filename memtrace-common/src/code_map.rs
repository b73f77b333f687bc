//! The kernel side's knowledge of a process's code: a snapshot of its executable mappings, written by the collector,
//! and a log of later changes, written by the kernel side itself as the process maps and unmaps code.
//!
//! An address is looked up in the log's entries that are newer than the snapshot first, the newest
//! first. So a range that was unmapped, or reused, is never resolved as before, however late the
//! collector is.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An executable mapping, an element of the MAPPINGS map.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Mapping {
    /// First address, absolute in the process.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Absolute address − address as the ELF file means it.
    pub bias: u64,
    /// Number of the file, below [`crate::unwind::EXECS`].
    pub exec: u32,
    /// A [`mapping_kind`].
    pub kind: u32,
}

/// Values of [`Mapping::kind`].
pub mod mapping_kind {
    /// Nothing is known of the range (any more).
    pub const UNKNOWN: u32 = 0;
    /// A file; its [`super::Exec`] says how to find callers.
    pub const FILE: u32 = 1;
    /// Generated code: frame pointers.
    pub const ANONYMOUS: u32 = 2;
}

/// Value of the SNAPSHOTS map, keyed by tgid: a range of MAPPINGS, sorted by
/// address. Never changed once published; a new one takes its place.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Snapshot {
    pub first: u32,
    pub count: u32,
    /// Number of the list, which no other list has ever had. Relatives share lists.
    pub list: u64,
    /// [`Log::sequence`] before the mappings were read.
    pub as_of: u64,
}

/// Changes that a log keeps; a power of two. If there were more since the snapshot, the walk cannot know the mappings
/// and ends as stale.
pub const LOG: usize = 32;

/// Added to [`Log::sequence`] by exec: earlier snapshots are then invalid.
pub const LOG_EXEC: u64 = 1 << 32;

/// One change.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Change {
    /// [`Log::sequence`] of the change plus one, written last: any other value means
    /// that the change is still being written.
    pub sequence: u64,
    pub mapping: Mapping,
}

/// Value of the LOGS map, keyed by tgid.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Log {
    /// Number of changes so far.
    pub sequence: u64,
    /// By sequence modulo [`LOG`].
    pub changes: [Change; LOG],
}

/// Value of the FILES map: an executable file that the collector has inspected.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct KnownFile {
    /// Address as the file means it − file offset, of its executable segment, bytes.
    pub delta: u64,
    /// As in [`Mapping::exec`].
    pub exec: u32,
    /// A [`mapping_kind`]; UNKNOWN if file offsets alone do not determine its mappings.
    pub kind: u32,
}

const _: () = assert!(LOG.is_power_of_two());
