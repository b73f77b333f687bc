//! Differences between recordings: growth, site by site, and the machines.
//!
//! Sites are matched across builds, addresses and install prefixes ([`matching`]), growth is
//! compared as slopes with intervals ([`growth`]), and the known facts of both machines are ranked
//! by their relation to growth ([`fingerprint`]). Pure: recordings come as [`Run`]s. `docs/reference/diff.md`
//! explains the claims of a comparison.

mod error;
mod facts;
mod fingerprint;
#[cfg(test)]
pub(crate) mod fixture;
mod growth;
mod isa;
mod keys;
mod known;
mod level;
mod matching;
mod memory;
mod module_name;
mod options;
mod pooled;
mod python_path;
mod run;
mod site_difference;
mod stack;
mod symbol;
mod workload;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub(crate) use error::Error;
pub(crate) use fingerprint::Difference;
pub(crate) use fingerprint::{isa, rank};
pub(crate) use growth::Growth;
pub(crate) use known::{Absence, Gap, is_of_session, is_unread};
pub(crate) use level::Level;
pub(crate) use memory::Memory;
pub(crate) use options::{Options, Per};
pub(crate) use run::{POINTS, Run, Site};
pub(crate) use site_difference::SiteDifference;
pub(crate) use stack::Stack;
pub(crate) use workload::Workload;

/// Live bytes by the way they were matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Matched {
    pub baseline_bytes: u64,
    pub new_bytes: u64,
    pub sites: u64,
}

/// The result.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub per: Per,
    /// Names of the recordings.
    pub baselines: Vec<String>,
    pub new: String,
    /// Of the baselines, the one with the most; and of the new recording.
    pub(crate) memory: [Memory; 2],
    /// Sorted by relation to growth, the closest first.
    pub fingerprint: Vec<Difference>,
    /// Facts that may differ unnoticed.
    pub not_compared: Vec<Gap>,
    /// Sites that differ, the largest growth first, the largest decrease last; then sites that only
    /// one side has and that do not grow.
    pub sites: Vec<SiteDifference>,
    /// The same for address space. An allocator's blocks are counted in `sites`: if only its mappings grow, it keeps
    /// freed memory.
    pub mappings: Vec<SiteDifference>,
    /// By level, then unmatched. Address space is left out, because the blocks in it are already counted.
    pub matched: [Matched; Level::ALL.len()],
    pub unmatched: Matched,
    /// Those that only a baseline has, and those that only the new recording has.
    pub(crate) only: [u64; 2],
    /// Those without live bytes.
    pub(crate) unmatched_empty: u64,
    /// `None` if allocations are the unit.
    pub workload: Option<Workload>,
    /// Recordings in which events were lost, and why: their growth is only a bound.
    pub losses: Vec<(String, Vec<&'static str>)>,
    /// Recordings too short for intervals.
    pub short: Vec<String>,
}

impl Comparison {
    /// The names of the baselines' programs and of the new recording's, if they have none in common.
    pub(crate) fn different_programs(&self) -> Option<(BTreeSet<&str>, BTreeSet<&str>)> {
        let mut facts = self.fingerprint.iter();
        let paths = facts.find(|fact| fact.field == "exe.path")?;
        let [old, new] = [paths.baseline.as_deref()?, paths.new.as_deref()?].map(|paths| {
            let names = paths
                .split(" | ")
                .filter_map(|path| path.rsplit('/').next());
            names.collect::<BTreeSet<_>>()
        });
        old.is_disjoint(&new).then_some((old, new))
    }

    /// Live bytes of both sides that have a counterpart.
    pub(crate) fn matched_bytes(&self) -> u64 {
        let bytes = |matched: &Matched| matched.baseline_bytes + matched.new_bytes;
        self.matched.iter().map(bytes).sum()
    }

    /// Live bytes of both sides that have none.
    pub(crate) fn unmatched_bytes(&self) -> u64 {
        self.unmatched.baseline_bytes + self.unmatched.new_bytes
    }

