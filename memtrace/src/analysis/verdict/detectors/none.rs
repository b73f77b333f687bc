//! No material growth.

use crate::analysis::{
    series::Figure,
    verdict::{
        class::{Class, Grade},
        context::Context,
        evidence::{Amount, Statement},
        finding::Finding,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::Judging,
        thresholds::PROCESS_FLOOR,
    },
};

pub(super) const CLASS: Description = Description {
    name: "none",
    meaning: "no growth that matters",
    ..DESCRIPTION
};

static FLAT: Statement = Statement {
    name: "no_growth",
    sentence: "no material growth in {length}: {rate} at a level of {level}",
};

static VISIBLE: Statement = Statement {
    name: "detectable",
    sentence: "growth of {rate} would have been detected",
};

/// Name of the evidence that shared memory of the machine grows.
pub(crate) const SHARED_MEANWHILE: &str = "shared_meanwhile";

static SHARED: Statement = Statement {
    name: SHARED_MEANWHILE,
    sentence: "shared memory of the machine {growth} in {length}, by this process or another: `ls -lt /dev/shm` shows the newest files",
};

/// Name of the evidence that memory rose, though too little or too unevenly to be called growth.
pub(crate) const UNEVEN_RISE: &str = "rises_unevenly";

static UNEVEN: Statement = Statement {
    name: UNEVEN_RISE,
    sentence: "resident memory {growth} in {length:.0}, {rate}, too little or too unevenly to tell whether it goes on: record longer",
};

/// Name of the evidence that tracing slows the program down.
pub(crate) const SLOWED_DOWN: &str = "slowed_down";

static SLOWED: Statement = Statement {
    name: SLOWED_DOWN,
    sentence: "it allocated {allocations} times a second, and tracing may have slowed it down: untraced, it may do more, and leak as much more",
};

/// Allocations per second from which tracing takes a tenth of the time or more: at least 2 µs for each, with its release.
const BUSY: f64 = 50_000.0;

static PASSES: Statement = Statement {
    name: "comes_and_goes",
    sentence: "{ended} processes like it ended and others took their place: what it holds goes with it",
};

static MEANWHILE: Statement = Statement {
    name: "grows_meanwhile",
    sentence: "resident and swapped memory {growth} in {length}, {rate}",
};

pub(super) const PASSING: Rule<OfProcess> = Rule {
    class: Class::None,
    evidence: "as many processes like it ended in order and were replaced as run at once, it has not lived longer than they did, none of its sites leaks with grade B, no container certainly keeps more and more objects, and it has no more shared memory",
    find: OfProcess::Passing(passing),
};

fn passing(judging: &Judging) -> Option<Finding> {
    let ended = judging.context.series.kin.replaced?;
    let Context { series, window, .. } = judging.context;
    let mut sites = judging.sites.iter().map(|of| &of.verdict);
    let leaks = sites.any(|of| of.grade == Grade::B && of.class.is_leak());
    let shared = series.figure(Figure::Shmem);
    let is_shared = shared.is_some_and(|shared| window.change(shared) >= PROCESS_FLOOR);
    if leaks || is_shared || judging.context.kept_objects().is_some() {
        return None;
    }
    let trend = &judging.judged.trend;
    Some(Finding {
        class: Class::None,
        grade: Grade::C,
        evidence: vec![
            PASSES.with([("ended", Amount::Count(ended as f64))]),
            MEANWHILE.of(trend),
        ],
        runner_up: None,
        rate: Some(trend.slope),
    })
}

pub(super) const OTHERWISE: Rule<OfProcess> = Rule {
    class: Class::None,
    evidence: "with the growth per second that would have been detected; the growth if it was 256 KiB or more and its interval is above 0; allocations per second, if 50,000 or more; and the machine's shared memory if that rises steadily by 4 MiB or more",
    find: OfProcess::Otherwise(finding),
};

pub(in super::super) fn finding(judging: &Judging) -> Finding {
    let trend = &judging.judged.trend;
    let shared = judging.shared_rise().map(|of| {
        let (growth, seconds) = of.trend.measured();
        SHARED.with([
            ("growth", Amount::Change(growth)),
            ("length", Amount::Seconds(seconds)),
        ])
    });
    let is_uneven = trend.interval.0 > 0.0 && trend.growth() >= PROCESS_FLOOR;
    let uneven = is_uneven.then(|| UNEVEN.of(trend));
    let Context { series, window, .. } = judging.context;
    let allocations = window.rate(&series.allocations, &series.times);
    let is_slowed = allocations >= BUSY;
    let slowed = || SLOWED.with([("allocations", Amount::Count(allocations))]);
    Finding {
        class: Class::None,
        grade: if is_uneven || is_slowed {
            Grade::C
        } else {
            Grade::B
        },
        evidence: [
            FLAT.with([
                ("length", Amount::Seconds(trend.to - trend.from)),
                ("rate", Amount::ByteRate(trend.into())),
                ("level", Amount::Bytes(trend.level)),
            ]),
            VISIBLE.with([("rate", Amount::BytesPerSecond(judging.judged.detectable()))]),
        ]
        .into_iter()
        .chain(uneven)
        .chain(is_slowed.then(slowed))
        .chain(shared)
        .collect(),
        runner_up: None,
        rate: Some(trend.slope),
    }
}
