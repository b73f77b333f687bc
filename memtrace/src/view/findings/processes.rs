//! The processes of a finding and their place: those that end while others take their place, and those that they started.

use std::collections::BTreeSet;

use crate::{
    analysis::{
        kin::most_at_once,
        verdict::{Amount, Class, Diagnosis, Scope, Verdict, is_of_older},
    },
    event::Device,
    ledger::{ProcessId, SiteKey},
    recording::ProcessRow,
};

/// The largest part of the growth of some processes that is of the same time.
pub(super) fn at_once(found: &Diagnosis, processes: &[&Verdict]) -> f64 {
    let rate = |verdict: &&&Verdict| verdict.rate.filter(|rate| *rate > 0.0);
    let lives = processes.iter().filter_map(|verdict| {
        let row = row(found, verdict.process)?;
        let end = row.ended_ns.unwrap_or(u64::MAX);
        Some((row.started_ns, end, rate(&verdict)?))
    });
    let all: f64 = lives.clone().map(|(_, _, rate)| rate).sum();
    let most = most_at_once(lives);
    match all > 0.0 && most > 0.0 {
        true => most / all,
        false => 1.0,
    }
}

/// How many processes like these ended while others took their place, if all of these come and go.
pub(super) fn replaced(found: &Diagnosis, processes: &[&Verdict]) -> Option<u64> {
    let all: Option<Vec<u64>> = processes.iter().map(|of| replaced_by(found, of)).collect();
    all?.into_iter().max()
}

/// The same for one process.
pub(super) fn replaced_by(found: &Diagnosis, verdict: &Verdict) -> Option<u64> {
    let accounts = &found.accounts;
    let at = accounts.binary_search_by_key(&verdict.process, |of| of.process);
    accounts[at.ok()?].replaced
}

/// Whether blocks of a site took the place of older ones.
pub(super) fn replaces_older(found: &Diagnosis, site: SiteKey) -> bool {
    let mut verdicts = found.verdicts.iter();
    let of_site = verdicts.find(|of| of.scope == Scope::Site(site));
    of_site.is_some_and(|of| of.evidence.iter().any(is_of_older))
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

/// The device whose memory a verdict on a process is about; `None`: the process's own.
pub(crate) fn place(process: &Verdict) -> Option<Device> {
    let mut evidence = process.evidence.iter();
    evidence.find_map(|of| match of.amount("device")? {
        Amount::Device(device) => Some(*device),
        _ => None,
    })
}
