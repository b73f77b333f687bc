//! Memory that was freed and that the allocator keeps.

use crate::{
    analysis::verdict::{
        class::{Class, Grade},
        evidence::{Amount, Statement},
        finding::Finding,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::{Judging, grade_of},
        thresholds::{OF_RESIDUAL, STATE_FLOOR},
    },
    frames::mappings::Use,
};

pub(super) const CLASS: Description = Description {
    name: "retention",
    meaning: "freed memory that the allocator has not given back",
    allocator: true,
    ..DESCRIPTION
};

/// The last part of a recording, in which a state must hold all the time.
const LATELY: f64 = 0.25;

static KEPT: Statement = Statement {
    name: "kept_by_allocator",
    sentence: "the allocator keeps up to {part} of freed memory; live memory {live}",
};

static FELL: Statement = Statement {
    name: "live_fell",
    sentence: "live memory fell from {peak} to {now}",
};

static STAYS: Statement = Statement {
    name: "resident_stays",
    sentence: "resident anonymous memory stays at {anonymous}: {kept} of it ({share}) was freed",
};

pub(super) const UNEXPLAINED: Rule<OfProcess> = Rule {
    class: Class::Retention,
    evidence: "the allocator has mapped at least half of it beyond its live blocks; only the runner-up if a leak explains 30 %, because holes between leaking blocks are not retention",
    find: OfProcess::Unexplained(|growing| {
        let retained = growing.retained();
        (retained >= OF_RESIDUAL * growing.residual).then(|| {
            let evidence = KEPT.with([
                ("part", growing.amount(retained)),
                ("live", growing.live_rate()),
            ]);
            let grade = grade_of(retained / growing.growth);
            growing.rest(Class::Retention, grade, evidence)
        })
    }),
};

pub(super) const HELD: Rule<OfProcess> = Rule {
    class: Class::Retention,
    evidence: "live memory fell by half and resident memory stayed, throughout the last quarter; what was resident before the recording does not count",
    find: OfProcess::State(held),
};

fn held(judging: &Judging) -> Option<Finding> {
    let anonymous = judging.anonymous()?;
    let series = judging.context.series;
    let live = series.live();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let lately = (live.len() as f64 * (1.0 - LATELY)) as usize;
    // Ignore memory that a fluctuating load has freed for the moment.
    let (peak, now) = (largest(&live), largest(&live[lately.min(live.len())..]));
    // What was there before the recording is not known to be free.
    let blocks = series.beyond_blocks()?;
    let older = (blocks.first()? - series.python.first()?).max(0.0);
    let mapped = series.mapped(Use::Program);
    let kept = anonymous - now - mapped.last().copied().unwrap_or(0.0) - older;
    let freed = peak - now;
    let is_kept =
        freed >= STATE_FLOOR && freed >= OF_RESIDUAL * peak && kept >= OF_RESIDUAL * anonymous;
    is_kept.then(|| Finding {
        class: Class::Retention,
        grade: Grade::C,
        evidence: vec![
            FELL.with([("peak", Amount::Bytes(peak)), ("now", Amount::Bytes(now))]),
            STAYS.with([
                ("anonymous", Amount::Bytes(anonymous)),
                ("kept", Amount::Bytes(kept)),
                ("share", Amount::Share(kept / anonymous)),
            ]),
        ],
        runner_up: Some(Class::None),
        rate: None,
    })
}
