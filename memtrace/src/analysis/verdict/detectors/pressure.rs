//! Others use up the machine's memory.

use crate::analysis::{
    verdict::{
        advice::Advice,
        class::{Class, Grade},
        evidence::{Amount, Statement},
        finding::Finding,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::{Judging, NOT_ITS_OWN},
    },
    window::Window,
};

pub(super) const CLASS: Description = Description {
    name: "pressure",
    meaning: "other processes are using up the machine's memory",
    next: &[Advice::FindOthers],
    of_machine: true,
    ..DESCRIPTION
};

/// Share of the time in which some task waits for memory, from which on that is the trouble.
const STALLED: f64 = 0.1;

static WAITED: Statement = Statement {
    name: "tasks_waited",
    sentence: "tasks waited for memory for {share} of the time",
};

static SWAPPED: Statement = Statement {
    name: "swapped_out",
    sentence: "{swapped} were swapped out",
};

pub(super) const MACHINE: Rule<OfProcess> = Rule {
    class: Class::Pressure,
    evidence: "tasks wait for memory 10 % of the time while pages are swapped out",
    find: OfProcess::Flat(waits),
};

fn waits(judging: &Judging) -> Option<Finding> {
    let machine = judging.machine;
    let whole = Window {
        from: 0,
        to: machine.times.len(),
    };
    let stalled = whole.rate(&machine.stalled, &machine.times);
    let swapped = whole.change(&machine.swapped_out);
    (stalled >= STALLED && swapped > 0.0).then(|| Finding {
        class: Class::Pressure,
        grade: Grade::C,
        evidence: vec![
            WAITED
                .with([("share", Amount::Share(stalled))])
                .against([("least", Amount::Share(STALLED))]),
            SWAPPED.with([("swapped", Amount::Bytes(swapped))]),
            NOT_ITS_OWN.with([]),
        ],
        runner_up: Some(Class::None),
        rate: None,
    })
}
