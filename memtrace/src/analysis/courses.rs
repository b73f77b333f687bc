//! Figures of many sites over time, and live bytes of the layers, on one grid of intervals: for
//! charts, not for verdicts. A site has a point where it changed; sites that are not wanted one by
//! one are summed by process and layer, so that nothing is missing.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use crate::{
    event::Layer,
    ledger::{ProcessId, SiteKey, Totals},
    recording::{Error, Recording, SiteFigures, Snapshot},
};

/// Most points of the grid.
const POINTS: usize = 240;

/// A process, a layer, and whether allocators made the mappings.
pub(crate) type LayerKey = (ProcessId, Layer, bool);

pub(crate) fn layer_key(key: &SiteKey) -> LayerKey {
    (key.process, key.layer, key.by_allocator)
}

/// Figures at one time: live bytes and blocks, and bytes and blocks allocated so far.
pub(crate) type Figures = [i64; 4];

/// Changes, in order of time: index of the time from which on they hold, and differences.
pub(crate) type Course = Vec<(usize, Figures)>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Courses {
    /// Ends of intervals, CLOCK_MONOTONIC ns, rising.
    pub(crate) times_ns: Vec<u64>,
    pub(crate) sites: HashMap<SiteKey, Course>,
    /// All other sites.
    pub(crate) rest: HashMap<LayerKey, Course>,
    /// Live bytes of all sites, at each time.
    pub(crate) layers: HashMap<LayerKey, Vec<u64>>,
}

impl Courses {
    /// Reads the courses of all sites of processes that are not folded; those of `wanted` are kept
    /// one by one.
    pub(crate) fn read(
        recording: &Recording,
        snapshot: &Snapshot,
        wanted: &HashSet<SiteKey>,
    ) -> Result<Courses, Error> {
        let intervals = recording.intervals()?;
        let per_point = intervals.len().div_ceil(POINTS).max(1);
        // The last interval is the end of the last point.
        let mut ends: Vec<_> = intervals.iter().rev().step_by(per_point).copied().collect();
        ends.reverse();
        let mut courses = Builder {
            courses: Courses {
                times_ns: ends.iter().map(|(_, time)| *time).collect(),
                ..Courses::default()
            },
            ..Builder::default()
        };
        let rows = snapshot.processes.iter().map(|process| &process.row);
        let single: HashSet<ProcessId> = rows
            .clone()
            .filter(|row| !row.is_group())
            .map(|row| row.id)
            .collect();
        let mut sites = Vec::new();
        recording.each_site(|number, site| {
            if single.contains(&site.key.process) {
                sites.push((number, site.key));
            }
        })?;
        recording.site_changes(&sites, |interval, SiteFigures { key, totals }| {
            let slot = ends.partition_point(|(end, _)| *end < interval);
            courses.set(slot, key, figures(&totals), wanted.contains(&key));
        })?;
        // A process that has ended holds nothing.
        for row in rows.filter(|row| !row.is_group()) {
            let gone = row
                .ended_ns
                .map(|end| ends.partition_point(|(_, time)| *time <= end));
            if let Some(gone) = gone {
                courses.end(row.id, gone, wanted);
            }
        }
        Ok(courses.finish())
    }
}

fn figures(totals: &Totals) -> Figures {
    let figures = [
        totals.live_bytes,
        totals.live_count,
        totals.alloc_bytes,
        totals.alloc_count,
    ];
    figures.map(|figure| i64::try_from(figure).unwrap_or(i64::MAX))
}

/// Adds changes to a course, at or after its last one.
pub(crate) fn add_to(course: &mut Course, slot: usize, change: Figures) {
    match course.last_mut() {
        Some((last, known)) if *last >= slot => {
            for (known, change) in known.iter_mut().zip(change) {
                // Past figures may be anything.
                *known = known.saturating_add(change);
            }
        }
        _ => course.push((slot, change)),
    }
}

/// The sum of courses.
pub(crate) fn sum<'a>(courses: impl Iterator<Item = &'a Course>) -> Course {
    let mut changes: Vec<_> = courses.flatten().copied().collect();
    changes.sort_by_key(|(slot, _)| *slot);
    let mut sum = Course::new();
    for (slot, change) in changes {
        add_to(&mut sum, slot, change);
    }
    sum
}

#[derive(Default)]
struct Builder {
    courses: Courses,
    current: HashMap<ProcessId, HashMap<SiteKey, Figures>>,
    layers: HashMap<LayerKey, Course>,
}

impl Builder {
    fn set(&mut self, slot: usize, key: SiteKey, figures: Figures, is_wanted: bool) {
        let known = self.current.entry(key.process).or_default();
        let known = known.entry(key).or_default();
        let change = std::array::from_fn(|index| figures[index] - known[index]);
        *known = figures;
        fn course<K: Eq + Hash>(courses: &mut HashMap<K, Course>, key: K) -> &mut Course {
            courses.entry(key).or_default()
        }
        add_to(course(&mut self.layers, layer_key(&key)), slot, change);
        match is_wanted {
            true => add_to(course(&mut self.courses.sites, key), slot, change),
            false => add_to(
                course(&mut self.courses.rest, layer_key(&key)),
                slot,
                change,
            ),
        }
    }

    /// All blocks of a process are gone.
    fn end(&mut self, process: ProcessId, slot: usize, wanted: &HashSet<SiteKey>) {
        if slot >= self.courses.times_ns.len() {
            return;
        }
        let current = self.current.get(&process).into_iter().flatten();
        let ended: Vec<_> = current
            .filter(|(_, figures)| figures[..2] != [0, 0])
            .map(|(key, figures)| (*key, *figures))
            .collect();
        for (key, [_, _, bytes, count]) in ended {
            self.set(slot, key, [0, 0, bytes, count], wanted.contains(&key));
        }
    }

    fn finish(mut self) -> Courses {
        let points = self.courses.times_ns.len();
        let layers = self.layers.into_iter().map(|(key, course)| {
            let mut changes = course.into_iter().peekable();
            let mut live = 0;
            let series = (0..points).map(|slot| {
                while let Some((_, change)) = changes.next_if(|(at, _)| *at <= slot) {
                    live = i64::saturating_add(live, change[0]);
                }
                u64::try_from(live).unwrap_or(0)
            });
            (key, series.collect())
        });
        self.courses.layers = layers.collect();
        self.courses
    }
}
