//! Selects the sites of a report, and sums up those left out. Pure.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use super::{Error, Metric};
use crate::{
    event::Layer,
    frames::{
        Fold, Frame,
        mappings::{self, Use},
    },
    hash::FastMap,
    ledger::{ProcessId, SiteKey, Totals},
    recording::{At, ProcessSnapshot, SiteSnapshot, Snapshot, Stack},
};

/// Selection of sites. The default shows every site.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub layer: Option<Layer>,
    /// A process's tgid.
    pub pid: Option<u32>,
    /// Only blocks at least this old. Live figures are those of such blocks, see
    /// [`Selection::ages`].
    pub older: Option<Duration>,
    /// Bounds of a site's live bytes, both inclusive.
    pub min_bytes: Option<u64>,
    pub max_bytes: Option<u64>,
    /// In text and graphs: also the frames by which an allocator was reached.
    pub show_wrappers: bool,
    /// In text and graphs: also the Python interpreter's own frames.
    pub show_interpreter: bool,
    /// In text: frames of libraries one by one, and C++ names with their arguments.
    pub full: bool,
    /// In text: headlines stand out.
    pub colour: bool,
    /// In collapsed stacks and graphs: the thread's name below the process.
    pub by_thread: bool,
    /// In a flame graph, the leaf is at the root.
    pub inverted: bool,
}

impl Filter {
    /// The moment to show: ages are known at the end only.
    pub(crate) fn moment(&self, at: At) -> At {
        match (at, self.older) {
            (At::Default, Some(_)) => At::End,
            _ => at,
        }
    }

    /// Picks the sites of `snapshot` and orders them by `sort`, largest first; those that are
    /// [`indirect`](Shown::is_indirect) come after the others, but before those that have nothing.
    ///
    /// # Errors
    ///
    /// When ages are requested but unknown.
    pub(crate) fn select<'a>(
        &self,
        snapshot: &'a Snapshot,
        sort: Metric,
    ) -> Result<Selection<'a>, Error> {
        let processes: FastMap<ProcessId, &ProcessSnapshot> = snapshot
            .processes
            .iter()
            .map(|process| (process.row.id, process))
            .collect();
        let mut selection = Selection {
            ages: self.ages(snapshot)?,
            ..Selection::default()
        };
        for site in &snapshot.sites {
            let process = processes.get(&site.key.process).copied();
            let live_bytes = site.totals.live_bytes;
            let whole = Shown {
                site,
                process,
                stack: snapshot.stacks.get(site.key.stack),
                live_bytes,
                live_count: site.totals.live_count,
            };
            let site = match self.older {
                Some(older) => older_part(whole, older),
                None => whole,
            };
            if self.accepts(&site) {
                selection.sites.push(site);
            } else {
                selection.hide(site.site.key.layer, live_bytes);
            }
        }
        // Most of millions of sites are empty: those stay in order of their keys.
        let nothing = |shown: &Shown| sort.of(&shown.totals()) == 0;
        selection.sites.sort_by_key(nothing);
        let some = selection.sites.partition_point(|shown| !nothing(shown));
        selection.sites[..some].sort_by_cached_key(|shown| {
            let values = Reverse((sort.of(&shown.totals()), shown.live_bytes));
            (shown.is_indirect(), values, shown.site.key)
        });
        Ok(selection)
    }

    /// The frames of a stack to show, leaf first.
    pub(crate) fn frames<'a>(&self, stack: Stack<'a>) -> Vec<&'a Frame> {
        stack.shown(Fold {
            wrappers: !self.show_wrappers,
            interpreter: !self.show_interpreter,
        })
    }

    /// Number of frames at the end of a stack that are left out as wrappers.
    pub(crate) fn folded_wrappers(&self, stack: Stack) -> usize {
        match self.show_wrappers {
            true => 0,
            false => stack.wrappers(),
        }
    }

    /// Whether the filter leaves this layer of this process in.
    pub(crate) fn covers(&self, process: Option<&ProcessSnapshot>, layer: Layer) -> bool {
        self.layer.is_none_or(|wanted| wanted == layer)
            && self
                .pid
                .is_none_or(|pid| process.is_some_and(|process| process.row.tgid == pid))
    }

    fn accepts(&self, site: &Shown) -> bool {
        let live = site.live_bytes;
        self.covers(site.process, site.site.key.layer)
            && self.min_bytes.is_none_or(|min| live >= min)
            && self.max_bytes.is_none_or(|max| live <= max)
            && (self.older.is_none() || site.live_count > 0)
    }

    fn ages(&self, snapshot: &Snapshot) -> Result<Option<Ages>, Error> {
        let Some(older) = self.older else {
            return Ok(None);
        };
        let scanned = snapshot
            .sites
            .iter()
            .filter_map(|site| site.births.as_ref());
        let outstanding = snapshot.sites.iter().any(|site| site.totals.live_count > 0);
        match scanned.map(|births| births.time_ns).max() {
            None if outstanding => Err(Error::NoAges),
            time_ns => Ok(Some(Ages {
                older,
                time_ns: time_ns.unwrap_or(snapshot.meta.started_ns),
            })),
        }
    }
}

/// The part of a site that is old enough. A row of births counts only if all of it is.
fn older_part(mut shown: Shown, older: Duration) -> Shown {
    let site = shown.site;
    let (mut bytes, mut count) = (0, 0);
    if let Some(at) = &site.births {
        let ended = shown.process.and_then(|process| process.row.ended_ns);
        let now = ended.map_or(at.time_ns, |ended| ended.min(at.time_ns));
        let older = u64::try_from(older.as_nanos()).unwrap_or(u64::MAX);
        let born_by = now.checked_sub(older);
        for (edge, row_bytes, row_count) in &at.births.rows {
            if born_by.is_some_and(|born_by| *edge <= born_by) {
                bytes += row_bytes;
                count += row_count;
            }
        }
    }
    // Blocks released after the scan are no longer live.
    shown.live_bytes = bytes.min(site.totals.live_bytes);
    shown.live_count = count.min(site.totals.live_count);
    shown
}

