//! Live memory that grew and has reached, or is approaching, its limit.

use crate::analysis::{
    statistics::WARM_UP,
    verdict::{
        advice::Advice,
        class::{Class, Grade},
        context::Context,
        evidence::{Amount, Evidence, Statement},
        finding::Finding,
        rule::{DESCRIPTION, Description, OF_SITES, OfProcess, OfSite, Rule},
        shape::Shape,
        subjects::{Grown, JudgedSite, OnDevice, SiteFinding},
        thresholds::{PROCESS_FLOOR, SLOWING},
    },
    window::{EDGE, Window},
};
use crate::ledger::SiteKey;

pub(super) const CLASS: Description = Description {
    name: "cache",
    meaning: "memory that grew to a limit, or is approaching one",
    mistaken_for: Some(Class::Leak),
    longer: true,
    next_of_site: Some(|_, _, longer| Advice::ConfirmLimit(longer)),
    ..DESCRIPTION
};

static STOPPED: Statement = Statement {
    name: "sites_stopped",
    sentence: "{count} sites grew and then stopped; the first of them:",
};

static GREW: Statement = Statement {
    name: "site_grew",
    sentence: "live bytes {growth} since the first fifth of the recording",
};

static FLAT: Statement = Statement {
    name: "site_then_flat",
    sentence: "then flat at {level} for {length:.0}: {rate}",
};

pub(super) const DEVICE: Rule<OfProcess> = Rule {
    class: Class::Cache,
    evidence: "one of them levels off, and neither keeps growing",
    find: OfProcess::Device(|on: &OnDevice| {
        let (outstanding, held) = on.shapes();
        let slows = outstanding == Shape::Slowing || held == Shape::Slowing;
        slows.then(|| on.finding(Class::Cache, Grade::C, None, None))
    }),
};

pub(super) const SITES: Rule<OfProcess> = Rule {
    class: Class::Cache,
    evidence: OF_SITES,
    find: OfProcess::Sites,
};

pub(super) const SPREAD: Rule<OfProcess> = Rule {
    class: Class::Cache,
    evidence: "live memory where no single site grows enough, but all of them together slow down",
    find: OfProcess::Spread(&[Shape::Slowing], Grade::C),
};

pub(super) const FULL: Rule<OfProcess> = Rule {
    class: Class::Cache,
    evidence: "sites grew and stopped, see below, by 256 KiB or more in total, and resident memory grew by half of that or more",
    find: OfProcess::State(|judging| {
        let caches = || {
            let host = judging.sites.iter().filter(|site| site.is_of_host());
            host.filter(|site| site.verdict.class == Class::Cache)
        };
        let first = caches().next()?;
        let gained: f64 = caches().map(gained).sum();
        let series = judging.context.series;
        let grew = series.footprint().map(|all| judging.whole.change(&all));
        if gained < PROCESS_FLOOR || grew.is_some_and(|grew| grew < OF_GAIN * gained) {
            return None;
        }
        let count = Amount::Count(caches().count() as f64);
        let mut evidence = vec![STOPPED.with([("count", count)])];
        evidence.extend(first.verdict.evidence.iter().cloned());
        Some(Finding {
            class: Class::Cache,
            grade: Grade::C,
            evidence,
            runner_up: Some(Class::None),
            rate: None,
        })
    }),
};

/// The part of what sites gained that resident memory shows; otherwise they took the place of other blocks.
const OF_GAIN: f64 = 0.5;

/// By how much a site grew, wherever that was in its course, bytes.
fn gained(site: &JudgedSite) -> f64 {
    let mut evidence = site.verdict.evidence.iter();
    let grew = evidence.find_map(|of| match of.amount("growth") {
        Some(Amount::Change(bytes)) => Some(*bytes),
        _ => None,
    });
    grew.unwrap_or(site.growth)
}

pub(super) const SLOWS: Rule<OfSite> = Rule {
    class: Class::Cache,
    evidence: "the late slope is at most 0.25 × the early one",
    find: OfSite::Growing(|grown| {
        (grown.shape == Shape::Slowing).then(|| SiteFinding {
            grade: Grade::C,
            ..SiteFinding::of(grown.judged)
        })
    }),
};

