//! The evidence does not carry a verdict.

use crate::{
    analysis::{
        series::DeviceSeries,
        statistics::{MIN_POINTS, Trend},
        verdict::{
            class::{Class, Grade},
            detectors::cache,
            evidence::{Amount, Evidence, Statement, grown},
            finding::Finding,
            rule::{DESCRIPTION, Description, OF_SITES, OfProcess, OfSite, Rule},
            shape::Shape,
            subjects::{Growing, LIVE, OnDevice, SiteFinding},
            thresholds::{LOST, REPORTED},
        },
    },
    frames::mappings::Use,
};

pub(super) const CLASS: Description = Description {
    name: "undetermined",
    meaning: "the recording does not show what kind of growth this is",
    mistaken_for: Some(Class::Leak),
    longer: true,
    on_screen: 2,
    ..DESCRIPTION
};

static TOO_FEW: Statement = Statement {
    name: "too_few_intervals",
    sentence: "intervals of this process: {found}, at least {least} needed after its start",
};

static TOO_SHORT: Statement = Statement {
    name: "too_short",
    sentence: "{found} of this process were recorded, at least {least} needed",
};

static RECORDS_LOST: Statement = Statement {
    name: "records_lost",
    sentence: "{share:.1} of the records were lost: no total is reliable",
};

static NO_PART: Statement = Statement {
    name: "no_part",
    sentence: "no single kind of memory accounts for {least} of the growth: live {live}, unexplained {rest}",
};

static TOO_SLOW: Statement = Statement {
    name: "too_slow",
    sentence: "grows by {rate}, {daily} a day: too slow to tell the kind in {length:.0}",
};

static UNEXPLAINED_REST: Statement = Statement {
    name: "unexplained",
    sentence: "live allocations do not explain {rest}: first touch of memory obtained earlier, or memory that memtrace cannot see; live memory {live}",
};

static UNSEEN_HEAP: Statement = Statement {
    name: "unseen_heap",
    sentence: "live allocations do not explain {rest}: probably the heap of {runtime}, in memory that it obtained earlier; live memory {live}",
};

static UNBLAMED: Statement = Statement {
    name: "device_sites_unblamed",
    sentence: "its sites grow by {seen} from {from:.0} on, but only {leaking} of that at sites that pass the leak tests",
};

static IN_ALL: Statement = Statement {
    name: "device_total_grows",
    sentence: "{device}: process total by NVML {growth} in {length}, {rate}",
};

static NOT_ASKED_FOR: Statement = Statement {
    name: "device_not_asked_for",
    sentence: "its recorded allocations do not grow: the rest is the context, modules, libraries that allocate in other ways, first touch of managed memory, or the driver's pool",
};

pub(super) const SHORT: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "too few intervals",
    find: OfProcess::Unreliable(|figures| {
        let found = figures.too_few?;
        let evidence = TOO_FEW
            .with([("found", Amount::Count(found as f64))])
            .against([("least", Amount::Count(MIN_POINTS as f64))]);
        Some(finding(vec![evidence]))
    }),
};

pub(super) const TOO_SOON: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "less than 10 s of the process, unless `--interval` was given",
    find: OfProcess::Unreliable(|figures| {
        let (found, least) = figures.too_short?;
        let evidence = TOO_SHORT
            .with([("found", Amount::Seconds(found))])
            .against([("least", Amount::Seconds(least))]);
        Some(finding(vec![evidence]))
    }),
};

pub(super) const LOSSES: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "more than 1 % of the records lost",
    find: OfProcess::Unreliable(|figures| {
        (figures.lost > LOST).then(|| {
            let evidence = RECORDS_LOST
                .with([("share", Amount::Share(figures.lost))])
                .against([("most", Amount::Share(LOST))]);
            finding(vec![evidence])
        })
    }),
};

pub(super) const DEVICE: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "live memory there rises but may level off; or its sites account for 60 % of the growth or more, and those that pass the leak tests for less than 30 %",
    find: OfProcess::Device(|on: &OnDevice| {
        let unblamed = on.is_unblamed();
        let is_doubtful = matches!(on.outstanding.shape(), Shape::Stepped | Shape::Between);
        if !unblamed && (!is_doubtful || on.leaks().is_some()) {
            return None;
        }
        let context = on.context;
        let from = context.series.times.get(context.window.from);
        let more = unblamed.then(|| {
            UNBLAMED.with([
                ("seen", Amount::Bytes(on.seen)),
                ("from", Amount::Seconds(from.copied().unwrap_or(0.0))),
                ("leaking", Amount::Bytes(on.leaking)),
            ])
        });
        Some(on.finding(Class::Undetermined, Grade::D, None, more))
    }),
};

pub(super) const DEVICE_IN_ALL: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "neither rises, but the process total by NVML rises steadily, without recorded allocations (context, modules, libraries)",
    find: OfProcess::Device(not_asked_for),
};