/// Basis of the ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ages {
    pub older: Duration,
    /// When the blocks were scanned, CLOCK_MONOTONIC ns.
    pub time_ns: u64,
}

/// A site as it is to be shown.
#[derive(Clone, Debug)]
pub(crate) struct Shown<'a> {
    pub site: &'a SiteSnapshot,
    /// `None` only in a damaged recording.
    pub process: Option<&'a ProcessSnapshot>,
    pub stack: Stack<'a>,
    /// Live figures after [`Filter::older`].
    pub live_bytes: u64,
    pub live_count: u64,
}

impl Shown<'_> {
    /// The site's totals, with the live figures that are shown.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            live_bytes: self.live_bytes,
            live_count: self.live_count,
            ..self.site.totals
        }
    }

    /// Whether the program did not request it itself: an allocator's memory contains the blocks of
    /// other sites, and the dynamic linker maps the libraries that the program loads.
    pub(crate) fn is_indirect(&self) -> bool {
        is_indirect(&self.site.key, self.stack)
    }

    /// The process's tgid, 0 if it is unknown, and for a group.
    pub(crate) fn tgid(&self) -> u32 {
        self.process.map_or(0, |process| process.row.tgid)
    }
}

/// The sites to show, and how much is not shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection<'a> {
    /// In the requested order.
    pub sites: Vec<Shown<'a>>,
    pub hidden_sites: u64,
    /// Live bytes of the hidden sites, by layer: layers overlap.
    pub hidden_bytes: BTreeMap<Layer, u64>,
    /// Set if [`Filter::older`] is.
    pub ages: Option<Ages>,
}

impl Selection<'_> {
    /// Counts a site of this layer that is left out.
    pub(crate) fn hide(&mut self, layer: Layer, live_bytes: u64) {
        self.hidden_sites += 1;
        *self.hidden_bytes.entry(layer).or_default() += live_bytes;
    }
}

/// See [`Shown::is_indirect`].
pub(crate) fn is_indirect(key: &SiteKey, stack: Stack) -> bool {
    key.by_allocator
        || key.layer == Layer::Vm
            && matches!(
                mappings::of(key.by_allocator, stack.frames()),
                Use::Allocator | Use::Driver | Use::Library
            )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture;

    fn live(filter: &Filter) -> Vec<(u64, u64)> {
        let snapshot = fixture::snapshot();
        let selection = filter.select(&snapshot, Metric::LiveBytes).unwrap();
        let totals = selection.sites.iter().map(|site| site.totals());
        totals.map(|t| (t.live_bytes, t.live_count)).collect()
    }

    #[test]
    fn sites_are_ordered_and_hidden_ones_counted() {
        let snapshot = fixture::snapshot();
        let filter = Filter {
            min_bytes: Some(4096),
            ..Filter::default()
        };
        let selection = filter.select(&snapshot, Metric::LiveBytes).unwrap();
        let shown: Vec<_> = selection.sites.iter().map(|s| s.live_bytes).collect();
        assert_eq!(shown, [1 << 20, 8192]);
        assert_eq!(selection.hidden_sites, 2);
        let hidden: u64 = selection.hidden_bytes.values().sum();
        assert_eq!(hidden, 100);
        // The mapping is an allocator's.
        let all = live(&Filter::default());
        assert_eq!(all, [(1 << 20, 4), (100, 10), (8192, 1), (0, 0)]);
        let by_count = Filter::default()
            .select(&snapshot, Metric::LiveCount)
            .unwrap();
        assert_eq!(by_count.sites[0].live_count, 10);
    }

    #[test]
    fn layer_pid_and_size_narrow_the_choice() {
        let layer = |layer| Filter {
            layer: Some(layer),
            ..Filter::default()
        };
        assert_eq!(live(&layer(Layer::Vm)), [(8192, 1)]);
        let pid = Filter {
            pid: Some(fixture::CHILD),
            ..Filter::default()
        };
        assert_eq!(live(&pid), [(100, 10)]);
        let max = Filter {
            max_bytes: Some(100),
            ..Filter::default()
        };
        assert_eq!(live(&max), [(100, 10), (0, 0)]);
    }

    #[test]
    fn older_counts_rows_that_are_old_as_a_whole() {
        let older = |seconds| Filter {
            older: Some(Duration::from_secs(seconds)),
            ..Filter::default()
        };
        // Births up to 1 s, 4 s and 9 s; scanned at 10 s.
        assert_eq!(live(&older(0)), [(1 << 20, 4)]);
        assert_eq!(live(&older(1)), [(1 << 20, 4)]);
        assert_eq!(live(&older(2)), [(768 << 10, 3)]);
        assert_eq!(live(&older(9)), [(512 << 10, 2)]);
        assert_eq!(live(&older(10)), []);
    }

    #[test]
    fn ages_that_are_not_known_are_an_error() {
        let mut snapshot = fixture::snapshot();
        for site in &mut snapshot.sites {
            site.births = None;
        }
        let filter = Filter {
            older: Some(Duration::ZERO),
            ..Filter::default()
        };
        let error = filter.select(&snapshot, Metric::LiveBytes).unwrap_err();
        assert!(matches!(error, Error::NoAges));
        assert_eq!(filter.moment(At::Default), At::End);
        assert_eq!(filter.moment(At::Peak), At::Peak);
    }
}
