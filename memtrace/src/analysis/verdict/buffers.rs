//! Buffers that are enlarged in a few steps, such as a string or a vector that doubles. Each was full when it was enlarged,
//! so these moments show how fast it fills, and resident memory shows that it still does.

use super::{
    class::{Class, Grade},
    context::Context,
    evidence::{Amount, Evidence, Statement, grown},
    offset::Offset,
    shape::{Judged, Shape},
    subjects::SiteFinding,
    thresholds::PROCESS_FLOOR,
};
use crate::{analysis::series::SiteSeries, event::Layer, frames::mappings::Use, ledger::SiteKey};
use std::ops::RangeInclusive;

/// Least part by which a step enlarges a block. Smaller ones are so many that the site grows steadily by itself.
const STEP: f64 = 0.05;

/// What resident memory gains for each byte by which the buffers fill. Steps are seen only at the readings, and the first
/// size is estimated, so that rate is not exact.
const AS_FAST: RangeInclusive<f64> = 0.7..=1.4;

static ENLARGED: Statement = Statement {
    name: "buffer_enlarged",
    sentence: "a block that was enlarged when it was full, {steps} times: from one time to the next, it filled by {rate}",
};

static FILLED: Statement = Statement {
    name: "buffers_fill",
    sentence: "resident memory beyond all other blocks: {growth} in {length}, {rate}",
};

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

/// See the module.
pub(super) struct Buffers {
    filling: Vec<(SiteKey, Filling)>,
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
    /// `None`: the site is not one block that is enlarged, or it may have stopped filling.
    fn of(times: &[f64], site: &SiteSeries) -> Option<Filling> {
        let live = &site.live_bytes;
        let steps = steps(times, live);
        let mut full: Vec<(f64, f64)> = steps.iter().map(|step| (step.time, step.before)).collect();
        // The size before the first step that was seen: a block is enlarged by the same factor each time.
        if let [first, second, ..] = &steps[..]
            && first.before == 0.0
        {
            full[0].1 = second.before * second.before / second.after;
        }
        let (first, last) = (full.first()?, full.last()?);
        let rate = (last.1 - first.1) / (last.0 - first.0);
        let allocated = site.alloc_count.last()? - site.alloc_count.first()?;
        let is_one = *site.live_count.last()? <= 1.0 && allocated <= full.len() as f64 + 1.0;
        let rises = full.windows(2).all(|pair| pair[1].1 > pair[0].1);
        let filled_by_now = last.1 + rate * (times.last()? - last.0);
        let fits = filled_by_now <= (1.0 + STEP) * live.last()?;
        let steps = full.len();
        (steps >= 2 && full[0].1 > 0.0 && is_one && rises && fits)
            .then_some(Filling { steps, rate })
    }
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
        let sites: Vec<(&SiteSeries, Filling)> = sites
            .filter_map(|(site, _)| Some((*site, Filling::of(&series.times, site)?)))
            .collect();
        if sites.is_empty() {
            return Buffers {
                filling: Vec::new(),
                rise: None,
            };
        }
        let rate: f64 = sites.iter().map(|(_, filling)| filling.rate).sum();
        let rise = series.beyond_blocks().and_then(|beyond| {
            let chunks = series.mapped(Use::Runtime);
            let others = series.sum([series.python.as_slice(), &chunks].into_iter());
            let own = series.sum(sites.iter().map(|(site, _)| site.live_bytes.as_slice()));
            let rest = beyond.iter().zip(&others).map(|(all, others)| all - others);
            let filled: Vec<f64> = rest.zip(&own).map(|(rest, own)| rest + own).collect();
            Judged::of(&series.times, &filled, context.window.from, PROCESS_FLOOR).ok()
        });
        let fills = |rise: &Judged| {
            rise.shape() == Shape::Steady && AS_FAST.contains(&(rise.trend.slope / rate))
        };
        Buffers {
            filling: sites.iter().map(|(site, of)| (site.key, *of)).collect(),
            rise: rise.filter(fills),
        }
    }

    /// The finding on a site whose block fills.
    pub(super) fn find(
        &self,
        context: &Context,
        site: &SiteSeries,
    ) -> Option<(Class, SiteFinding)> {
        let rise = self.rise.as_ref()?;
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

/// Whether the evidence is that of a block which is enlarged.
pub(super) fn are_of_buffer(evidence: &[Evidence]) -> bool {
    let names = [ENLARGED.name, super::survival::ONE_BLOCK.name];
    evidence.iter().any(|of| names.contains(&of.kind.name))
}
