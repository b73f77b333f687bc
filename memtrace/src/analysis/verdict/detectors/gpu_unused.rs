//! Device memory that an allocator keeps unused: a state, not an alarm.

use crate::analysis::verdict::{
    class::{Class, Grade},
    evidence::{Amount, Statement},
    finding::Finding,
    rule::{DESCRIPTION, Description, OfProcess, Rule},
    subjects::OnDevice,
    thresholds::OF_RESIDUAL,
};

pub(super) const CLASS: Description = Description {
    name: "gpu-unused",
    meaning: "GPU memory that is cached for reuse and currently unused (not a leak)",
    unused: true,
    on_screen: 1,
    ..DESCRIPTION
};

/// The last part of a recording, throughout which the state must hold.
const LATELY: f64 = 0.25;

/// Least memory to report, bytes.
const FLOOR: f64 = 64.0 * 1024.0 * 1024.0;

static UNUSED: Statement = Statement {
    name: "device_unused",
    sentence: "{cache} keeps {held} on {device}; {now} is in use now, {peak} was before",
};

pub(super) const DEVICE: Rule<OfProcess> = Rule {
    class: Class::GpuUnused,
    evidence: "neither rises; memory in use fell by half, and the caching allocator kept the rest throughout the last quarter (64 MiB or more)",
    find: OfProcess::Device(unused),
};

fn unused(on: &OnDevice) -> Option<Finding> {
    let (outstanding, held) = (&on.device.outstanding, &on.device.held);
    let lately = (outstanding.len() as f64 * (1.0 - LATELY)) as usize;
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let now = largest(outstanding.get(lately..)?);
    // If the program still allocates, the peak between two points is unknown.
    let idle = on.allocated_since(lately) == 0.0;
    // A model may come and go within an interval; the allocator still reports the peak.
    let caches = on.device.totals.iter().filter_map(|totals| totals.cache);
    let reported = caches.map(|cache| cache.peak_allocated).max()? as f64;
    let peak = largest(outstanding).max(if idle { reported } else { 0.0 });
    let stays = held.get(lately..)?.iter().copied().reduce(f64::min)?;
    let fell = peak > 0.0 && peak - now >= OF_RESIDUAL * peak;
    let cache = on.context.series.caching_allocator();
    (fell && stays - now >= FLOOR.max(OF_RESIDUAL * stays)).then(|| Finding {
        class: Class::GpuUnused,
        grade: if idle { Grade::B } else { Grade::C },
        evidence: vec![UNUSED.with([
            ("cache", Amount::Word(cache.name)),
            ("held", Amount::Bytes(stays)),
            on.name(),
            ("now", Amount::Bytes(now)),
            ("peak", Amount::Bytes(peak)),
        ])],
        runner_up: None,
        rate: None,
    })
}
