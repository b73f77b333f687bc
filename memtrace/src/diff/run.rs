//! One recording as a comparison needs it: its sites over time.

use std::{collections::HashMap, sync::Arc};

use super::{Per, keys::shown};
use crate::{
    analysis::statistics::warm_up,
    event::Layer,
    ledger::ProcessId,
    recording::{Meta, Origin, ProcessRow, SitePoint, SiteSeries, Snapshot, StackFrames},
    render::source_line,
    symbolize::FrameKind,
};
use memtrace_common::loss::Effect;

/// Points of a series that are looked at: more cost memory and say no more of a slope.
pub const POINTS: usize = 240;

/// One recording.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it is called: the file.
    pub name: String,
    pub meta: Meta,
    /// Ends of the intervals that count, seconds since the start.
    pub seconds: Vec<f64>,
    pub sites: Vec<Site>,
    /// What is known of the machine and the processes: field and value.
    pub facts: Vec<(String, String)>,
    /// Names of the reasons by which totals are only bounds.
    pub losses: Vec<&'static str>,
}

/// An allocation site of one process.
#[derive(Clone, Debug)]
pub struct Site {
    pub layer: Layer,
    /// A mapping made by an allocator: what lies in it is counted in another layer.
    pub by_allocator: bool,
    pub stack: Arc<StackFrames>,
    /// Outstanding when reports look: at the end, or at the peak of what ended by itself.
    pub live_bytes: u64,
    /// One for each of [`Run::seconds`].
    pub points: Vec<SitePoint>,
}

impl Run {
    /// From a recording's snapshot at [`crate::recording::At::Default`] and its series.
    pub fn new(
        name: String,
        snapshot: &Snapshot,
        series: &SiteSeries,
        facts: Vec<(String, String)>,
    ) -> Run {
        let rows = snapshot.processes.iter().map(|process| &process.row);
        let end = end(rows.clone());
        let times = series.times_ns.iter().copied();
        let times: Vec<u64> = times.take_while(|time| *time <= end).collect();
        let ends: HashMap<ProcessId, u64> = rows
            .filter_map(|row| Some((row.id, row.ended_ns?)))
            .collect();
        let sites = snapshot.sites.iter().map(|site| {
            let mut points = series.sites.get(&site.key).cloned().unwrap_or_default();
            points.resize(times.len(), SitePoint::default());
            // What a process held, it holds no more.
            if let Some(ended) = ends.get(&site.key.process) {
                for (point, _) in points.iter_mut().zip(&times).filter(|(_, t)| *t > ended) {
                    point.live_bytes = 0;
                }
            }
            Site {
                layer: site.key.layer,
                by_allocator: site.key.by_allocator,
                stack: Arc::clone(&site.stack),
                live_bytes: site.totals.live_bytes,
                points,
            }
        });
        let lost = snapshot.losses.iter().filter(|(reason, count)| {
            let bounds = [
                Effect::AllocationsLost,
                Effect::ReleasesLost,
                Effect::Untraced,
            ];
            *count > 0 && bounds.contains(&reason.effect())
        });
        let started = snapshot.meta.started_ns;
        let seconds = |time: &u64| time.saturating_sub(started) as f64 / 1e9;
        Run {
            name,
            meta: snapshot.meta.clone(),
            seconds: times.iter().map(seconds).collect(),
            sites: sites.collect(),
            facts,
            losses: lost.map(|(reason, _)| reason.name()).collect(),
        }
    }

    /// What growth is counted by, at each point.
    pub(super) fn units(&self, per: &Per) -> Vec<f64> {
        match per {
            Per::Seconds => self.seconds.clone(),
            Per::Count => self.allocations(|_| true),
            Per::AllocOf(place) => self.allocations(|site| is_at(site, place)),
        }
    }

    /// Allocations so far at the sites that are `wanted`, mappings by allocators left out.
    pub(super) fn allocations(&self, wanted: impl Fn(&Site) -> bool) -> Vec<f64> {
        let sites = self.sites.iter().filter(|site| !site.by_allocator);
        let sites: Vec<&Site> = sites.filter(|site| wanted(site)).collect();
        let at = |index: usize| sites.iter().map(move |site| site.points[index].alloc_count);
        (0..self.seconds.len())
            .map(|index| at(index).sum::<u64>() as f64)
            .collect()
    }

    /// The number of points at the beginning that belong to the start of the program.
    pub(super) fn start(&self) -> usize {
        let own = (0..self.sites.len()).filter(|index| !self.sites[*index].by_allocator);
        warm_up(&self.live(own))
    }

    /// What these sites held, at each point.
    pub(super) fn live(&self, sites: impl IntoIterator<Item = usize>) -> Vec<f64> {
        let mut sums = vec![0u64; self.seconds.len()];
        for site in sites {
            for (sum, point) in sums.iter_mut().zip(&self.sites[site].points) {
                *sum += point.live_bytes;
            }
        }
        sums.into_iter().map(|sum| sum as f64).collect()
    }
}

/// When the last of the processes that were asked for ended; children may live on, or be short.
fn end<'a>(rows: impl Iterator<Item = &'a ProcessRow>) -> u64 {
    rows.filter(|row| row.origin != Origin::Child)
        .map(|row| row.ended_ns.unwrap_or(u64::MAX))
        .max()
        .unwrap_or(u64::MAX)
}

/// Whether the innermost frame that reports show is at `place`: the name of its function, with or
/// without parameters, or `file:line`; the innermost Python frame counts as well.
fn is_at(site: &Site, place: &str) -> bool {
    let shown = shown(&site.stack.frames);
    let python = shown.iter().find(|frame| frame.kind == FrameKind::Python);
    shown.first().into_iter().chain(python).any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        let base = function.split('(').next().unwrap_or(function);
        let line = source_line(frame).unwrap_or_default();
        let at_line = line
            .strip_suffix(place)
            .is_some_and(|folder| folder.is_empty() || folder.ends_with('/'));
        place == function || place == base || at_line
    })
}
