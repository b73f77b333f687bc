//! Formats of other tools, decoded as their readers do, not by memtrace. Each has those parts that are checked.

pub mod otlp;
pub mod perfetto;
pub mod pprof;

use std::collections::BTreeMap;

/// By pid and layer: live and allocated bytes, live and allocated blocks.
pub type Totals = BTreeMap<(u32, String), [u64; 4]>;

pub const METRICS: [&str; 4] = ["live-bytes", "alloc-bytes", "live-count", "alloc-count"];

/// Adds figures of a site; an allocator's mappings are part of their layer's totals.
pub fn add(totals: &mut Totals, pid: u32, layer: &str, figures: [u64; 4]) {
    let layer = layer.trim_end_matches(" (by allocator)");
    let sums = totals.entry((pid, layer.to_owned())).or_default();
    for (sum, figure) in sums.iter_mut().zip(figures) {
        *sum += figure;
    }
}