    /// The site that grows most, if one certainly grows at least this many bytes per unit faster
    /// than in the baseline.
    pub(crate) fn grows_by(&self, least: f64) -> Option<&SiteDifference> {
        let grown = |site: &&SiteDifference| site.delta.rate >= least && site.delta.is_sure();
        self.sites.iter().find(grown)
    }

    /// The site that certainly rises in the new recording, and more than in the baseline beyond the
    /// possible variation of the load: a suspected leak. The fastest, if there are several.
    pub(crate) fn leak(&self) -> Option<&SiteDifference> {
        let rises = |growth: &Growth| growth.interval.is_some_and(|(low, _)| low > 0.0);
        let grown = |site: &&SiteDifference| {
            rises(&site.new) && rises(&site.delta) && site.is_beyond_load()
        };
        self.sites.iter().find(grown)
    }
}

/// Compares `new` with one baseline, or with the common range of several.
///
/// # Errors
///
/// When a recording has nothing to compare.
pub(crate) fn compare(
    baselines: &[Run],
    new: &Run,
    options: &Options,
) -> Result<Comparison, Error> {
    for run in baselines.iter().chain([new]) {
        if run.seconds.is_empty() {
            return Err(Error::Empty(run.name.clone()));
        }
    }
    let measured = |run| pooled::Measured::new(run, &options.per);
    let baselines: Vec<_> = baselines.iter().map(measured).collect::<Result<_, _>>()?;
    let new = pooled::Measured::new(new, &options.per)?;
    let all = pooled::differences(&baselines, &new, options);

    let mut matched = [Matched::default(); Level::ALL.len()];
    let mut unmatched = Matched::default();
    let (mut only, mut unmatched_empty) = ([0; 2], 0);
    for site in all.iter().filter(|site| !site.is_space) {
        let row = match site.level {
            Some(level) => &mut matched[level as usize],
            None => {
                only[usize::from(site.new_stack.is_some())] += 1;
                unmatched_empty += u64::from(site.baseline_bytes + site.new_bytes == 0);
                &mut unmatched
            }
        };
        row.sites += 1;
        row.baseline_bytes += site.baseline_bytes;
        row.new_bytes += site.new_bytes;
    }
    let mut sites: Vec<_> = all.into_iter().filter(SiteDifference::differs).collect();
    sites.sort_by(|a, b| {
        // Sites that do not grow come last.
        let still = |site: &SiteDifference| site.delta.rate == 0.0;
        let order = still(a).cmp(&still(b));
        let order = order.then(b.delta.rate.total_cmp(&a.delta.rate));
        let bytes = (a.new_bytes, b.new_bytes);
        order
            .then(bytes.1.cmp(&bytes.0))
            .then_with(|| a.place().cmp(b.place()))
    });
    let (mappings, sites) = sites.into_iter().partition(|site| site.is_space);
    let sites: Vec<SiteDifference> = sites;
    let runs = || baselines.iter().chain([&new]);
    let facts = runs().map(|side| facts::values(&side.run.facts));
    let facts: Vec<_> = facts.collect();
    let most = baselines.iter().max_by_key(|side| side.run.memory.resident);
    Ok(Comparison {
        memory: [
            most.map_or_else(Memory::default, |side| side.run.memory.clone()),
            new.run.memory.clone(),
        ],
        per: options.per.clone(),
        baselines: baselines.iter().map(|side| side.run.name.clone()).collect(),
        new: new.run.name.clone(),
        fingerprint: fingerprint::differences(&facts, &sites),
        not_compared: known::gaps(runs().map(|side| &*side.run.name).zip(&facts)),
        workload: pooled::workload(&baselines, &new, &options.per),
        losses: runs()
            .filter(|side| !side.run.losses.is_empty())
            .map(|side| (side.run.name.clone(), side.run.losses.clone()))
            .collect(),
        short: runs()
            .filter(|side| side.is_short())
            .map(|side| side.run.name.clone())
            .collect(),
        sites,
        mappings,
        matched,
        unmatched,
        only,
        unmatched_empty,
    })
}
