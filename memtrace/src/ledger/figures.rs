//! The figures that the ledger reports: those of sites and of layers, what changed of them, and the errors in the
//! events.

use super::{
    ProcessId, SiteKey,
    device_totals::{DeviceTotals, Failure, FailureKey, StreamKey, StreamTotals},
};
use crate::event::{Device, Layer};
use memtrace_common::loss::Reason;

/// Figures of a site and of a whole layer of a process. Sizes in bytes. For vm and python a block
/// is a contiguous piece of a mapping: a munmap in the middle turns one into two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Live, allocated by this process itself since tracing began.
    pub live_bytes: u64,
    pub live_count: u64,
    /// Live, inherited from the parent at fork and not released here since.
    pub inherited_bytes: u64,
    pub inherited_count: u64,
    /// Ever allocated.
    pub alloc_bytes: u64,
    pub alloc_count: u64,
    /// Ever released, of the memory allocated here. For a mapping a cut counts its bytes, and a
    /// piece counts once it is completely gone.
    pub free_bytes: u64,
    pub free_count: u64,
    /// Largest `live_bytes` ever, and when (CLOCK_MONOTONIC ns).
    pub peak_bytes: u64,
    pub peak_ns: u64,
}

impl Totals {
    /// One block more; whether that is a new peak.
    pub(super) fn gain(&mut self, size: u64, time_ns: u64) -> bool {
        self.alloc_bytes += size;
        self.alloc_count += 1;
        self.live_bytes += size;
        self.live_count += 1;
        let is_peak = self.live_bytes > self.peak_bytes;
        if is_peak {
            self.peak_bytes = self.live_bytes;
            self.peak_ns = time_ns;
        }
        is_peak
    }

    pub(super) fn clear_outstanding(&mut self) {
        self.live_bytes = 0;
        self.live_count = 0;
        self.inherited_bytes = 0;
        self.inherited_count = 0;
    }
}

/// Totals of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTotals {
    pub totals: Totals,
    /// `live_bytes`, `live_count` at the moment the whole layer of the process was at its peak.
    /// Valid as of `peak_epoch`; if the layer's `peak_epoch` is newer, this site has not changed
    /// since that peak, so its live figures are the figures at the peak.
    pub at_peak_bytes: u64,
    pub at_peak_count: u64,
    pub peak_epoch: u64,
    /// First and last allocation, CLOCK_MONOTONIC ns.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Lifetimes of the blocks whose end was seen (not those replaced after a
    /// lost release), see [`super::LIFETIME_BUCKETS`]; zeros at the end are left out.
    pub lifetimes: Box<[u64]>,
}

/// Totals of one layer of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerTotals {
    pub totals: Totals,
    /// Counts the layer's peaks, see [`SiteTotals::at_peak_bytes`].
    pub peak_epoch: u64,
    /// vm only: bytes mapped before tracing began and still mapped.
    pub before_attach_bytes: u64,
    /// Live at the exec that cleared them, summed over all execs.
    pub cleared_by_exec_bytes: u64,
    pub cleared_by_exec_count: u64,
}

impl LayerTotals {
    pub(super) fn holds_nothing(&self) -> bool {
        self.totals.live_count + self.totals.inherited_count + self.before_attach_bytes == 0
    }
}

/// Changes since the last call of `Ledger::take_changes`.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub sites: Vec<(SiteKey, SiteTotals)>,
    pub layers: Vec<((ProcessId, Layer), LayerTotals)>,
    pub devices: Vec<((ProcessId, Device), DeviceTotals)>,
    pub streams: Vec<(StreamKey, StreamTotals)>,
    pub failures: Vec<(FailureKey, Failure)>,
}

/// Errors in the events themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Reason::UnknownFree`].
    pub unknown_free: u64,
    /// [`Reason::AddressReused`].
    pub address_reused: u64,
    /// [`Reason::OutcomeLost`].
    pub outcome_lost: u64,
}

impl Counts {
    /// Every count by its reason, zero included.
    pub fn by_reason(&self) -> [(Reason, u64); 3] {
        [
            (Reason::UnknownFree, self.unknown_free),
            (Reason::AddressReused, self.address_reused),
            (Reason::OutcomeLost, self.outcome_lost),
        ]
    }
}
