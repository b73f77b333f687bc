//! The buckets in which lifetimes and ages of blocks are counted.

/// Number of log₂ buckets of [`super::SiteTotals::lifetimes`]: bucket `i` counts
/// blocks freed after [2^i, 2^(i+1)) nanoseconds (bucket 0 also 0 ns).
pub(crate) const LIFETIME_BUCKETS: usize = 48;

/// The bucket of a lifetime, or of an age.
pub(super) fn bucket_of(ns: u64) -> usize {
    (ns.max(1).ilog2() as usize).min(LIFETIME_BUCKETS - 1)
}

pub(super) fn without_zeros_at_end(counts: &[u64]) -> Box<[u64]> {
    let used = counts.iter().rposition(|count| *count > 0);
    counts[..used.map_or(0, |last| last + 1)].into()
}
