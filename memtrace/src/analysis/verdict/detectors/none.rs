//! No material growth.

use crate::analysis::verdict::{
    class::{Class, Grade},
    evidence::{Amount, Statement},
    finding::Finding,
    rule::{DESCRIPTION, Description, OfProcess, Rule},
    subjects::Judging,
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

pub(super) const OTHERWISE: Rule<OfProcess> = Rule {
    class: Class::None,
    evidence: "with the growth per second that would have been detected",
    find: OfProcess::Otherwise(finding),
};

pub(in super::super) fn finding(judging: &Judging) -> Finding {
    let trend = &judging.judged.trend;
    Finding {
        class: Class::None,
        grade: Grade::B,
        evidence: vec![
            FLAT.with([
                ("length", Amount::Seconds(trend.to - trend.from)),
                ("rate", Amount::ByteRate(trend.into())),
                ("level", Amount::Bytes(trend.level)),
            ]),
            VISIBLE.with([("rate", Amount::BytesPerSecond(judging.judged.detectable()))]),
        ],
        runner_up: None,
        rate: Some(trend.slope),
    }
}
