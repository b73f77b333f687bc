//! Buffers that are enlarged in a few steps, such as a string or a vector that doubles. Each was full when it was enlarged,
//! so these moments show how fast it fills, and resident memory shows that it still does.

use super::{
    class::{Class, Grade},
    context::Context,
    evidence::{Amount, Evidence, Statement, grown},
    offset::Offset,
    shape::{Judged, Shape},
    subjects::SiteFinding,
    thresholds::{MAJORITY, PROCESS_FLOOR, SITE_FLOOR},
};
use crate::{analysis::series::SiteSeries, event::Layer, frames::mappings::Use, ledger::SiteKey};
use std::ops::RangeInclusive;

/// Least part by which a step enlarges a block. Smaller ones are so many that the site grows steadily by itself.
const STEP: f64 = 0.05;

/// Steps that count.
const LAST: usize = 3;

/// What resident memory gains for each byte by which the buffers fill. Steps are seen only at the readings, and the first
/// size is estimated, so that rate is not exact.
const AS_FAST: RangeInclusive<f64> = 0.7..=1.4;

static ENLARGED: Statement = Statement {
    name: "buffer_enlarged",
    sentence: "a block that was enlarged when it was full, {steps} times: from one time to the next, it filled by {rate}",
};

static ONCE: Statement = Statement {
    name: "buffers_enlarged_once",
    sentence: "its blocks, {size} in total, were enlarged when they were full, and have room for what came since",
};

static FILLED: Statement = Statement {
    name: "buffers_fill",
    sentence: "resident memory beyond all other blocks: {growth} in {length}, {rate}",
};

static REPLACED: Statement = Statement {
    name: "block_replaced",
    sentence: "its block is replaced by a larger one each time: {growth} in {length}, {rate}",
};

static TABLE: Statement = Statement {
    name: "table_fills",
    sentence: "the table of a container with {items} items, about {gained} of them from the last {length}: {rate}",
};

/// A table has room for more items than this, if it matters.
const ITEMS_OF_BLOCK: f64 = 100.0;

/// The share of its items that a container got while recording if its table fills, and the table's share of what grows.
const NEW_ITEMS: f64 = 0.1;
const LEAST_PART: f64 = 0.1;

/// Least number of blocks that replaced one another.
const REPLACEMENTS: f64 = 8.0;

/// The moment at which a block was enlarged, and its sizes.
struct Step {
    time: f64,
    before: f64,
    after: f64,
    /// Index of the point after it.
    end: usize,
}

/// A step between two readings may be seen as two.
fn steps(times: &[f64], live: &[f64]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, (pair, &time)) in live.windows(2).zip(times.iter().skip(1)).enumerate() {
        let (before, after, end) = (pair[0], pair[1], index + 1);
        match steps.last_mut() {
            _ if after <= (1.0 + STEP) * before => {}
            Some(last) if last.end == index => (last.after, last.end) = (after, end),
            _ => steps.push(Step {
                time,
                before,
                after,
                end,
            }),
        }
    }
    steps
}

/// Blocks of a site that are enlarged one after the other.
const BLOCKS: f64 = 64.0;

/// The part of a block that is free after it was enlarged.
const ROOM: f64 = 0.5;

/// See the module.
pub(super) struct Buffers {
    filling: Vec<(SiteKey, Filling)>,
    /// The site whose blocks were enlarged once, and fill since; with their bytes.
    enlarged: Option<(SiteKey, f64)>,
    /// Of resident memory.
    rise: Option<Judged>,
}

#[derive(Clone, Copy)]
struct Filling {
    steps: usize,
    /// Bytes per second.
    rate: f64,
}

