//! Threads made and ended again and again.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::{Class, Grade},
        evidence::Statement,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::{COUNT_FLOOR, counted},
    },
};

pub(super) const CLASS: Description = Description {
    name: "thread-churn",
    meaning: "threads are created and destroyed again and again",
    next: &[Advice::UseThreadPool, Advice::KeepOneThreadPool],
    ..DESCRIPTION
};

static RISES: Statement = Statement {
    name: "threads_made_rise",
    sentence: "threads created: {growth} in {length}, {rate}",
};

static NOT_RESIDENT: Statement = Statement {
    name: "not_resident_by_threads",
    sentence: "resident memory does not grow with them",
};

pub(super) const COUNT: Rule<OfProcess> = Rule {
    class: Class::ThreadChurn,
    evidence: "threads created, if recorded",
    find: OfProcess::Flat(|judging| {
        let judged = judging.rising(Figure::ThreadsCreated, COUNT_FLOOR)?;
        let mut found = counted(Class::ThreadChurn, &RISES, &judged);
        found.grade = Grade::C;
        found.evidence.push(NOT_RESIDENT.with([]));
        Some(found)
    }),
};
