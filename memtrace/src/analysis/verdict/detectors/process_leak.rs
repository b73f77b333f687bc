//! Child processes that do not end, or that their parent does not wait for.

use crate::{
    analysis::{
        series::{Figure, ProcessSeries},
        verdict::{
            advice::Advice,
            class::Class,
            evidence::{Amount, Statement},
            rule::{DESCRIPTION, Description, OfProcess, Rule},
            subjects::counted,
        },
    },
    recording::{Origin, ProcessRow},
};

/// Least growth: a child has a memory of its own, so that few of them matter. A pool of workers that has reached its size
/// no longer grows.
const FLOOR: f64 = 5.0;

/// If less than this share of them run, the others are zombies: of children that started late, some are not judged.
const RUNNING: f64 = 0.25;

pub(super) const CLASS: Description = Description {
    name: "process-leak",
    meaning: "child processes become more and more",
    next: &[Advice::EndChildren],
    on_screen: 2,
    ..DESCRIPTION
};

static RISE: Statement = Statement {
    name: "children_rise",
    sentence: "child processes: {growth} in {length}, {rate}",
};

static PRIVATE: Statement = Statement {
    name: "children_have",
    sentence: "those started while recording have {private} of private memory each, on average",
};

static ENDED: Statement = Statement {
    name: "children_ended",
    sentence: "most of them have ended, and it has not waited for them",
};

pub(super) const COUNT: Rule<OfProcess> = Rule {
    class: Class::ProcessLeak,
    evidence: "child processes, by 5 or more (also if it grows)",
    find: OfProcess::Beside(|judging| {
        let judged = judging.rising(Figure::Children, FLOOR)?;
        let mut found = counted(Class::ProcessLeak, &RISE, &judged);
        let kin = judging.context.series.kin;
        if (kin.started as f64) < RUNNING * judged.trend.growth() {
            found.evidence.push(ENDED.with([]));
        } else if kin.private_of_weighed > 0 {
            let private = kin.private_of_weighed as f64 / kin.weighed as f64;
            let evidence = PRIVATE.with([("private", Amount::Bytes(private))]);
            found.evidence.push(evidence);
            found.rate = Some(judged.trend.slope * private);
        }
        Some(found)
    }),
};

/// Adds up the private memory of the children that were started while recording and do not end before their parent.
pub(in super::super) fn weigh(processes: &mut [ProcessSeries]) {
    for at in 0..processes.len() {
        let Some((before, [child, ..])) = processes.split_at_mut_checked(at) else {
            return;
        };
        // A parent comes before its children.
        let of_child = |parent: &&mut ProcessSeries| parent.row.tgid == child.row.ppid;
        let parent = before.iter_mut().rfind(of_child);
        if let Some(parent) = parent
            && child.row.origin == Origin::Child
            && outlives(&child.row, &parent.row)
        {
            parent.kin.started += 1;
            let private = child.figure(Figure::PrivateDirty);
            if let Some(private) = private.and_then(|of| of.last()) {
                parent.kin.weighed += 1;
                parent.kin.private_of_weighed += *private as u64;
            }
        }
    }
}

/// Whether a child has not ended, or only with its parent.
fn outlives(child: &ProcessRow, parent: &ProcessRow) -> bool {
    /// A parent may end its children first.
    const WITH_IT: u64 = 1_000_000_000;
    let with_parent = |end: u64| {
        let of_parent = parent.ended_ns;
        of_parent.is_some_and(|of| end + WITH_IT >= of)
    };
    child.ended_ns.is_none_or(with_parent)
}