impl Filling {
    /// `live`: bytes. `None`: the site is not one block that is enlarged, or it may have stopped filling.
    fn of(times: &[f64], live: &[f64], blocks: &[f64], allocated: &[f64]) -> Option<Filling> {
        let steps = steps(times, live);
        // Those before came quickly after one another, when the block was small.
        let steps = &steps[steps.len().saturating_sub(LAST)..];
        let mut full: Vec<(f64, f64)> = steps.iter().map(|step| (step.time, step.before)).collect();
        // The size before the first step that was seen: a block is enlarged by the same factor each time.
        if let [first, second, ..] = steps
            && first.before == 0.0
        {
            full[0].1 = second.before * second.before / second.after;
        }
        let (first, last) = (full.first()?, full.last()?);
        let rate = (last.1 - first.1) / (last.0 - first.0);
        let later = allocated.last()? - allocated.get(steps.first()?.end)?;
        let is_one = *blocks.last()? <= 1.0 && later <= full.len() as f64;
        let rises = full.windows(2).all(|pair| pair[1].1 > pair[0].1);
        let filled_by_now = last.1 + rate * (times.last()? - last.0);
        let fits = filled_by_now <= (1.0 + STEP) * live.last()?;
        let steps = full.len();
        (steps >= 2 && full[0].1 > 0.0 && is_one && rises && fits)
            .then_some(Filling { steps, rate })
    }
}

/// Whether the blocks of a site were enlarged while recording, at the same time, and have not changed since.
fn is_enlarged(site: &SiteSeries, times: &[f64]) -> bool {
    let last = steps(times, &site.live_bytes).pop();
    let later = last.map(|step| {
        let allocated = site.alloc_count.last().zip(site.alloc_count.get(step.end));
        allocated.map_or(0.0, |(last, then)| last - then)
    });
    let blocks = site.live_count.last().copied().unwrap_or(0.0);
    site.code.enlarges && later == Some(0.0) && (1.0..=BLOCKS).contains(&blocks)
}

/// Resident memory with the blocks of a site filled as far as they are, if it rises steadily: all but that of other blocks.
fn rise_with(context: &Context, own: &[f64]) -> Option<Judged> {
    let series = context.series;
    let beyond = series.beyond_blocks()?;
    let chunks = series.mapped(Use::Runtime);
    let others = series.sum([series.python.as_slice(), &chunks].into_iter());
    let rest = beyond.iter().zip(&others).map(|(all, others)| all - others);
    let filled: Vec<f64> = rest.zip(own).map(|(rest, own)| rest + own).collect();
    let judged = Judged::of(&series.times, &filled, context.window.from, PROCESS_FLOOR).ok();
    judged.filter(|rise| rise.shape() == Shape::Steady)
}

impl Buffers {
    pub(super) fn of(
        context: &Context,
        tested: &[(&SiteSeries, Judged)],
        offset: &Offset,
    ) -> Buffers {
        let series = context.series;
        let may_fill = |site: &SiteSeries, judged: &Judged| {
            site.key.layer == Layer::Heap
                && judged.shape() != Shape::Steady
                && !site.code.is_import
                && site.code.cache.is_none()
                && !offset.is_in_place(&site.key)
        };
        let sites = tested
            .iter()
            .filter(|(site, judged)| may_fill(site, judged));
        let filling = |site: &SiteSeries| {
            let (live, blocks) = (&site.live_bytes, &site.live_count);
            Filling::of(&series.times, live, blocks, &site.alloc_count)
        };
        let filled: Vec<(&SiteSeries, Filling)> = sites
            .clone()
            .filter_map(|(site, _)| Some((*site, filling(site)?)))
            .collect();
        let filling = filled.iter().map(|(site, of)| (site.key, *of)).collect();
        if !filled.is_empty() {
            let rate: f64 = filled.iter().map(|(_, filling)| filling.rate).sum();
            let own = filled.iter().map(|(site, _)| site.live_bytes.as_slice());
            let rise = rise_with(context, &series.sum(own));
            return Buffers {
                filling,
                enlarged: None,
                rise: rise.filter(|rise| AS_FAST.contains(&(rise.trend.slope / rate))),
            };
        }
        let enlarged: Vec<&SiteSeries> = sites
            .map(|(site, _)| *site)
            .filter(|site| is_enlarged(site, &series.times))
            .collect();
        let size = |site: &SiteSeries| site.live_bytes.last().copied().unwrap_or(0.0);
        let all: f64 = enlarged.iter().map(|site| size(site)).sum();
        let one = enlarged.iter().find(|site| size(site) >= MAJORITY * all);
        let rise = one.and_then(|site| rise_with(context, &site.live_bytes));
        Buffers {
            filling,
            enlarged: one.map(|site| (site.key, size(site))),
            // They have room for it: half of a block that was doubled.
            rise: rise.filter(|rise| rise.trend.growth() <= ROOM * all),
        }
    }

