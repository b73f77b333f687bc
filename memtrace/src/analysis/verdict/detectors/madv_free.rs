//! Memory that was freed lazily: it counts until the kernel reclaims it.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::{Class, Grade},
        evidence::{Amount, Statement},
        finding::Finding,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::{Part, grade_of},
        thresholds::OF_RESIDUAL,
    },
};

pub(super) const CLASS: Description = Description {
    name: "madv-free",
    meaning: "lazily freed memory: the kernel reclaims it under memory pressure",
    mistaken_for: Some(Class::Retention),
    next: &[Advice::LazilyFreed, Advice::FreeAtOnce],
    ..DESCRIPTION
};

static GROWS: Statement = Statement {
    name: "lazily_freed_grows",
    sentence: "freed lazily (LazyFree) {part}",
};

static STATE: Statement = Statement {
    name: "lazily_freed",
    sentence: "{lazy} of {anonymous} of anonymous memory is lazily freed (LazyFree)",
};

pub(super) const UNEXPLAINED: Rule<OfProcess> = Rule {
    class: Class::MadvFree,
    evidence: "at least half of it is lazily freed (LazyFree)",
    find: OfProcess::Unexplained(|growing| {
        let lazy = growing.of_anonymous(Figure::LazyFree);
        (lazy >= OF_RESIDUAL * growing.residual).then(|| {
            let evidence = GROWS.with([("part", growing.amount(lazy))]);
            Part {
                grade: grade_of(lazy / growing.growth),
                ..growing.part(Class::MadvFree, lazy.min(growing.residual), evidence)
            }
        })
    }),
};

pub(super) const HELD: Rule<OfProcess> = Rule {
    class: Class::MadvFree,
    evidence: "half of the anonymous memory is lazily freed",
    find: OfProcess::State(|judging| {
        let anonymous = judging.anonymous()?;
        let lazy = judging.at_end(Figure::LazyFree);
        (lazy >= OF_RESIDUAL * anonymous).then(|| Finding {
            class: Class::MadvFree,
            grade: Grade::C,
            evidence: vec![STATE.with([
                ("lazy", Amount::Bytes(lazy)),
                ("anonymous", Amount::Bytes(anonymous)),
            ])],
            runner_up: Some(Class::Retention),
            rate: None,
        })
    }),
};
