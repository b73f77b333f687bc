//! The ledger of outstanding allocations: events in, totals per site out.
//!
//! Pure: no clock, no file, no process is touched here, and neither aya nor
//! tokio is known; the same events always give the same totals.

use crate::event::{Layer, StackId};

/// Number of log₂ buckets of [`SiteTotals::lifetimes`]: bucket `i` counts
/// blocks freed after [2^i, 2^(i+1)) nanoseconds (bucket 0 also 0 ns).
pub const LIFETIME_BUCKETS: usize = 48;

/// A process of the recording (a tgid may come back; an id does not). From 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// An allocation site: who asked which layer from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteKey {
    pub process: ProcessId,
    pub layer: Layer,
    pub stack: StackId,
    /// The layer's caller was itself an allocator (vm only).
    pub by_allocator: bool,
}

/// What both a site and a whole layer of a process count. Sizes in bytes.
/// For vm a block is a contiguous piece of a mapping: a munmap in the middle
/// makes two of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Outstanding, allocated by this process itself since tracing began.
    pub live_bytes: u64,
    pub live_count: u64,
    /// Outstanding, inherited from the parent at fork and not released here since.
    pub inherited_bytes: u64,
    pub inherited_count: u64,
    /// Ever allocated.
    pub alloc_bytes: u64,
    pub alloc_count: u64,
    /// Ever released, of what was allocated here.
    pub free_bytes: u64,
    pub free_count: u64,
    /// Largest `live_bytes` ever, and when (CLOCK_MONOTONIC ns).
    pub peak_bytes: u64,
    pub peak_ns: u64,
}

/// Totals of one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTotals {
    pub totals: Totals,
    /// `live_bytes`, `live_count` at the moment the whole layer of the process was at its peak.
    /// Valid as of `peak_epoch`; where the layer's `peak_epoch` is newer, this site has not changed
    /// since that peak, so its live figures are the figures at the peak.
    pub at_peak_bytes: u64,
    pub at_peak_count: u64,
    pub peak_epoch: u64,
    /// First and last allocation, CLOCK_MONOTONIC ns.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Lifetimes of freed blocks, see [`LIFETIME_BUCKETS`].
    pub lifetimes: [u64; LIFETIME_BUCKETS],
}

/// Totals of one layer of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerTotals {
    pub totals: Totals,
    /// Counts the layer's peaks, see [`SiteTotals::at_peak_bytes`].
    pub peak_epoch: u64,
    /// vm only: bytes mapped before tracing began and still mapped.
    pub before_attach_bytes: u64,
    /// Outstanding at the exec that cleared them, summed over all execs.
    pub cleared_by_exec_bytes: u64,
    pub cleared_by_exec_count: u64,
}

/// What changed since the last call of `Ledger::take_changes`.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub sites: Vec<(SiteKey, SiteTotals)>,
    pub layers: Vec<((ProcessId, Layer), LayerTotals)>,
}

/// Outstanding blocks of one site by birth, for `--older`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Births {
    /// Upper edge of the births counted (CLOCK_MONOTONIC ns) → bytes, count. Ascending.
    /// At most 256 rows: where a site has more distinct seconds, neighbours are merged.
    pub rows: Vec<(u64, u64, u64)>,
}
