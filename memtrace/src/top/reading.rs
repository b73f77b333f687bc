//! One reading of a recording that may still be written: everything that one screen shows.

use crate::{
    analysis::{
        courses::Courses,
        suppressions::Suppressions,
        system::SystemSeries,
        verdict::{self, Class, Grade, Keeper, Scope},
    },
    event::Layer,
    hash::FastMap,
    ledger::{ProcessId, SiteKey},
    recording::{At, Error, ProcessRow, Recording, Snapshot},
    view::is_indirect,
};
use std::collections::HashSet;

/// Growth of a recording that is being written is measured over this time, ns.
const RECENT_NS: u64 = 30_000_000_000;

/// The state of a recording at its last interval.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Only running processes hold memory; if none runs any more, all do, at the peaks of their processes.
    pub(crate) snapshot: Snapshot,
    /// Live memory of each site and layer over time.
    pub(crate) courses: Courses,
    /// Resident memory of all processes, bytes, at CLOCK_MONOTONIC ns, rising.
    pub(crate) resident: Vec<(u64, u64)>,
    /// Verdicts on sites that grow.
    pub(crate) verdicts: FastMap<SiteKey, Judged>,
    /// Nobody has ended it: it is being written, or its recorder was killed.
    pub(crate) is_open: bool,
}

/// A verdict on a site.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) class: Class,
    pub(crate) grade: Grade,
    /// As seen in memory, or guessed.
    pub(crate) keeper: Option<Keeper>,
}

/// A span of a recording's time, CLOCK_MONOTONIC ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Span {
    pub(crate) fn seconds(self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

impl Reading {
    /// Reads the recording as it is now.
    pub(crate) fn of(recording: &Recording) -> Result<Reading, Error> {
        let mut snapshot = recording.snapshot(At::Default)?;
        empty_ended(&mut snapshot);
        // Also those that are empty now: their release is part of the change of their line.
        let all = snapshot.sites.iter().map(|site| site.key).collect();
        Ok(Reading {
            courses: Courses::read(recording, &snapshot, &all)?,
            snapshot,
            resident: recording.resident()?,
            verdicts: verdicts(recording)?,
            is_open: recording.cut_off()?.is_some(),
        })
    }

    /// The processes that are shown.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &ProcessRow> + Clone {
        let all = self.snapshot.processes.iter().map(|process| &process.row);
        let has_ended = self.has_ended();
        all.filter(move |row| has_ended || row.ended_ns.is_none())
    }

    /// No process runs any more.
    pub(crate) fn has_ended(&self) -> bool {
        let mut processes = self.snapshot.processes.iter();
        processes.all(|process| process.row.ended_ns.is_some())
    }

    /// Whether a site leaks, by its verdict.
    pub(crate) fn is_leak(&self, site: &SiteKey) -> bool {
        let judged = self.verdicts.get(site);
        judged.is_some_and(|judged| judged.class.is_leak())
    }

    /// What keeps the blocks of a site, as far as that is known.
    pub(crate) fn kept_by(&self, site: &SiteKey) -> Option<Keeper> {
        let judged = self.verdicts.get(site);
        let judged = judged.and_then(|judged| judged.keeper.clone());
        let seen = || {
            let holders = self.snapshot.holders.get(site)?;
            verdict::keeper_of(holders, &self.snapshot.stacks).map(|(keeper, _)| keeper)
        };
        judged.or_else(seen)
    }

    /// From the start to the last interval.
    pub(crate) fn whole(&self) -> Span {
        let from_ns = self.snapshot.meta.started_ns;
        let last = self.courses.times_ns.last().copied();
        Span {
            from_ns,
            to_ns: last.or(self.snapshot.time_ns).unwrap_or(from_ns),
        }
    }

    /// The time over which growth is measured: the last half minute while the recording is written, then all of it.
    pub(crate) fn recent(&self) -> Span {
        let whole = self.whole();
        if !self.is_open {
            return whole;
        }
        let since = whole.to_ns.saturating_sub(RECENT_NS);
        let times = &self.courses.times_ns;
        // Intervals of a long recording may be longer than that.
        let at = times.partition_point(|time| *time <= since);
        let before = at.checked_sub(1).and_then(|at| times.get(at));
        Span {
            from_ns: before.copied().unwrap_or(whole.from_ns),
            ..whole
        }
    }

    /// A site's live bytes at a moment, CLOCK_MONOTONIC ns.
    pub(crate) fn live_at(&self, site: &SiteKey, time_ns: u64) -> u64 {
        let times = &self.courses.times_ns;
        let past = times.partition_point(|at| *at <= time_ns);
        let changes = self.courses.sites.get(site).into_iter().flatten();
        let changes = changes.take_while(|(at, _)| *at < past);
        let live: i64 = changes.map(|(_, [live, ..])| live).sum();
        u64::try_from(live).unwrap_or(0)
    }

    /// Live bytes of some layers in all processes, at CLOCK_MONOTONIC ns, rising. Without mappings that hold the blocks
    /// of other sites.
    pub(crate) fn course(&self, is_meant: impl Fn(Layer) -> bool) -> Vec<(u64, u64)> {
        let layers = self.courses.layers.iter();
        let meant =
            layers.filter(|((_, layer, by_allocator), _)| !by_allocator && is_meant(*layer));
        let meant: Vec<&Vec<u64>> = meant.map(|(_, live)| live).collect();
        let times = self.courses.times_ns.iter().enumerate();
        times
            .map(|(at, time)| (*time, meant.iter().filter_map(|live| live.get(at)).sum()))
            .collect()
    }

    /// Live bytes by layer, without mappings of allocators and the dynamic linker; the largest first.
    pub(crate) fn layers(&self) -> Vec<(Layer, u64)> {
        let mut live: FastMap<Layer, u64> = FastMap::default();
        let Snapshot { sites, stacks, .. } = &self.snapshot;
        let sites = sites.iter().filter(|site| site.totals.live_bytes > 0);
        for site in sites.filter(|site| !is_indirect(&site.key, stacks.get(site.key.stack))) {
            *live.entry(site.key.layer).or_default() += site.totals.live_bytes;
        }
        let mut layers: Vec<_> = live.into_iter().collect();
        layers.sort_by_key(|(layer, bytes)| (std::cmp::Reverse(*bytes), *layer));
        layers
    }
}

