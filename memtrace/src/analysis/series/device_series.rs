//! A process's memory on each device over time.

use std::collections::BTreeSet;

use super::course::{Course, Grid};
use crate::{
    analysis::window::Window,
    event::Device,
    ledger::DeviceTotals,
    recording::{Origin, ProcessRow},
};

/// A process's memory on a device over time, bytes.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSeries {
    pub index: Device,
    /// In its caching allocator's blocks, and other requests to the runtime or the driver.
    pub outstanding: Vec<f64>,
    /// The same, but with the caching allocator's reserve in place of its blocks.
    pub held: Vec<f64>,
    /// Process total on the device, if `nvidia-smi` reported it.
    pub total: Option<Vec<f64>>,
    /// All that is known of it, as of the end of each step.
    pub totals: Vec<DeviceTotals>,
}

impl DeviceSeries {
    /// Its course without the start.
    pub(crate) fn window(&self) -> Window {
        Window::after_start(&self.held, 0)
    }

    /// Whether the caching allocator had reported its total at every point of `window`.
    pub(crate) fn is_held_known(&self, window: Window) -> bool {
        let totals = self.totals.get(window.from..window.to);
        let totals = totals.unwrap_or_default().iter();
        totals
            .filter_map(|totals| totals.cache)
            .all(|cache| cache.reserved.is_some())
    }
}

/// The course of each device that the process held something of, or that `nvidia-smi` named.
pub(super) fn read(
    grid: &Grid,
    row: &ProcessRow,
    history: &[(u64, Device, DeviceTotals)],
    usage: &[(u64, u8, u64)],
) -> Vec<DeviceSeries> {
    let held = history.iter().map(|(_, index, _)| *index);
    let used = usage.iter().map(|(_, index, _)| Some(*index));
    let indices: BTreeSet<Device> = held.chain(used).collect();
    let of_each = indices.into_iter().map(|index| {
        let own = history.iter().filter(|(_, other, _)| *other == index);
        let changes = own.map(|(time, _, totals)| (*time, *totals));
        let own = usage.iter().filter(|(_, other, _)| Some(*other) == index);
        let total = own.map(|(time, _, bytes)| (*time, *bytes));
        let attached = row.origin == Origin::Attached;
        device(
            grid,
            attached,
            index,
            &grid.placed(changes),
            &grid.placed(total),
        )
    });
    of_each.collect()
}

fn device(
    grid: &Grid,
    attached: bool,
    index: Device,
    changes: &[(usize, DeviceTotals)],
    usage: &[(usize, u64)],
) -> DeviceSeries {
    let (mut outstanding, mut held) = (Course::default(), Course::default());
    let mut all_held = Vec::with_capacity(changes.len());
    let mut reported = None;
    for (nth, (at, totals)) in changes.iter().enumerate() {
        let mut totals = *totals;
        // The total of a caching allocator is unknown after it released memory older than the
        // recording, until its next report: keep the last value.
        reported = totals.cache.and_then(|cache| cache.reserved.or(reported));
        if let Some(cache) = &mut totals.cache {
            cache.reserved = reported.map(|reported| reported.max(cache.allocated));
        }
        // Its first block also reports what it held before tracing.
        let had = attached && totals.cache.is_some() && nth == 0;
        let from = if had { grid.first } else { *at };
        held.set(grid, from, totals.known() as f64);
        all_held.push((from, totals.known() as f64));
        outstanding.set(grid, from, totals.outstanding() as f64);
    }
    let mut total = Course::default();
    let requested = |at: usize| {
        let before = all_held.partition_point(|(from, _)| *from < at);
        before.checked_sub(1).map_or(0.0, |last| all_held[last].1)
    };
    // The first reading may come seconds after the first request: until then, the process is assumed
    // to have had as much besides its requests as at that reading. A reading below the requests is too old.
    let whole = usage
        .iter()
        .position(|(at, bytes)| *bytes as f64 >= requested(*at));
    if let Some((first, bytes)) = whole.map(|whole| usage[whole]) {
        let beside = bytes as f64 - requested(first);
        if attached {
            total.set(grid, grid.first, beside);
        }
        for (at, held) in all_held.iter().filter(|(at, _)| *at < first) {
            total.set(grid, *at, held + beside);
        }
    }
    for (at, bytes) in &usage[whole.unwrap_or(0)..] {
        total.set(grid, *at, *bytes as f64);
    }
    DeviceSeries {
        index,
        outstanding: outstanding.finish(grid),
        held: held.finish(grid),
        total: (!usage.is_empty()).then(|| total.finish(grid)),
        totals: grid.last_of_each(changes),
    }
}
