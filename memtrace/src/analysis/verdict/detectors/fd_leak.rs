//! Descriptors that are opened and not closed.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::Class,
        evidence::Statement,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::counted,
    },
};

pub(super) const CLASS: Description = Description {
    name: "fd-leak",
    meaning: "file descriptors are opened and never closed",
    next: &[Advice::ListDescriptors],
    ..DESCRIPTION
};

static RISES: Statement = Statement {
    name: "descriptors_rise",
    sentence: "open descriptors: {growth} in {length}, {rate}",
};

pub(super) const COUNT: Rule<OfProcess> = Rule {
    class: Class::FdLeak,
    evidence: "descriptors",
    find: OfProcess::Flat(|judging| {
        let judged = judging.rising(Figure::Descriptors)?;
        Some(counted(Class::FdLeak, &RISES, &judged))
    }),
};