/// Empties the sites of ended processes, unless no process runs any more.
fn empty_ended(snapshot: &mut Snapshot) {
    let rows = snapshot.processes.iter().map(|process| &process.row);
    let running = rows.filter(|row| row.ended_ns.is_none());
    let running: HashSet<ProcessId> = running.map(|row| row.id).collect();
    if !running.is_empty() {
        let sites = snapshot.sites.iter_mut();
        for site in sites.filter(|site| !running.contains(&site.key.process)) {
            site.totals.live_bytes = 0;
            site.totals.live_count = 0;
        }
    }
}

/// The verdicts on sites.
fn verdicts(recording: &Recording) -> Result<FastMap<SiteKey, Judged>, Error> {
    let machine = SystemSeries::read(recording)?;
    let diagnosis = verdict::diagnose(recording, &machine, &Suppressions::default())?;
    let of_site = |of: verdict::Verdict| match of.scope {
        Scope::Site(key) => {
            let judged = Judged {
                class: of.class,
                grade: of.grade,
                keeper: of.keeper,
            };
            Some((key, judged))
        }
        Scope::Process => None,
    };
    let verdicts = diagnosis.verdicts.into_iter();
    Ok(verdicts.filter_map(of_site).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::{self, CHILD, PARENT};

    #[test]
    fn ended_processes_are_shown_once_none_runs() {
        let processes = |snapshot: &Snapshot| -> HashSet<u32> {
            let sites = snapshot.sites.iter();
            let live = sites.filter(|site| site.totals.live_bytes > 0);
            live.map(|site| site.key.process.0).collect()
        };
        let mut snapshot = fixture::snapshot();
        let tgids = snapshot.processes.iter().map(|process| process.row.tgid);
        assert_eq!(tgids.collect::<Vec<_>>(), [PARENT, CHILD]);
        assert_eq!(processes(&snapshot), [1, 2].into());
        empty_ended(&mut snapshot);
        assert_eq!(processes(&snapshot), [1].into());

        let mut snapshot = fixture::snapshot();
        let parent = &mut snapshot.processes[0].row;
        parent.ended_ns = Some(parent.started_ns + 1);
        empty_ended(&mut snapshot);
        assert_eq!(processes(&snapshot), [1, 2].into());
    }
}
