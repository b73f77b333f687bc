//! Child processes that do not end, or that their parent does not wait for.

use crate::{
    analysis::{
        kin::outlives,
        series::{Figure, ProcessSeries},
        verdict::{
            advice::Advice,
            class::{Class, Grade},
            evidence::{Amount, Statement},
            rule::{DESCRIPTION, Description, OfProcess, Rule},
            subjects::{COUNT_FLOOR, counted},
        },
    },
    hash::FastMap,
    ledger::ProcessId,
    recording::Origin,
};

/// Least growth: a child has a memory of its own, so that few of them matter.
const FLOOR: f64 = 5.0;

/// The number of children that come and go by chance varies by its root. So many roots are growth.
const CHANCE: f64 = 2.0;

/// Fewer may be a pool of workers that fills.
const CERTAIN: f64 = COUNT_FLOOR;

/// Shares of the new children that are most, or nearly all, of them.
const HALF: f64 = 0.5;
const ALL: f64 = 0.8;

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
    evidence: "child processes, by 5 or more, and if some end, by twice the root of their number (also if it grows)",
    find: OfProcess::Beside(|judging| {
        let children = judging.rising(Figure::Children, FLOOR)?;
        let kin = judging.context.series.kin;
        let growth = children.trend.growth();
        if kin.ended > 0 && growth < CHANCE * children.trend.level.sqrt() {
            return None;
        }
        let mut found = counted(Class::ProcessLeak, &RISE, &children);
        if growth < CERTAIN {
            found.grade = Grade::C;
        }
        let running = kin.running as f64 / growth;
        if running < HALF && kin.ended as f64 >= HALF * growth {
            found.evidence.push(ENDED.with([]));
        } else if kin.weighed > 0 {
            let private = kin.private_of_weighed as f64 / kin.weighed as f64;
            let evidence = PRIVATE.with([("private", Amount::Bytes(private))]);
            found.evidence.push(evidence);
            // Those that ended have no memory.
            let are_all_known = running >= ALL;
            found.rate = are_all_known.then_some(children.trend.slope * private);
        }
        Some(found)
    }),
};

/// Adds up the private memory of the children that were started while recording and did not end before their parent.
pub(in super::super) fn weigh(processes: &mut [ProcessSeries]) {
    let mut places: FastMap<ProcessId, usize> = FastMap::default();
    for at in 0..processes.len() {
        let child = &processes[at];
        let private = child.figure(Figure::PrivateDirty);
        let private = private.and_then(|of| of.last()).copied();
        let parent = child.kin.parent.and_then(|parent| places.get(&parent));
        if let (Some(parent), Some(private)) = (parent.copied(), private)
            && child.row.origin == Origin::Child
            && outlives(&child.row, &processes[parent].row)
        {
            let kin = &mut processes[parent].kin;
            kin.weighed += 1;
            kin.private_of_weighed += private as u64;
        }
        places.insert(processes[at].row.id, at);
    }
}
