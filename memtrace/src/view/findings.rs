//! What a reader wants to know first: what grows, which line allocates, which line keeps. Sites that are
//! of one line are one finding.

use super::Filter;
use crate::{
    analysis::{
        account::Term,
        series::{self, Place},
        verdict::{Amount, Class, Diagnosis, KeptBy, Scope, Verdict},
    },
    event::Device,
    frames::{Frame, own_line},
    ledger::SiteKey,
};

/// A verdict on a process, with the lines behind it.
#[derive(Debug)]
pub(crate) struct Finding<'a> {
    pub(crate) verdict: &'a Verdict,
    /// The fastest growing first; empty where no site is behind it.
    pub(crate) lines: Vec<Line<'a>>,
}

/// What the sites of one line do.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// `None`: its stack is lost.
    pub(crate) allocates: Option<&'a Frame>,
    pub(crate) kept_by: Option<&'a KeptBy>,
    /// Bytes per second.
    pub(crate) bytes: f64,
    /// Blocks per second, of the site that has most.
    pub(crate) blocks: f64,
    /// Bytes per second of free space that its blocks hold open.
    pub(crate) holes: f64,
    /// What to try.
    pub(crate) next: &'a [String],
}

/// Findings of the processes that the filter leaves, those that grow first.
pub(crate) fn findings<'a>(found: &'a Diagnosis, filter: &Filter) -> Vec<Finding<'a>> {
    let verdicts = found.verdicts.iter();
    let covered = verdicts.filter(|verdict| filter.pid.is_none_or(|pid| pid == verdict.tgid));
    let mut findings: Vec<Finding> = covered
        .filter(|verdict| verdict.scope == Scope::Process)
        .map(|verdict| Finding {
            verdict,
            lines: lines(found, verdict),
        })
        .collect();
    findings.sort_by(|a, b| rank(a.verdict).total_cmp(&rank(b.verdict)));
    findings
}

/// The device whose memory a verdict on a process is about; `None`: the process's own.
pub(crate) fn place(process: &Verdict) -> Option<Device> {
    let mut evidence = process.evidence.iter();
    evidence.find_map(|of| match of.amount("device")? {
        Amount::Device(device) => Some(*device),
        _ => None,
    })
}

fn rank(verdict: &Verdict) -> f64 {
    match verdict.class {
        Class::GpuOutOfMemory => f64::NEG_INFINITY,
        Class::GpuUnused => f64::MAX,
        Class::None => f64::INFINITY,
        _ => -verdict.rate.unwrap_or(0.0),
    }
}

/// The lines of the sites that have the class of their process.
fn lines<'a>(found: &'a Diagnosis, process: &Verdict) -> Vec<Line<'a>> {
    let mut lines: Vec<Line> = Vec::new();
    let sites = found
        .verdicts
        .iter()
        .filter(|of| of.process == process.process && of.class == process.class);
    let place = place(process);
    for verdict in sites {
        let Scope::Site(key) = verdict.scope else {
            continue;
        };
        let of_site = match series::place(&key) {
            Place::Device(device) => Some(device),
            _ => None,
        };
        if of_site != place {
            continue;
        }
        let frames: Vec<&Frame> = found.stacks.get(key.stack).of_caller().collect();
        let line = Line {
            allocates: own_line(&frames),
            kept_by: verdict.kept_by.as_ref(),
            bytes: verdict.rate.unwrap_or(0.0),
            blocks: verdict.blocks.unwrap_or(0.0),
            holes: holes(found, key),
            next: &verdict.next,
        };
        match lines
            .iter_mut()
            .find(|known| known.allocates == line.allocates)
        {
            Some(known) => {
                known.bytes += line.bytes;
                known.blocks = known.blocks.max(line.blocks);
                known.holes += line.holes;
                known.kept_by = known.kept_by.or(line.kept_by);
            }
            None => lines.push(line),
        }
    }
    lines.sort_by(|a, b| (b.bytes + b.holes).total_cmp(&(a.bytes + a.holes)));
    lines
}

/// How fast the free space that a site holds open grows, bytes per second.
fn holes(found: &Diagnosis, site: SiteKey) -> f64 {
    let mut accounts = found.accounts.iter();
    let Some(of) = accounts.find(|of| of.process == site.process) else {
        return 0.0;
    };
    let rows = of.accounts.iter().flat_map(|account| &account.rows);
    let held = rows.filter(|(term, _)| *term == Term::HeldOpen(site));
    held.map(|(_, bytes)| bytes).sum::<f64>() / (of.to - of.from).max(f64::MIN_POSITIVE)
}
