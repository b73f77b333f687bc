//! The processes of a finding: those that end while others take their place, and those that they started.

use std::collections::BTreeSet;

use crate::{
    analysis::verdict::{Class, Diagnosis, Scope, Verdict},
    ledger::ProcessId,
    recording::ProcessRow,
};

/// The largest part of the growth of some processes that is of the same time, as far as they are judged.
pub(super) fn at_once(found: &Diagnosis, processes: &[&Verdict]) -> f64 {
    let grows = |verdict: &&&Verdict| verdict.rate.is_some_and(|rate| rate > 0.0);
    let growing = processes.iter().filter(grows);
    let lives: Vec<(f64, f64, f64)> = growing
        .filter_map(|verdict| {
            let mut accounts = found.accounts.iter();
            let of = accounts.find(|of| of.process == verdict.process)?;
            Some((of.from, of.to, verdict.rate?))
        })
        .collect();
    let rate =
        |lives: &mut dyn Iterator<Item = &(f64, f64, f64)>| lives.map(|of| of.2).sum::<f64>();
    let at = |time: f64| rate(&mut lives.iter().filter(|of| of.0 <= time && time < of.1));
    let most = lives.iter().map(|of| at(of.0)).fold(0.0, f64::max);
    match rate(&mut lives.iter()) {
        all if all > 0.0 && most > 0.0 => most / all,
        _ => 1.0,
    }
}

/// How many processes like these ended while others took their place, if all of these come and go.
pub(super) fn replaced(found: &Diagnosis, processes: &[&Verdict]) -> Option<u64> {
    let of = |verdict: &&Verdict| {
        let mut accounts = found.accounts.iter();
        accounts.find(|of| of.process == verdict.process)?.replaced
    };
    let all: Option<Vec<u64>> = processes.iter().map(of).collect();
    all?.into_iter().max()
}

/// Processes that grow, below some that do not.
pub(super) fn growing_below(found: &Diagnosis, processes: &[&Verdict]) -> Vec<u32> {
    let grows = |of: &&Verdict| {
        of.scope == Scope::Process
            && !matches!(of.class, Class::None | Class::Undetermined)
            && of.rate.is_none_or(|rate| rate > 0.0)
    };
    let is_below = |of: &Verdict| {
        let mut child = row(found, of.process);
        while let Some(row) = child {
            // A parent comes before its children.
            let is_parent =
                |other: &&ProcessRow| other.id < row.id && row.ppid != 0 && other.tgid == row.ppid;
            child = found.processes.iter().rfind(is_parent);
            if child.is_some_and(|parent| processes.iter().any(|of| of.process == parent.id)) {
                return true;
            }
        }
        false
    };
    let growing = found.verdicts.iter().filter(grows);
    let below = growing.filter(|of| is_below(of)).map(|of| of.tgid);
    // A process has a verdict for each device besides its own.
    let below: BTreeSet<u32> = below.collect();
    below.into_iter().collect()
}

pub(crate) fn row(found: &Diagnosis, id: ProcessId) -> Option<&ProcessRow> {
    let at = found.processes.binary_search_by_key(&id, |row| row.id);
    Some(&found.processes[at.ok()?])
}
