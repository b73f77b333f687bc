//! What restricts a finding, in a sentence.

use super::{evidence::words, job::few};
use crate::{
    analysis::verdict::{
        Amount, Class, Diagnosis, REPORTED, SHARED_MEANWHILE, SLOWED_DOWN, Scope, UNEVEN_RISE,
        Verdict,
    },
    units::{grouped, per_second},
    view::findings::Finding,
};

/// Processes like these end while others take their place.
pub(super) fn comes_and_goes(finding: &Finding) -> Option<String> {
    let ended = grouped(finding.replaced?);
    let rate = finding.verdict.rate.filter(|rate| *rate > 0.0);
    let rate = rate.filter(|_| finding.verdict.class == Class::None);
    let grows = rate.map_or(String::new(), |rate| {
        format!("each grows by up to {} until it ends: ", per_second(rate))
    });
    Some(format!(
        "{grows}of such processes, {ended} ended while others took their place"
    ))
}

/// Processes that they started grow.
pub(super) fn started_below(finding: &Finding) -> Option<String> {
    let below: Vec<String> = finding.growing_below.iter().map(u32::to_string).collect();
    let who = match &finding.processes[..] {
        [_] => "it",
        _ => "they",
    };
    (!below.is_empty()).then(|| format!("see {}, which {who} started", few(&below)))
}

/// Memory rose, and it is not known whether it goes on; or tracing slowed the program down.
pub(super) fn doubts(finding: &Finding) -> Vec<String> {
    let evidence = finding.verdict.evidence.iter();
    let doubts = evidence.filter(|of| [UNEVEN_RISE, SLOWED_DOWN].contains(&of.kind.name));
    doubts.map(words).collect()
}

/// Shared memory of the machine grows, and the findings do not explain it.
pub(super) fn shared_meanwhile(finding: &Finding, found: &Diagnosis) -> Option<String> {
    let mut evidence = finding.verdict.evidence.iter();
    let grows = evidence.find(|of| of.kind.name == SHARED_MEANWHILE)?;
    let amounts = (grows.amount("growth"), grows.amount("length"));
    let (Some(Amount::Change(growth)), Some(Amount::Seconds(length))) = amounts else {
        return None;
    };
    let maps = |of: &&Verdict| {
        let is_shared = matches!(of.class, Class::Shmem | Class::Pinned | Class::MachineShmem);
        of.scope == Scope::Process && is_shared
    };
    let known = found.verdicts.iter().filter(maps);
    let known: f64 = known.filter_map(|of| of.rate).sum();
    (known * length < REPORTED * growth).then(|| words(grows))
}
