//! Values over the life of a process, on the grid of its recording's intervals.

use super::MAX_POINTS;
use crate::recording::{IntervalId, ProcessRow};

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
        // At the interval of its end a process has given back what it had.
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

    /// Which one an interval is.
    pub(super) fn at(&self, interval: IntervalId) -> Option<usize> {
        let found = self
            .intervals
            .binary_search_by_key(&interval, |(id, _)| *id);
        found.ok()
    }

    /// Which interval ended then.
    pub(super) fn at_time(&self, time_ns: u64) -> Option<usize> {
        let found = self
            .intervals
            .binary_search_by_key(&time_ns, |(_, end)| *end);
        found.ok()
    }

    /// What was so at a time (CLOCK_MONOTONIC ns), by its interval; without times that are no interval's.
    pub(super) fn placed<T>(&self, at: impl Iterator<Item = (u64, T)>) -> Vec<(usize, T)> {
        at.filter_map(|(time, value)| Some((self.at_time(time)?, value)))
            .collect()
    }

    /// The last of `changes` (interval, value; in the order of time) up to the end of each point.
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

    /// Whole points only: a last one of fewer intervals is left out.
    pub(super) fn points(&self) -> usize {
        (self.last - self.first) / self.per_point
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
    /// The value is `value` from interval `at` on. Changes come in the order of time.
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
