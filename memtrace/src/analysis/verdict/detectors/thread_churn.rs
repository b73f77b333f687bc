//! Threads made and ended again and again.

use crate::analysis::{
    series::Figure,
    verdict::{
        Class, Grade,
        evidence::{Amount, Statement},
        process::{COUNT_FLOOR, counted},
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        shape::Judged,
    },
};

pub(super) const CLASS: Description = Description {
    name: "thread-churn",
    meaning: "threads that are made and ended again and again",
    next: &[
        "a server with a thread for each request does this: a pool of threads spares their stacks",
        "with OpenMP or MKL: make OMP_NUM_THREADS and MKL_NUM_THREADS equal, which keeps one pool",
    ],
    ..DESCRIPTION
};

static UNEXPLAINED_BY: Statement = Statement {
    name: "threads_made",
    sentence: "{made} threads made, while nothing outstanding explains {rest}",
};

static RISES: Statement = Statement {
    name: "threads_made_rise",
    sentence: "threads made: {growth} in {length}, {rate}",
};

static NOT_RESIDENT: Statement = Statement {
    name: "not_resident_by_threads",
    sentence: "resident memory does not grow by them",
};

pub(super) const UNEXPLAINED: Rule<OfProcess> = Rule {
    class: Class::ThreadChurn,
    evidence: "the number of threads made rises",
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
    evidence: "threads made, where recorded",
    find: OfProcess::Flat(|judging| {
        let judged = judging.rising(Figure::ThreadsCreated)?;
        let mut found = counted(Class::ThreadChurn, &RISES, &judged);
        found.grade = Grade::C;
        found.evidence.push(NOT_RESIDENT.with([]));
        Some(found)
    }),
};
