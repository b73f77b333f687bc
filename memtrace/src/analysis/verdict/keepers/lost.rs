//! Blocks to which nothing points: nobody can free them any more, however little they grow.

use super::{keeper::How, seen};
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
    /// Those that lived at the end, times the share of lost ones among those that were examined.
    pub(crate) blocks: f64,
    pub(crate) bytes: f64,
}

/// The sites of a process to most of whose blocks nothing points, the largest first.
pub(in super::super) fn sites(
    series: &ProcessSeries,
    holders: &FastMap<SiteKey, Holders>,
    stacks: &Stacks,
    suppressions: &Suppressions,
) -> Vec<LostSite> {
    let share_of = |key: &SiteKey| {
        let (keeper, _) = seen::keeper(holders.get(key)?, stacks)?;
        match keeper.how {
            How::Nothing { share } | How::LostWith { share, .. } | How::LostCycle { share, .. } => {
                Some(share)
            }
            _ => None,
        }
    };
    let is_suppressed = |key: &SiteKey| {
        let frames: Vec<_> = stacks.get(key.stack).frames().collect();
        suppressions.matching(&frames).is_some()
    };
    let sites = series.sites.iter();
    let lost = sites.filter(|site| !is_suppressed(&site.key));
    let mut lost: Vec<LostSite> = lost
        .filter_map(|site| {
            let share = share_of(&site.key)?;
            let of_all = |values: &[f64]| values.last().map_or(0.0, |last| last * share);
            Some(LostSite {
                site: site.key,
                tgid: series.row.tgid,
                blocks: of_all(&site.live_count),
                bytes: of_all(&site.live_bytes),
            })
        })
        .collect();
    lost.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    lost
}
