//! A forked child that copies the pages it shared.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::{Class, Grade},
        evidence::{Amount, Statement},
        finding::Finding,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::Judging,
        thresholds::{OF_RESIDUAL, REPORTED, STATE_FLOOR},
    },
};
use crate::recording::Origin;

pub(super) const CLASS: Description = Description {
    name: "copy-on-write",
    meaning: "a forked child copies pages that it shared with its parent",
    next: &[
        Advice::FreezeBeforeFork,
        Advice::ShareArrays,
        Advice::LeaveReadOnly,
    ],
    ..DESCRIPTION
};

static DIRTY: Statement = Statement {
    name: "pages_become_private",
    sentence: "private dirty pages {private}, shared ones {shared}",
};

static OWN: Statement = Statement {
    name: "own_allocations",
    sentence: "its own allocations {live}",
};

pub(super) const FORKED: Rule<OfProcess> = Rule {
    class: Class::CopyOnWrite,
    evidence: "in a child, or an attached process without children: private dirty pages up by 8 MiB or more, shared dirty ones down by half of that or more, own allocations below 30 % of it",
    find: OfProcess::Always(forked),
};

fn forked(judging: &Judging) -> Option<Finding> {
    let series = judging.context.series;
    // Pages of a parent become its own when a child ends, too.
    let may_be_forked = series.row.origin == Origin::Attached && !series.kin.is_parent;
    if !series.kin.is_child && !may_be_forked {
        return None;
    }
    let change = |figure| {
        let values = series.figure(figure);
        values.map(|values| judging.whole.change(values))
    };
    let private = change(Figure::PrivateDirty)?;
    let shared = change(Figure::SharedDirty)?;
    let live = judging.whole.change(&series.live());
    if private < STATE_FLOOR || -shared < OF_RESIDUAL * private || live > REPORTED * private {
        return None;
    }
    Some(Finding {
        class: Class::CopyOnWrite,
        grade: Grade::B,
        evidence: vec![
            DIRTY.with([
                ("private", Amount::Change(private)),
                ("shared", Amount::Change(shared)),
            ]),
            OWN.with([("live", Amount::Change(live))]),
        ],
        runner_up: Some(Class::Leak),
        rate: None,
    })
}
