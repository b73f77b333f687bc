//! Whether the blocks of a site stay.

use super::{
    Evidence, Grade,
    evidence::{Amount, Statement},
    site::Context,
};
use crate::analysis::series::SiteSeries;

/// Share of the blocks that outlived a while and are there at the end, of a leak.
const SURVIVAL: f64 = 0.95;

/// What became of the blocks that outlived a quarter of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Survival {
    Share(f64),
    /// The number of blocks does not grow: one block does, by realloc.
    OneBlock,
    /// The process has ended, and gave back what it had on its way.
    Unknown,
}

static OLD_BLOCKS: Statement = Statement {
    name: "old_blocks_left",
    sentence: "{share} of the blocks that grew old are still there (a leak: at least {least})",
};

static ONE_BLOCK: Statement = Statement {
    name: "blocks_grow",
    sentence: "the number of blocks does not grow, their size does",
};

static UNKNOWN: Statement = Statement {
    name: "old_blocks_unknown",
    sentence: "which blocks grow old is not known: the process has ended",
};

impl Survival {
    pub(super) fn evidence(self) -> Evidence {
        match self {
            Survival::Share(share) => OLD_BLOCKS
                .with([("share", Amount::Share(share))])
                .against([("least", Amount::Share(SURVIVAL))]),
            Survival::OneBlock => ONE_BLOCK.with([]),
            Survival::Unknown => UNKNOWN.with([]),
        }
    }

    /// How sure a leak is by it; `None`: it is none.
    pub(super) fn grade(self) -> Option<Grade> {
        match self {
            Survival::Share(share) if share < SURVIVAL => None,
            Survival::Share(_) | Survival::OneBlock => Some(Grade::B),
            Survival::Unknown => Some(Grade::C),
        }
    }

    pub(super) fn of(context: &Context, site: &SiteSeries) -> Survival {
        let Context { series, window, .. } = context;
        let (from, to) = (window.from, window.to.saturating_sub(1));
        let at = |values: &[f64], index: usize| values.get(index).copied().unwrap_or(0.0);
        let more = at(&site.live_count, to) - at(&site.live_count, from);
        if more < 2.0 {
            return Survival::OneBlock;
        }
        let allocated = at(&site.alloc_count, to) - at(&site.alloc_count, from);
        if more >= SURVIVAL * allocated {
            return Survival::Share((more / allocated.max(1.0)).min(1.0));
        }
        if series.row.ended_ns.is_some() {
            return Survival::Unknown;
        }
        let length = at(&series.times, to) - at(&series.times, from);
        let bucket = ((length / 4.0 * 1e9).max(1.0)).log2().floor();
        let age = bucket.exp2() / 1e9;
        let freed: u64 = site.lifetimes.iter().skip(bucket as usize).sum();
        // In steady growth as many are old now as there were then: the young ones of then have gone,
        // or grown old.
        let then = series
            .times
            .partition_point(|time| *time < at(&series.times, to) - age);
        let old = at(&site.live_count, then).min(at(&site.live_count, to));
        match old + freed as f64 {
            0.0 => Survival::Share(0.0),
            all => Survival::Share(old / all),
        }
    }
}
