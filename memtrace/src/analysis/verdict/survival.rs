//! Whether the blocks of a site stay.

use std::ops::Range;

use super::{
    class::Grade,
    context::Context,
    evidence::{Amount, Evidence, Statement},
};
use crate::analysis::{series::SiteSeries, window::Window};

/// For a leak: least share of the blocks that outlived a while and are still live at the end.
const SURVIVAL: f64 = 0.95;

/// The part of the window that must have passed before the last scan.
const LEAST_SEEN: f64 = 0.5;

/// The oldest blocks are those allocated first: at least this share of all so far.
const OLDEST: f64 = 0.15;

/// For a queue: the largest live share of the oldest blocks, for that of the blocks a quarter as old.
const OLD_OF_YOUNG: f64 = 0.5;

/// Of the blocks that were freed late, a lifetime is common if it is that of at least this share.
const COMMON: f64 = 0.15;

/// The fate of the blocks that outlived a quarter of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Survival {
    Share(f64),
    /// The number of blocks does not grow: one block does, by realloc.
    OneBlock,
    /// No scan came late enough in the window, or the recording has none.
    Unknown,
}

static OLD_BLOCKS: Statement = Statement {
    name: "old_blocks_left",
    sentence: "{share} of the long-lived blocks are still allocated (leak: at least {least})",
};

pub(super) static ONE_BLOCK: Statement = Statement {
    name: "blocks_grow",
    sentence: "the blocks grow in size, not in number",
};

static UNKNOWN: Statement = Statement {
    name: "old_blocks_unknown",
    sentence: "block lifetimes are unknown: no scan was late enough before the process exited",
};

/// By how much a count is larger at the end of the window than at its beginning.
fn more(window: Window, counts: &[f64]) -> f64 {
    let counts = counts.get(window.from..window.to).unwrap_or_default();
    let ends = counts.last().zip(counts.first());
    ends.map_or(0.0, |(last, first)| last - first)
}

/// The share of the blocks allocated in the window by which the site grew; `None` if that is less
/// than a leak's.
pub(super) fn all_stay(context: &Context, site: &SiteSeries) -> Option<f64> {
    let allocated = more(context.window, &site.alloc_count);
    let stay = more(context.window, &site.live_count);
    (stay >= 2.0 && stay >= SURVIVAL * allocated).then(|| (stay / allocated.max(1.0)).min(1.0))
}

/// Whether the oldest blocks of a site go first, and later and later: a much smaller share of the oldest ones is live than of
/// young ones, and the lifetimes of those freed differ. If lifetimes did not become longer, growth would become slower as
/// that share does: what a site gains in a moment are the blocks that will stay.
pub(super) fn live_longer(context: &Context, site: &SiteSeries) -> bool {
    let Some(ages) = &site.ages else {
        return false;
    };
    let times = &context.series.times;
    let allocated_until = |time: f64| {
        let after = times.partition_point(|known| *known <= time);
        let before = after.checked_sub(1);
        let count = before.and_then(|index| site.alloc_count.get(index));
        count.copied().unwrap_or(0.0)
    };
    let of_age = |bucket: usize| allocated_until(ages.time - (bucket as f64).exp2() / 1e9);
    let all = allocated_until(ages.time);
    let buckets = 2..ages.live.len();
    let oldest = buckets.rev().find(|&bucket| of_age(bucket) >= OLDEST * all);
    let Some(oldest) = oldest.filter(|_| all > 0.0) else {
        return false;
    };
    let young = oldest - 2;
    let live = |buckets: Range<usize>| ages.live[buckets].iter().sum::<u64>() as f64;
    let of_young = live(young..young + 1) / (of_age(young) - of_age(young + 1)).max(1.0);
    let of_oldest = live(oldest..ages.live.len()) / of_age(oldest);
    let freed = ages.freed.get(young..).unwrap_or_default();
    let late: u64 = freed.iter().sum();
    let is_common = |count: &&u64| **count > 0 && **count as f64 >= COMMON * late as f64;
    let differ = freed.iter().filter(is_common).count() >= 2;
    of_young > 0.0 && of_oldest <= OLD_OF_YOUNG * of_young && differ
}

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

    /// The grade of a leak by survival; `None`: it is not a leak.
    pub(super) fn grade(self) -> Option<Grade> {
        match self {
            Survival::Share(share) if share < SURVIVAL => None,
            Survival::Share(_) | Survival::OneBlock => Some(Grade::B),
            Survival::Unknown => Some(Grade::C),
        }
    }

    pub(super) fn of(context: &Context, site: &SiteSeries) -> Survival {
        let Context { series, window, .. } = context;
        if more(*window, &site.live_count) < 2.0 {
            return Survival::OneBlock;
        }
        if let Some(share) = all_stay(context, site) {
            return Survival::Share(share);
        }
        let (from, to) = (window.from, window.to.saturating_sub(1));
        let at = |values: &[f64], index: usize| values.get(index).copied().unwrap_or(0.0);
        let Some(ages) = &site.ages else {
            return Survival::Unknown;
        };
        // At the end, or when an ended process was last looked through.
        let scanned = ages.time.min(at(&series.times, to));
        let length = scanned - at(&series.times, from);
        if length < LEAST_SEEN * (at(&series.times, to) - at(&series.times, from)) {
            return Survival::Unknown;
        }
        // Grown old: older than a quarter of the time, or (buckets are powers of two) than an eighth.
        let bucket = (length / 4.0 * 1e9).max(1.0).log2() as usize;
        let age = (bucket as f64).exp2() / 1e9;
        let sum = |counts: &[u64], range: Range<usize>| {
            let counts = counts.iter().take(range.end).skip(range.start);
            counts.sum::<u64>() as f64
        };
        let left = sum(&ages.live, bucket..bucket + 2);
        let freed = sum(&ages.freed, bucket..usize::MAX);
        // If the number of blocks is constant and none grows old, new blocks replace old ones.
        let count_at = |time: f64| {
            let point = series.times.partition_point(|known| *known < time);
            at(&site.live_count, point.min(to))
        };
        let grown = count_at(scanned - age) - count_at(scanned - 4.0 * age);
        if left < grown / 2.0 || left + freed == 0.0 {
            return Survival::Share(left / grown.max(1.0));
        }
        Survival::Share(left / (left + freed))
    }
}