    /// The finding on a site whose block fills.
    pub(super) fn find(
        &self,
        context: &Context,
        site: &SiteSeries,
    ) -> Option<(Class, SiteFinding)> {
        let rise = self.rise.as_ref()?;
        if let Some((_, size)) = self.enlarged.filter(|(key, _)| *key == site.key) {
            let growth = rise.trend.growth();
            let found = SiteFinding {
                grade: Grade::C,
                evidence: vec![
                    ONCE.with([("size", Amount::Bytes(size))]),
                    FILLED.with(grown(&rise.trend)),
                ],
                runner_up: Class::Cache,
                rate: Some(rise.trend.slope),
                growth,
            };
            return Some((Class::Leak, found));
        }
        let (_, filling) = self.filling.iter().find(|(key, _)| *key == site.key)?;
        let steps = Amount::Count(filling.steps as f64);
        let rate = Amount::BytesPerSecond(filling.rate);
        let found = SiteFinding {
            grade: Grade::C,
            evidence: vec![
                ENLARGED.with([("steps", steps), ("rate", rate)]),
                FILLED.with(grown(&rise.trend)),
            ],
            runner_up: Class::Cache,
            rate: Some(filling.rate),
            growth: filling.rate * context.window.change(&context.series.times),
        };
        Some((Class::Leak, found))
    }
}

/// The finding on a site whose block is replaced by a larger one again and again, as an array that is copied to append to it.
pub(super) fn replaced(context: &Context, site: &SiteSeries) -> Option<(Class, SiteFinding)> {
    let Context { series, window, .. } = context;
    let sizes = site.sizes(window.from)?;
    let only_rises = sizes.get(window.from..)?.is_sorted();
    let is_often = window.change(&site.alloc_count) >= REPLACEMENTS;
    let code = &site.code;
    let is_other = code.cache.is_some() || code.runtime.is_some_and(|of| of.is_lazy);
    if site.key.layer != Layer::Heap || is_other || !only_rises || !is_often || !context.rises() {
        return None;
    }
    let judged = Judged::of(&series.times, &sizes, window.from, SITE_FLOOR).ok()?;
    (judged.shape() == Shape::Steady).then(|| {
        let found = SiteFinding {
            grade: Grade::C,
            evidence: vec![REPLACED.with(grown(&judged.trend))],
            runner_up: Class::Cache,
            rate: Some(judged.trend.slope),
            growth: window.change(&sizes),
        };
        (Class::Leak, found)
    })
}

