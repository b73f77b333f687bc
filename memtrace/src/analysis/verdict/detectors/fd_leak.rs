//! Descriptors that are opened and not closed.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::Class,
        evidence::{Amount, Statement},
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::{COUNT_FLOOR, counted},
    },
};

pub(super) const CLASS: Description = Description {
    name: "fd-leak",
    meaning: "file descriptors are opened and never closed",
    next: &[Advice::ListDescriptors],
    on_screen: 2,
    ..DESCRIPTION
};

static RISES: Statement = Statement {
    name: "descriptors_rise",
    sentence: "open descriptors: {growth} in {length}, {rate}",
};

static MOST: Statement = Statement {
    name: "descriptors_are",
    sentence: "at the end most of them were {most}",
};

pub(super) const COUNT: Rule<OfProcess> = Rule {
    class: Class::FdLeak,
    evidence: "descriptors (also if it grows)",
    find: OfProcess::Beside(|judging| {
        let judged = judging.rising(Figure::Descriptors, COUNT_FLOOR)?;
        let mut found = counted(Class::FdLeak, &RISES, &judged);
        let most = judging.context.series.descriptors.clone();
        let most = most.map(|most| MOST.with([("most", Amount::Text(most))]));
        found.evidence.extend(most);
        Some(found)
    }),
};
