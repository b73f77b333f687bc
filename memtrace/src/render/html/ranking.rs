//! The order in which a page takes sites, and how many it shows one by one.

use std::collections::HashSet;

use crate::{
    ledger::SiteKey,
    recording::Snapshot,
    view::{Filter, Metric, Shown},
};

/// Most sites that a page has one by one; the others are summed by process and layer.
pub(super) const SITES: usize = 10_000;

/// The sites in the order in which a page takes them: those with most live or most allocated bytes
/// first.
fn ranked<'a>(sites: &[Shown<'a>]) -> Vec<Shown<'a>> {
    let mut best = vec![usize::MAX; sites.len()];
    for metric in [Metric::LiveBytes, Metric::AllocBytes, Metric::Peak] {
        let mut order: Vec<usize> = (0..sites.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(metric.of(&sites[*index].totals())));
        for (rank, index) in order.into_iter().enumerate() {
            best[index] = best[index].min(rank);
        }
    }
    let mut order: Vec<usize> = (0..sites.len()).collect();
    order.sort_by_key(|index| best[*index]);
    order
        .into_iter()
        .map(|index| sites[index].clone())
        .collect()
}

/// All sites, see [`ranked`].
pub(super) fn all(snapshot: &Snapshot) -> Vec<Shown<'_>> {
    // Without a limit on ages, selecting cannot fail.
    let selection = Filter::default().select(snapshot, Metric::LiveBytes);
    ranked(
        &selection
            .map(|selection| selection.sites)
            .unwrap_or_default(),
    )
}

/// The sites that a page shows one by one.
pub(super) fn chosen(snapshot: &Snapshot) -> HashSet<SiteKey> {
    let sites = all(snapshot).into_iter().take(SITES);
    sites.map(|shown| shown.site.key).collect()
}
