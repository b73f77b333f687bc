//! Verdicts: the kind of growth that a process or a site shows, how certain that is, and what would
//! make it more certain. A verdict that the evidence does not support is [`Class::Undetermined`].

mod advice;
mod buffers;
mod caller;
mod class;
mod context;
mod detectors;
mod device;
mod diagnosis;
#[cfg(test)]
mod document;
mod evidence;
mod finding;
mod growth;
mod keepers;
mod line;
mod named;
mod objects;
mod offset;
mod order;
mod out_of_memory;
mod process;
mod quality;
mod rule;
mod shape;
mod site;
mod starters;
mod stepped;
mod subjects;
mod survival;
mod thresholds;
mod types;

#[cfg(test)]
mod tests;

use super::{
    series::{self, ProcessSeries},
    suppressions::Suppressions,
    system::SystemSeries,
};
use crate::recording::{Error, Fact, Recording, Stacks};
use keepers::Keepers;
use quality::Quality;

pub(crate) use advice::{Advice, Longer};
pub(crate) use class::{Class, Grade};
pub(crate) use detectors::none::{SHARED_MEANWHILE, SLOWED_DOWN, UNEVEN_RISE};
pub(crate) use diagnosis::{Diagnosis, ProcessAccount, Scope, Verdict};
#[cfg(test)]
pub(crate) use evidence::Statement;
pub(crate) use evidence::{Amount, Evidence, Rate};
pub(crate) use keepers::{
    Absent, How, Keeper, LostSite, Pool, alike, container, filling_line, keeper_of,
};
#[cfg(test)]
pub(crate) use named::Named;
pub(crate) use offset::is_of_older;
#[cfg(test)]
pub(crate) use tests::assert_agrees;
pub(crate) use thresholds::REPORTED;
pub(crate) use types::Types;

/// Judges every process of a recording, and its sites.
pub(crate) fn diagnose(
    recording: &Recording,
    machine: &SystemSeries,
    suppressions: &Suppressions,
) -> Result<Diagnosis, Error> {
    let overview = recording.overview()?;
    let mut courses = series::read(recording, &overview)?;
    detectors::process_leak::weigh(&mut courses.processes);
    let quality = Quality::of(&overview, &courses);
    let mut diagnosis = Diagnosis {
        lost: quality.lost,
        too_short: courses.too_short,
        untraced: recording.untraced()?,
        unsearched: recording.unsearched()?,
        holders: recording
            .holders()?
            .into_iter()
            .map(|of| (of.site, of))
            .collect(),
        types: recording
            .types()?
            .into_iter()
            .map(|(process, census, growing)| {
                (process, Types::new(census, growing, &overview.stacks))
            })
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
            &facts,
            &mut diagnosis,
        );
    }
    diagnosis.stacks = overview.stacks;
    diagnosis.processes = overview.processes;
    starters::assign(recording, &mut diagnosis)?;
    Ok(diagnosis)
}

fn judge(
    series: &ProcessSeries,
    stacks: &Stacks,
    quality: &Quality,
    machine: &SystemSeries,
    suppressions: &Suppressions,
    facts: &[Fact],
    diagnosis: &mut Diagnosis,
) {
    let types = diagnosis.types.get(&series.row.id);
    let judged = process::judge(series, stacks, quality, machine, &diagnosis.holders, types);
    let Some(judged) = judged else {
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
        named: judged.named,
        replaced: series.kin.replaced,
    });
    let (mut verdicts, mut sites) = (judged.verdicts, judged.sites);
    let keepers = Keepers::new(series, judged.window, diagnosis, facts, stacks);
    keepers.assign(&mut sites);
    let instead = types.and_then(|types| keepers.instead_of(types));
    if let Some(types) = diagnosis.types.get_mut(&series.row.id)
        && let Some(keeper) = instead
    {
        types.doubt(keeper);
    }
    keepers::advise_on_mappings(&mut verdicts, &sites);
    if let Some(types) = diagnosis.types.get(&series.row.id) {
        objects::assign(&mut sites, types);
        keepers::advise(&mut verdicts, &mut sites, types);
    }
    let leaks = |key| {
        let leak = sites.iter().find(|site| site.scope == Scope::Site(key));
        leak.is_some_and(|site| site.keeper.is_some())
    };
    let lost = keepers::lost_sites(series, &diagnosis.holders, stacks, suppressions);
    diagnosis
        .lost_sites
        .extend(lost.into_iter().filter(|lost| !leaks(lost.site)));
    diagnosis.show(verdicts, sites, stacks, suppressions);
}
