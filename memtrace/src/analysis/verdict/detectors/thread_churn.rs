//! Threads made and ended again and again.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::{Class, Grade},
        evidence::{Amount, Statement},
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        shape::Judged,
        subjects::{COUNT_FLOOR, counted},
    },
};

pub(super) const CLASS: Description = Description {
    name: "thread-churn",
    meaning: "threads are created and destroyed again and again",
    next: &[Advice::UseThreadPool, Advice::KeepOneThreadPool],
    ..DESCRIPTION
};

static UNEXPLAINED_BY: Statement = Statement {
    name: "threads_made",
    sentence: "{made} threads created, while live allocations do not explain {rest}",
};

static RISES: Statement = Statement {
    name: "threads_made_rise",
    sentence: "threads created: {growth} in {length}, {rate}",
};

static NOT_RESIDENT: Statement = Statement {
    name: "not_resident_by_threads",
    sentence: "resident memory does not grow with them",
};

pub(super) const UNEXPLAINED: Rule<OfProcess> = Rule {
    class: Class::ThreadChurn,
    evidence: "the number of threads created rises",
    find: OfProcess::Unexplained(|growing| {
        let series = growing.context.series;
        let window = growing.context.window;
        let made = series.figure(Figure::ThreadsCreated)?;
        let judged = Judged::of(&series.times, made, window.from, COUNT_FLOOR).ok()?;
        judged.is_material().then(|| {
            let evidence = UNEXPLAINED_BY.with([
                ("made", Amount::Count(window.change(made))),
                ("rest", growing.amount(growing.residual)),
            ]);
            growing.rest(Class::ThreadChurn, Grade::C, evidence)
        })
    }),
};

pub(super) const COUNT: Rule<OfProcess> = Rule {
    class: Class::ThreadChurn,
    evidence: "threads created, if recorded",
    find: OfProcess::Flat(|judging| {
        let judged = judging.rising(Figure::ThreadsCreated)?;
        let mut found = counted(Class::ThreadChurn, &RISES, &judged);
        found.grade = Grade::C;
        found.evidence.push(NOT_RESIDENT.with([]));
        Some(found)
    }),
};
