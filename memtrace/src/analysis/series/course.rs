//! Values over the life of a process, on the grid of its recording's intervals.

use super::site::SITE_FLOOR;
use crate::{
    analysis::statistics::{MIN_POINTS, median},
    recording::{IntervalId, Meta, ProcessRow},
};

/// Most points of a series: more would only make the statistics slower.
pub(crate) const MAX_POINTS: usize = 240;

/// In nanoseconds.
pub(super) const SECOND: f64 = 1e9;

/// With an automatic interval, a process that lived shorter than this shows only its start, however
/// many points that has: seconds.
const LEAST_LIFE: f64 = 10.0;

/// How long a process has to live to be judged, seconds.
pub(crate) fn least_life(meta: &Meta) -> f64 {
    match meta.interval_is_auto {
        true => LEAST_LIFE,
        false => 0.0,
    }
}

/// The intervals of a process's life, some taken together so that they are not too many.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) first: usize,
    pub(super) last: usize,
    /// Intervals of one point.
    pub(super) per_point: usize,
    /// Every interval and its end, rising.
    pub(super) intervals: &'a [(IntervalId, u64)],
}

impl<'a> Grid<'a> {
    pub(super) fn new(row: &ProcessRow, intervals: &'a [(IntervalId, u64)]) -> Grid<'a> {
        let first = intervals.partition_point(|(_, time)| *time <= row.started_ns);
        // At the interval of its end a process has given back its memory.
        let end = match row.ended_ns {
            Some(ended) => intervals.partition_point(|(_, time)| *time < ended),
            None => intervals.len(),
        };
        let count = end.saturating_sub(first);
        Grid {
            first,
            last: first + count,
            per_point: count.div_ceil(MAX_POINTS).max(1),
            intervals,
        }
    }

    /// Index of an interval.
    pub(super) fn at(&self, interval: IntervalId) -> Option<usize> {
        let found = self
            .intervals
            .binary_search_by_key(&interval, |(id, _)| *id);
        found.ok()
    }

    /// Index of the interval that ended then.
    pub(super) fn at_time(&self, time_ns: u64) -> Option<usize> {
        let found = self
            .intervals
            .binary_search_by_key(&time_ns, |(_, end)| *end);
        found.ok()
    }

    /// Values by their times (CLOCK_MONOTONIC ns), placed at intervals; times that match no
    /// interval are dropped.
    pub(super) fn placed<T>(&self, at: impl Iterator<Item = (u64, T)>) -> Vec<(usize, T)> {
        at.filter_map(|(time, value)| Some((self.at_time(time)?, value)))
            .collect()
    }

    /// The last of `changes` (interval, value; in order of time) up to the end of each point.
    pub(super) fn last_of_each<T: Copy + Default>(&self, changes: &[(usize, T)]) -> Vec<T> {
        (1..=self.points())
            .map(|point| {
                let end = self.first + point * self.per_point;
                let before = changes.partition_point(|(at, _)| *at < end);
                before
                    .checked_sub(1)
                    .map_or_else(T::default, |last| changes[last].1)
            })
            .collect()
    }

    /// It is too short for a trend, or shorter than `least` seconds.
    pub(super) fn is_short(&self, least: f64) -> bool {
        let end = |at: usize| self.intervals.get(at).map_or(0, |(_, end)| *end);
        let lived = end(self.last.saturating_sub(1)).saturating_sub(end(self.first));
        self.points() < MIN_POINTS || (lived as f64) < least * SECOND
    }

    /// Whole points only: a last one of fewer intervals is dropped.
    pub(super) fn points(&self) -> usize {
        (self.last - self.first) / self.per_point
    }
}

/// A part of what a process holds, or gained, that is freed as it ends.
const ENDING: f64 = 0.5;

/// Where the holdings of an ended process end: the first point below half of the recent level. In the last quarter.
pub(super) fn end_of(held: &[f64]) -> usize {
    let lately = held.len() - held.len() / 4;
    let level = median(&held[lately..]).unwrap_or(0.0);
    // For memory too small to be judged by site, the course of the process is not cut.
    match level < SITE_FLOOR as f64 {
        true => held.len(),
        false => end_below(held, ENDING * level),
    }
}

/// Where half of what it gained since the first quarter is freed at once, and memory only falls from there on. In the last
/// quarter.
pub(super) fn end_of_gain(held: &[f64]) -> usize {
    /// Least gain, as a part of the level.
    const GAINED: f64 = 0.1;
    /// Memory still falls if it rises by less than this part of the gain.
    const RISEN: f64 = 0.02;
    let quarter = held.len() / 4;
    let lately = held.len() - quarter;
    let early = median(&held[quarter / 2..quarter + quarter / 2]).unwrap_or(0.0);
    let peak = held[lately..].iter().copied().fold(early, f64::max);
    let gained = peak - early;
    let end = end_below(held, early + ENDING * gained);
    let falls = |pair: &[f64]| pair[1] <= pair[0] + RISEN * gained;
    // Within two points.
    let soon = held.get(end + 1).or(held.last()).copied().unwrap_or(0.0);
    let is_freed = peak - soon >= ENDING * gained && held[end..].windows(2).all(falls);
    match gained >= (GAINED * early).max(SITE_FLOOR as f64) && is_freed {
        true => end,
        false => held.len(),
    }
}

fn end_below(held: &[f64], least: f64) -> usize {
    let lately = held.len() - held.len() / 4;
    let last = held[lately..].iter().rposition(|value| *value >= least);
    let end = last.map_or(held.len(), |last| lately + last + 1);
    // It may have begun to end within the last point that is left.
    let began = end >= 2 && held[end - 1] < held[end - 2];
    end - usize::from(began)
}

/// The end of the time in which an ended process used a device: its last peak in the last eighth, if
/// memory only falls from there on, by enough to matter. Shutting down a driver can take a second or
/// more, and most of the memory is held until then.
pub(super) fn end_of_use(held: &[f64]) -> usize {
    const FALLEN: f64 = 0.01;
    let lately = held.len() - held.len() / 8;
    let peak = held[lately..].iter().copied().fold(0.0, f64::max);
    let last = held.iter().rposition(|value| *value >= peak);
    match last {
        Some(at) if at >= lately => {
            let only_falls = held[at..].is_sorted_by(|before, after| before >= after);
            let fallen = peak - held[held.len() - 1];
            let least = (FALLEN * peak).max(SITE_FLOOR as f64);
            if only_falls && fallen >= least {
                at + 1
            } else {
                held.len()
            }
        }
        _ => held.len(),
    }
}

/// A series in the making: the value since the last change, and the means so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// Value, and the interval from which on it holds.
    current: f64,
    since: usize,
    sums: Vec<f64>,
}

