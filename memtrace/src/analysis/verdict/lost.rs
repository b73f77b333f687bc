//! Blocks to which nothing points: nobody can free them any more, however little they grow.

use super::{held, kept_by::How};
use crate::{
    analysis::{series::ProcessSeries, suppressions::Suppressions},
    hash::FastMap,
    ledger::SiteKey,
    recording::{Holders, Stacks},
};

/// A site whose blocks are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LostSite {
    pub(crate) site: SiteKey,
    pub(crate) tgid: u32,
    /// Live ones at the end.
    pub(crate) blocks: f64,
    pub(crate) bytes: f64,
}

/// The sites of a process to most of whose blocks nothing points, the largest first.
pub(super) fn sites(
    series: &ProcessSeries,
    holders: &FastMap<SiteKey, Holders>,
    stacks: &Stacks,
    suppressions: &Suppressions,
) -> Vec<LostSite> {
    let is_lost = |key: &SiteKey| {
        let seen = holders.get(key);
        let seen = seen.and_then(|holders| held::kept_by(holders, stacks));
        seen.is_some_and(|(kept_by, _)| matches!(kept_by.how, How::Nothing { .. }))
    };
    let is_suppressed = |key: &SiteKey| {
        let frames: Vec<_> = stacks.get(key.stack).frames().collect();
        suppressions.matching(&frames).is_some()
    };
    let sites = series.sites.iter();
    let lost = sites.filter(|site| is_lost(&site.key) && !is_suppressed(&site.key));
    let mut lost: Vec<LostSite> = lost
        .map(|site| LostSite {
            site: site.key,
            tgid: series.row.tgid,
            blocks: site.live_count.last().copied().unwrap_or_default(),
            bytes: site.live_bytes.last().copied().unwrap_or_default(),
        })
        .collect();
    lost.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    lost
}
