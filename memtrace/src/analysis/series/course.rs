//! Values over the life of a process, on the grid of its recording's intervals.

use std::collections::HashMap;

use super::MAX_POINTS;
use crate::recording::{IntervalId, ProcessRow};

/// The intervals of a process's life, some taken together so that they are not too many.
pub(super) struct Grid {
    pub(super) first: usize,
    pub(super) last: usize,
    /// Intervals of one point.
    pub(super) per_point: usize,
    pub(super) index: HashMap<IntervalId, usize>,
    pub(super) time_index: HashMap<u64, usize>,
}

impl Grid {
    pub(super) fn new(row: &ProcessRow, intervals: &[(IntervalId, u64)]) -> Grid {
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
            index: (0..).zip(intervals).map(|(i, (id, _))| (*id, i)).collect(),
            time_index: (0..).zip(intervals).map(|(i, (_, t))| (*t, i)).collect(),
        }
    }

    /// What was so at a time (CLOCK_MONOTONIC ns), by its interval; without times that are no interval's.
    pub(super) fn placed<T>(&self, at: impl Iterator<Item = (u64, T)>) -> Vec<(usize, T)> {
        at.filter_map(|(time, value)| Some((*self.time_index.get(&time)?, value)))
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
    fn points(&self) -> usize {
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