static KNOWN_CACHE: Statement = Statement {
    name: "known_cache",
    sentence: "the blocks are allocated in calls from {cache}, which holds at most {limit} by default",
};

/// A site that fills a library's cache with a limit.
pub(super) fn known(grown: &Grown) -> Option<SiteFinding> {
    let cache = grown.site.code.cache?;
    let values = [
        ("cache", Amount::Word(cache.name)),
        ("limit", Amount::Word(cache.limit?)),
    ];
    Some(SiteFinding {
        evidence: vec![KNOWN_CACHE.with(values)],
        ..SiteFinding::of(grown.judged)
    })
}

pub(super) const KNOWN: Rule<OfSite> = Rule {
    class: Class::Cache,
    evidence: "its stack is that of a library cache with a limit (`memtrace/src/frames/known_caches.rs`), and it does not keep growing like a leak",
    find: OfSite::Growing(|grown| {
        // A site that keeps growing like a leak may be a leak of memory that the cached function
        // keeps elsewhere.
        let found = known(grown).filter(|_| grown.leaks().is_none())?;
        Some(SiteFinding {
            grade: Grade::C,
            ..found
        })
    }),
};

static WITH_LIMIT: Statement = Statement {
    name: "container_with_limit",
    sentence: "the container that keeps the blocks has {items} items, and a limit of {limit}",
};

/// That a container with a limit certainly keeps the blocks of a site.
pub(in super::super) fn limited(context: &Context, site: &SiteKey) -> Option<Evidence> {
    let (items, limit) = context.limited(site)?;
    let [items, limit] = [items, limit].map(|count| Amount::Count(count as f64));
    Some(WITH_LIMIT.with([("items", items), ("limit", limit)]))
}

pub(super) const LIMITED: Rule<OfSite> = Rule {
    class: Class::Cache,
    evidence: "a container that drops what is beyond its limit certainly keeps the blocks",
    find: OfSite::Growing(|grown| {
        let evidence = limited(grown.context, &grown.site.key)?;
        Some(SiteFinding {
            grade: Grade::C,
            evidence: vec![evidence],
            ..SiteFinding::of(grown.judged)
        })
    }),
};

pub(super) const STAYS: Rule<OfSite> = Rule {
    class: Class::Cache,
    evidence: "grew after the first fifth, stopped, and was never that low again",
    find: OfSite::Flat(stays),
};

fn stays(grown: &Grown) -> Option<SiteFinding> {
    let (judged, live) = (grown.judged, &grown.site.live_bytes);
    let Window { from, to } = grown.context.window;
    let start = (to as f64 * WARM_UP) as usize;
    let growth = Window { from: start, to }.change(live);
    let late = judged.trend.growth();
    // A fluctuating load is sometimes high, sometimes low; a full cache never returns to its old
    // level.
    let part = |from: usize, to: usize| live.get(from..to).unwrap_or_default();
    let before = part(start, start + (to - start) / EDGE);
    let after = part(from.max(to / 2), to);
    let highest = before.iter().copied().fold(0.0, f64::max);
    let lowest = after.iter().copied().fold(f64::INFINITY, f64::min);
    let is_flat = late < judged.threshold && late < SLOWING * growth;
    // It may have stopped so late that the rest is not flat on the whole.
    let full = growth >= judged.threshold && (is_flat || judged.shape() == Shape::Slowing);
    if !full || lowest - highest < growth / 2.0 {
        return None;
    }
    let length = judged.trend.to - judged.trend.from;
    Some(SiteFinding {
        grade: Grade::C,
        evidence: vec![
            GREW.with([("growth", Amount::Change(growth))]),
            FLAT.with([
                ("level", Amount::Bytes(judged.trend.level)),
                ("length", Amount::Seconds(length)),
                ("rate", Amount::ByteRate((&judged.trend).into())),
            ]),
        ],
        runner_up: Class::None,
        rate: None,
        growth: late.max(0.0),
    })
}
