//! Verdicts: the kind of growth that a process or a site shows, how certain that is, and what would
//! make it more certain. A verdict that the evidence does not support is [`Class::Undetermined`].

mod advice;
mod detectors;
mod device;
#[cfg(test)]
mod document;
mod evidence;
mod growth;
mod held;
mod keepers;
mod kept_by;
mod lost;
mod offset;
mod out_of_memory;
mod process;
mod rule;
mod shape;
mod site;
mod survival;
mod thresholds;

#[cfg(test)]
mod tests;

use super::{
    account::Account,
    series::{self, Courses, ProcessSeries},
    suppressions::Suppressions,
    system::SystemSeries,
};
use crate::{
    hash::FastMap,
    ledger::{ProcessId, SiteKey},
    recording::{Error, Holders, Overview, ProcessRow, Recording, Stacks, Untraced},
};
use keepers::Keepers;
use memtrace_common::loss::Effect;

pub(crate) use advice::{Advice, Longer};
pub(crate) use detectors::Class;
#[cfg(test)]
pub(crate) use evidence::Statement;
pub(crate) use evidence::{Amount, Evidence, Rate};
pub(crate) use held::{alike, container, filling_line, kept_by as kept_by_of};
pub(crate) use kept_by::{How, KeptBy};
pub(crate) use lost::LostSite;
#[cfg(test)]
pub(crate) use tests::assert_agrees;

/// Certainty of a verdict. The best, A, takes an experiment that turns the growth off and on twice,
/// which no single recording contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    /// Every test of its class passed, and it explains most of the growth.
    B,
    /// The tests passed, but the growth has other parts too, or a test could not be made.
    C,
    /// Not decided, or a state that was seen and not its growth.
    D,
}

impl Grade {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Grade::B => "B",
            Grade::C => "C",
            Grade::D => "D",
        }
    }
}

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
    /// For a leaking site.
    pub kept_by: Option<KeptBy>,
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
}

/// Reliability of the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quality {
    /// Share of records lost or dropped unintentionally.
    lost: f64,
    /// Allocated bytes of sites without a stack, of all.
    without_stack: f64,
    /// Length of the recording, seconds.
    length: f64,
    interval: f64,
    /// How long a process has to live to be judged, seconds.
    least_life: f64,
    /// Whether malloc was recorded.
    heap: bool,
}

/// Judges every process of a recording, and its sites.
pub(crate) fn diagnose(
    recording: &Recording,
    machine: &SystemSeries,
    suppressions: &Suppressions,
) -> Result<Diagnosis, Error> {
    let overview = recording.overview()?;
    let courses = series::read(recording, &overview)?;
    let quality = Quality::of(&overview, &courses);
    let mut diagnosis = Diagnosis {
        lost: quality.lost,
        too_short: courses.too_short,
        untraced: recording.untraced()?,
        holders: recording
            .holders()?
            .into_iter()
            .map(|of| (of.site, of))
            .collect(),
        ..Diagnosis::default()
    };
    let facts = recording.facts()?;
    let failed = out_of_memory::judge(&overview, &courses.processes, &facts);
    diagnosis.verdicts.extend(failed);
    for series in courses.processes {
        judge(
            &series,
            &overview.stacks,
            &quality,
            machine,
            suppressions,
            &mut diagnosis,
        );
    }
    diagnosis.stacks = overview.stacks;
    diagnosis.processes = overview.processes;
    Ok(diagnosis)
}

fn judge(
    series: &ProcessSeries,
    stacks: &Stacks,
    quality: &Quality,
    machine: &SystemSeries,
    suppressions: &Suppressions,
    diagnosis: &mut Diagnosis,
) {
    let Some(judged) = process::judge(series, quality, machine) else {
        diagnosis.too_short += 1;
        return;
    };
    let (from, to) = judged.window.ends(&series.times).unwrap_or_default();
    diagnosis.accounts.push(ProcessAccount {
        process: series.row.id,
        tgid: series.row.tgid,
        from,
        to,
        accounts: judged.accounts,
    });
    let mut sites = judged.sites;
    let keepers = Keepers {
        series,
        window: judged.window,
        holders: &diagnosis.holders,
        stacks,
    };
    keepers.assign(&mut sites);
    let leaks = |key| {
        let leak = sites.iter().find(|site| site.scope == Scope::Site(key));
        leak.is_some_and(|site| site.kept_by.is_some())
    };
    let lost = lost::sites(series, &diagnosis.holders, stacks, suppressions);
    diagnosis
        .lost_sites
        .extend(lost.into_iter().filter(|lost| !leaks(lost.site)));
    diagnosis.show(judged.verdicts, sites, stacks, suppressions);
}

impl Diagnosis {
    /// Adds the verdicts on a process and on those of its sites that no suppression hides.
    fn show(
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

impl Quality {
    fn of(overview: &Overview, courses: &Courses) -> Quality {
        let harmless = [Effect::Filtered, Effect::StackLost, Effect::NamesLost];
        let harmful = |effect| !harmless.contains(&effect);
        let lost: u64 = overview
            .losses
            .iter()
            .filter(|(reason, _)| harmful(reason.effect()))
            .map(|(_, count)| count)
            .sum();
        let share = |part: u64, all: u64| match all {
            0 => 0.0,
            all => part as f64 / all as f64,
        };
        let start = overview.meta.started_ns;
        let end = overview.time_ns.unwrap_or(start);
        Quality {
            lost: share(lost, overview.emitted),
            without_stack: share(courses.without_stack, courses.allocated),
            length: end.saturating_sub(start) as f64 / 1e9,
            interval: overview.meta.interval_ns as f64 / 1e9,
            least_life: series::least_life(&overview.meta),
            heap: !overview.meta.without_heap,
        }
    }
}