/// The finding on a site whose block is the table of a container that certainly gets more items: it is enlarged too rarely to
/// show how fast it fills, but each item takes its part of it.
pub(super) fn table(context: &Context, site: &SiteSeries) -> Option<(Class, SiteFinding)> {
    let (items, growth) = context.filling(&site.key)?;
    let Context { series, window, .. } = context;
    let seconds = window.change(&series.times);
    let blocks = window.rate(&site.live_count, &series.times);
    let is_table = *site.live_count.last()? <= 2.0 && growth >= ITEMS_OF_BLOCK * blocks;
    let is_filled =
        growth * seconds >= NEW_ITEMS * items as f64 && window.change(&site.live_bytes) > 0.0;
    // Its own steps make the growth of the whole uneven.
    let goes_on = context.is_steady() || context.rises() && context.kept_objects().is_some();
    let rate = growth * site.live_bytes.last().copied().unwrap_or(0.0) / items as f64;
    let whole = series.footprint().map_or(0.0, |all| window.change(&all));
    let is_much = rate * seconds >= LEAST_PART * whole;
    (is_table && is_filled && goes_on && is_much).then(|| {
        let found = SiteFinding {
            grade: Grade::C,
            evidence: vec![TABLE.with([
                ("items", Amount::Count(items as f64)),
                ("gained", Amount::Count(growth * seconds)),
                ("length", Amount::Seconds(seconds)),
                ("rate", Amount::BytesPerSecond(rate)),
            ])],
            runner_up: Class::Cache,
            rate: Some(rate),
            growth: rate * seconds,
        };
        (Class::Leak, found)
    })
}

/// Whether the evidence is that of blocks which fill with memory that they already had.
pub(super) fn fill(evidence: &[Evidence]) -> bool {
    evidence.iter().any(|of| of.kind.name == ONCE.name)
}

/// Whether the evidence is that of a block which is enlarged.
pub(super) fn are_of_buffer(evidence: &[Evidence]) -> bool {
    let names = [
        ENLARGED.name,
        ONCE.name,
        REPLACED.name,
        TABLE.name,
        super::survival::ONE_BLOCK.name,
    ];
    evidence.iter().any(|of| names.contains(&of.kind.name))
}

#[cfg(test)]
mod tests {
    use super::Filling;

    /// Of a block with these sizes and allocations so far, read once a second: bytes per second.
    fn rate(at: impl Fn(f64) -> (f64, f64)) -> Option<f64> {
        let times: Vec<f64> = (0..120).map(f64::from).collect();
        let (live, allocated): (Vec<f64>, Vec<f64>) = times.iter().map(|time| at(*time)).unzip();
        let blocks: Vec<f64> = live.iter().map(|bytes| f64::from(*bytes > 0.0)).collect();
        Some(Filling::of(&times, &live, &blocks, &allocated)?.rate)
    }

    fn is_near(rate: Option<f64>, expected: f64) -> bool {
        rate.is_some_and(|rate| (rate - expected).abs() < 0.1 * expected)
    }

    #[test]
    fn a_vector_that_doubles_fills_at_the_rate_between_its_sizes() {
        // It was empty at first, and doubled often in the first second.
        let from_the_start = |time: f64| match time * 1000.0 {
            0.0 => (0.0, 0.0),
            items => {
                let doubled = items.log2().floor() + 1.0;
                (doubled.exp2(), doubled)
            }
        };
        assert!(is_near(rate(from_the_start), 1000.0));
        // The first block that was seen replaced one from before.
        let attached = |time: f64| match 3000.0 + 100.0 * time {
            ..4096.0 => (0.0, 0.0),
            ..8192.0 => (8192.0, 1.0),
            _ => (16384.0, 2.0),
        };
        assert!(is_near(rate(attached), 100.0));
    }

    #[test]
    fn other_blocks_do_not_fill() {
        let enlarged_once = |time: f64| match time {
            ..60.0 => (4096.0, 1.0),
            _ => (8192.0, 2.0),
        };
        assert_eq!(rate(enlarged_once), None);
        // It would have been enlarged again long ago.
        let large_enough = |time: f64| match time {
            ..10.0 => (4096.0, 1.0),
            ..20.0 => (8192.0, 2.0),
            _ => (16384.0, 3.0),
        };
        assert_eq!(rate(large_enough), None);
        // A new block each time, and now and then a larger one.
        let temporary = |time: f64| match time {
            ..40.0 => (4096.0, 50.0 * time),
            ..80.0 => (8192.0, 50.0 * time),
            _ => (16384.0, 50.0 * time),
        };
        assert_eq!(rate(temporary), None);
    }
}