fn not_asked_for(on: &OnDevice) -> Option<Finding> {
    // Requests on an unknown device may belong to this one.
    let flat = |other: &DeviceSeries| {
        let judged = on.judged(&other.held);
        judged.is_some_and(|judged| judged.shape() == Shape::Flat)
    };
    let devices = &on.context.series.devices;
    let mut unknown = devices.iter().filter(|other| other.index.is_none());
    if on.shapes() != (Shape::Flat, Shape::Flat) || !unknown.all(flat) {
        return None;
    }
    let total = on.judged(on.device.total.as_deref()?)?;
    let [growth, length, rate] = grown(&total.trend);
    (total.shape() == Shape::Steady).then(|| Finding {
        class: Class::Undetermined,
        grade: Grade::D,
        evidence: vec![
            IN_ALL.with([on.name(), growth, length, rate]),
            NOT_ASKED_FOR.with([]),
        ],
        runner_up: Some(Class::GpuLeak),
        rate: Some(total.trend.slope),
    })
}

pub(super) const SITES: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: OF_SITES,
    find: OfProcess::Sites,
};

pub(super) const SPREAD: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "live memory where no single site grows enough, and all of them together have no clear shape",
    find: OfProcess::Spread(&[Shape::Stepped, Shape::Between, Shape::Flat], Grade::D),
};

pub(super) const UNEXPLAINED: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "none of these: first touch of memory obtained earlier, or memory that memtrace cannot see",
    find: OfProcess::Unexplained(|growing| {
        let (rest, live) = (growing.amount(growing.residual), growing.live_rate());
        let evidence = match growing.context.series.executable.runtime {
            Some(runtime) => {
                let runtime = Amount::Word(runtime.name);
                UNSEEN_HEAP.with([("rest", rest), ("runtime", runtime), ("live", live)])
            }
            None => UNEXPLAINED_REST.with([("rest", rest), ("live", live)]),
        };
        Some(growing.rest(Class::Undetermined, Grade::D, evidence))
    }),
};

pub(super) const REPLACED: Rule<OfSite> = Rule {
    class: Class::Undetermined,
    evidence: "the other sites of its layer (for device memory: on that device) shrink by at least half as much; or, in an attached process, older memory does, and blocks from before the recording were freed, at least half as many. Not so if memory rises steadily, and a container without a limit certainly keeps the blocks and gets elements at least half as fast",
    find: OfSite::Growing(|grown| {
        grown.replaced.map(|evidence| SiteFinding {
            evidence: vec![LIVE.of(&grown.judged.trend), evidence.clone()],
            rate: None,
            ..SiteFinding::of(grown.judged)
        })
    }),
};

static OF_RUNTIME: Statement = Statement {
    name: "of_runtime",
    sentence: "the code of {runtime} itself requested it, and its collector decides when to free it",
};

pub(super) const RUNTIME: Rule<OfSite> = Rule {
    class: Class::Undetermined,
    evidence: "the code of a runtime requested it, and the collector of that runtime may wait long: V8, Java, .NET, PyPy (`memtrace/src/frames/runtime_heaps.rs`); but not for stacks of threads, nor for native code of the program's own, if nothing points to the blocks",
    find: OfSite::Growing(|grown| {
        let runtime = grown.site.code.runtime.filter(|of| of.is_lazy)?;
        let is_stack = grown.site.mapping == Some(Use::Stack);
        if is_stack || grown.context.is_lost_by_program(&grown.site.key) {
            return None;
        }
        Some(SiteFinding {
            evidence: vec![OF_RUNTIME.with([("runtime", Amount::Word(runtime.name))])],
            ..SiteFinding::of(grown.judged)
        })
    }),
};

pub(super) const FILLS: Rule<OfSite> = Rule {
    class: Class::Undetermined,
    evidence: "its stack is that of a library cache with a limit, but it keeps growing like a leak: the cache is not full, or the blocks are kept elsewhere",
    find: OfSite::Growing(|grown| cache::known(grown).filter(|_| grown.leaks().is_some())),
};

pub(super) const SITE: Rule<OfSite> = Rule {
    class: Class::Undetermined,
    evidence: "grows in any other way",
    find: OfSite::Growing(|grown| Some(SiteFinding::of(grown.judged))),
};

pub(super) const SLOW: Rule<OfProcess> = Rule {
    class: Class::Undetermined,
    evidence: "it grows steadily, by less than 2 % of its level",
    find: OfProcess::Flat(|judging| {
        const DAY: f64 = 24.0 * 3600.0;
        let trend = &judging.judged.trend;
        let evidence = TOO_SLOW.with([
            ("rate", Amount::BytesPerSecond(trend.slope)),
            ("daily", Amount::Bytes(trend.slope * DAY)),
            ("length", Amount::Seconds(trend.to - trend.from)),
        ]);
        let slow = judging.judged.is_slow();
        slow.then(|| growing(vec![evidence], trend))
    }),
};

/// Evidence that no part of a process's growth is large enough.
pub(in super::super) fn no_part(growing: &Growing) -> Evidence {
    NO_PART
        .with([
            ("live", growing.amount(growing.live)),
            ("rest", growing.amount(growing.residual)),
        ])
        .against([("least", Amount::Share(REPORTED))])
}

/// A process with this growth.
pub(in super::super) fn growing(evidence: Vec<Evidence>, trend: &Trend) -> Finding {
    Finding {
        rate: Some(trend.slope),
        runner_up: CLASS.mistaken_for,
        ..finding(evidence)
    }
}

pub(in super::super) fn finding(evidence: Vec<Evidence>) -> Finding {
    Finding {
        class: Class::Undetermined,
        grade: Grade::D,
        evidence,
        runner_up: None,
        rate: None,
    }
}