impl Course {
    /// The value is `value` from interval `at` on. Changes come in order of time.
    pub(super) fn set(&mut self, grid: &Grid, at: usize, value: f64) {
        self.fill(grid, at);
        self.current = value;
    }

    pub(super) fn add(&mut self, grid: &Grid, at: usize, difference: f64) {
        self.fill(grid, at);
        self.current += difference;
    }

    fn fill(&mut self, grid: &Grid, until: usize) {
        self.sums.resize(grid.points(), 0.0);
        let from = self.since.max(grid.first);
        for interval in from..until.min(grid.last) {
            if let Some(sum) = self.sums.get_mut((interval - grid.first) / grid.per_point) {
                *sum += self.current;
            }
        }
        self.since = self.since.max(until);
    }

    pub(super) fn finish(mut self, grid: &Grid) -> Vec<f64> {
        self.fill(grid, grid.last);
        for sum in &mut self.sums {
            *sum /= grid.per_point as f64;
        }
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 160 points of 50 MB, but for the last ones.
    fn course(last: &[f64]) -> Vec<f64> {
        let mut values = vec![50e6; 160 - last.len()];
        values.extend(last);
        values
    }

    #[test]
    fn what_was_gained_ends_where_half_of_it_is_freed() {
        let rising = |last: &[f64]| {
            let rise = (0..160 - last.len()).map(|point| 50e6 + 1e5 * point as f64);
            rise.chain(last.iter().copied()).collect::<Vec<f64>>()
        };
        assert_eq!(end_of_gain(&rising(&[])), 160);
        assert_eq!(end_of_gain(&rising(&[51e6, 51e6, 51e6])), 157);
        for (why, last) in [
            ("it comes back", [51e6, 51e6, 66e6]),
            ("it rises again", [51e6, 55e6, 51e6]),
        ] {
            assert_eq!(end_of_gain(&rising(&last)), 160, "{why}");
        }
        assert_eq!(end_of_gain(&course(&[49e6, 49e6])), 160, "no gain");
        assert_eq!(end_of_gain(&[]), 0);
    }

    #[test]
    fn use_of_a_device_ends_where_its_memory_only_falls() {
        let flat = [51e6; 10];
        let falls = [50e6, 45e6, 45e6, 40e6];
        let left = course(&[flat.as_slice(), &falls].concat());
        assert_eq!(end_of_use(&left), 156, "the flat part is use");
        for (why, last) in [
            ("it grows again", vec![51e6, 45e6, 45e6, 45e6, 46e6]),
            ("a small part was freed", vec![51e6, 51e6, 50.9e6, 50.9e6]),
            ("it only grows", vec![51e6, 52e6, 53e6]),
            ("nothing changes", vec![]),
        ] {
            assert_eq!(end_of_use(&course(&last)), 160, "{why}");
        }
        assert_eq!(end_of_use(&[]), 0);
        assert_eq!(end_of_use(&[5e6, 1e6]), 2);
    }
}
