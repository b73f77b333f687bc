//! The verdicts of a recording, and what they are about.

use super::{
    advice::Advice,
    class::{Class, Grade},
    evidence::Evidence,
    keepers::{Absent, Keeper, LostSite},
    named::Named,
    types::Types,
};
use crate::{
    analysis::{account::Account, suppressions::Suppressions},
    frames::{Frame, runtime_heaps::RuntimeHeap},
    hash::FastMap,
    ledger::{ProcessId, SiteKey},
    recording::{Holders, ProcessRow, Stacks, Unsearched, Untraced},
};

/// Scope of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scope {
    Process,
    Site(SiteKey),
}

/// A verdict and its evidence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub process: ProcessId,
    pub tgid: u32,
    pub scope: Scope,
    pub class: Class,
    pub grade: Grade,
    pub evidence: Vec<Evidence>,
    /// The next most likely class.
    pub runner_up: Option<Class>,
    /// Advice on what to do next.
    pub next: Vec<Advice>,
    /// Bytes per second; `None` if it is not about bytes.
    pub rate: Option<f64>,
    /// For a growing site: blocks per second.
    pub(crate) blocks: Option<f64>,
    /// For a leaking site whose line allocates for others, too: the caller that leaks.
    pub(crate) caller: Option<Frame>,
    /// For a mapping: the runtime whose heap it is part of.
    pub(crate) runtime: Option<&'static RuntimeHeap>,
    /// For a leaking site.
    pub keeper: Option<Keeper>,
    /// Why it is not known.
    pub(crate) absent: Option<Absent>,
}

/// All verdicts of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diagnosis {
    /// Process by process: its own first, then those of its sites, the fastest growing first.
    pub verdicts: Vec<Verdict>,
    /// Where the growth of each process went, with the seconds of the recording covered.
    pub accounts: Vec<ProcessAccount>,
    /// Sites whose verdict a suppression hides, by its pattern.
    pub suppressed: Vec<(String, Verdict)>,
    /// Sites without such a verdict whose blocks are lost.
    pub(crate) lost_sites: Vec<LostSite>,
    /// Children that ended before a trend could be seen.
    pub too_short: u64,
    /// Share of records lost: figures called exact are only as good as that.
    pub lost: f64,
    /// Holders of the sites' blocks, as seen in memory.
    pub(crate) holders: FastMap<SiteKey, Holders>,
    /// Processes that grew and were not searched.
    pub(crate) unsearched: FastMap<ProcessId, Unsearched>,
    /// Processes whose Python objects were counted.
    pub(crate) types: FastMap<ProcessId, Types>,
    /// The stacks of the sites, and others.
    pub stacks: Stacks,
    /// Every process of the recording.
    pub processes: Vec<ProcessRow>,
    /// Processes of the job that are not in it.
    pub untraced: Vec<Untraced>,
}

/// The tables of one process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessAccount {
    pub process: ProcessId,
    pub tgid: u32,
    /// Seconds since the start of the recording.
    pub from: f64,
    pub to: f64,
    pub accounts: Vec<Account>,
    pub(crate) named: Named,
    /// If it comes and goes with others like it: how many of these ended while others took their place.
    pub(crate) replaced: Option<u64>,
}

impl Diagnosis {
    /// Adds the verdicts on a process and on those of its sites that no suppression hides.
    pub(super) fn show(
        &mut self,
        of_process: Vec<Verdict>,
        sites: Vec<Verdict>,
        stacks: &Stacks,
        suppressions: &Suppressions,
    ) {
        let mut shown = Vec::new();
        for verdict in sites {
            let pattern = match &verdict.scope {
                Scope::Site(key) => {
                    let frames: Vec<_> = stacks.get(key.stack).frames().collect();
                    suppressions.matching(&frames)
                }
                Scope::Process => None,
            };
            match pattern {
                Some(pattern) => self.suppressed.push((pattern.into(), verdict)),
                None => shown.push(verdict),
            }
        }
        for mut verdict in of_process {
            // A suppressed site is not listed below.
            if !shown.iter().any(|site| site.class == verdict.class) {
                verdict.next.retain(|advice| !advice.needs_sites());
            }
            self.verdicts.push(verdict);
        }
        self.verdicts.extend(shown);
    }
}
