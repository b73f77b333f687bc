//! Allocations of device memory that failed for good, and the memory held on the device then: an
//! event, which needs no statistics.

use super::{
    detectors::{
        gpu_out_of_memory::{ASKED, CAPACITY, HELD, HOLDER, KNOWN, LARGEST, REPEATED},
        rules,
    },
    diagnosis::{Scope, Verdict},
    evidence::{Amount, Evidence},
    rule::OfProcess,
    subjects::{Found, OutOfMemory},
};
use crate::{
    analysis::{
        failures,
        series::{Place, ProcessSeries, place},
    },
    event::{Layer, OUT_OF_MEMORY, StackId},
    frames::{Frame, caching, names, own_line, symbol},
    ledger::FailureKey,
    recording::{Fact, Overview, Stacks},
};

/// Most lines that are named as holders.
const HOLDERS: usize = 3;

/// A verdict for each place and device at which a process ran out of device memory.
pub(super) fn judge(
    overview: &Overview,
    courses: &[ProcessSeries],
    facts: &[Fact],
) -> Vec<Verdict> {
    let parts = failures::parts(&overview.failures, &overview.stacks);
    let failed = overview.failures.iter().zip(parts);
    let met = failed.filter(|(failure, part)| {
        part.is_none() && failure.key.error == OUT_OF_MEMORY && failure.key.layer != Layer::Pinned
    });
    let verdicts = met.filter_map(|(failed, _)| {
        let key = &failed.key;
        let row = overview
            .processes
            .iter()
            .find(|row| row.id == key.process)?;
        let course = courses.iter().find(|course| course.row.id == row.id);
        let started = overview.meta.started_ns;
        let seconds = failed.failure.last_ns.saturating_sub(started) as f64 / 1e9;
        let total = course.and_then(|course| total(course, key, seconds));
        let about = OutOfMemory::new(key, &failed.failure, facts, total);
        let about = OutOfMemory {
            evidence: evidence(&about, course, seconds, &overview.stacks),
            ..about
        };
        let Found { finding, next } = rules().find_map(|rule| match rule.find {
            OfProcess::Failed(find) => find(&about),
            _ => None,
        })?;
        Some(Verdict {
            process: row.id,
            tgid: row.tgid,
            scope: Scope::Process,
            class: finding.class,
            grade: finding.grade,
            evidence: finding.evidence,
            runner_up: finding.runner_up,
            next,
            rate: finding.rate,
            blocks: None,
            caller: None,
            keeper: None,
            absent: None,
            runtime: None,
        })
    });
    verdicts.collect()
}

/// The requester, the memory held, and the lines that hold most of it.
fn evidence(
    about: &OutOfMemory,
    course: Option<&ProcessSeries>,
    seconds: f64,
    stacks: &Stacks,
) -> Vec<Evidence> {
    let line = |stack: StackId| Amount::Text(line(stack, stacks));
    let bytes = |bytes: u64| Amount::Bytes(bytes as f64);
    let mut evidence = vec![ASKED.with([
        ("line", line(about.key.stack)),
        ("device", Amount::Device(about.key.device)),
        ("requested", bytes(about.failure.size)),
        ("time", Amount::Seconds(seconds)),
    ])];
    match about
        .cache()
        .and_then(|cache| Some((cache, cache.reserved?)))
    {
        Some((cache, reserved)) => {
            evidence.push(HELD.with([
                ("cache", Amount::Word(about.allocator.name)),
                ("reserved", bytes(reserved)),
                ("allocated", bytes(cache.allocated)),
                ("unused", bytes(reserved.saturating_sub(cache.allocated))),
            ]));
            let largest = cache.largest_free.map(bytes);
            evidence.extend(largest.map(|largest| LARGEST.with([("largest", largest)])));
        }
        None => evidence.push(KNOWN.with([("known", bytes(about.failure.held.known()))])),
    }
    if about.failure.count > 1 {
        let count = Amount::Count(about.failure.count as f64);
        evidence.push(REPEATED.with([("count", count)]));
    }
    let capacity = about.capacity.map(Amount::Bytes);
    evidence.extend(capacity.map(|capacity| CAPACITY.with([("capacity", capacity)])));
    let holders = course.map_or_else(Vec::new, |course| holders(about, course, seconds, stacks));
    evidence.extend(holders.into_iter().map(|(line, bytes, blocks)| {
        HOLDER.with([
            ("line", Amount::Text(line)),
            ("bytes", Amount::Bytes(bytes)),
            ("blocks", Amount::Count(blocks)),
        ])
    }));
    evidence
}

/// The process total on the device shortly before, bytes.
fn total(course: &ProcessSeries, key: &FailureKey, seconds: f64) -> Option<f64> {
    let mut devices = course.devices.iter();
    let device = devices.find(|device| device.index == key.device)?;
    let total = device.total.as_ref()?;
    total.get(before(course, seconds)).copied()
}

/// The last point before a time.
fn before(course: &ProcessSeries, seconds: f64) -> usize {
    let after = course.times.partition_point(|time| *time <= seconds);
    after.saturating_sub(1)
}

/// The lines with most memory of the device shortly before, with bytes and blocks.
fn holders(
    about: &OutOfMemory,
    course: &ProcessSeries,
    seconds: f64,
    stacks: &Stacks,
) -> Vec<(String, f64, f64)> {
    let before = before(course, seconds);
    let mut lines: Vec<(String, f64, f64)> = Vec::new();
    for site in &course.sites {
        if place(&site.key) != Place::Device(about.key.device) {
            continue;
        }
        let at = |values: &[f64]| values.get(before).copied().unwrap_or(0.0);
        let (bytes, blocks) = (at(&site.live_bytes), at(&site.live_count));
        let line = line(site.key.stack, stacks);
        match lines.iter_mut().find(|(known, ..)| *known == line) {
            Some(known) => {
                known.1 += bytes;
                known.2 += blocks;
            }
            None => lines.push((line, bytes, blocks)),
        }
    }
    lines.retain(|(_, bytes, _)| *bytes > 0.0);
    lines.sort_by(|a, b| b.1.total_cmp(&a.1));
    lines.truncate(HOLDERS);
    lines
}

/// The line of a stack that its programmer knows, in words.
fn line(stack: StackId, stacks: &Stacks) -> String {
    let of_cache = |frame: &&Frame| {
        let file = frame.module_name();
        file.and_then(caching::layer_of_caller).is_some()
    };
    let frames = stacks.get(stack).of_caller().skip_while(of_cache);
    let frames: Vec<&Frame> = frames.collect();
    let Some(frame) = own_line(&frames) else {
        return "code without a stack".into();
    };
    let name = match &frame.function {
        Some(function) if !frame.is_python() => symbol::plain(function),
        _ => names::name(frame),
    };
    match names::source_line(frame) {
        Some(source) => {
            // For the first screen, which has no room for the whole path.
            let folder = source.rmatch_indices('/').nth(1);
            let from = folder.map_or(0, |(at, _)| at + 1);
            format!("{name} ({})", source.get(from..).unwrap_or(&source))
        }
        None => name,
    }
}
