//! How reliable the figures of a recording are.

use crate::{
    analysis::series::{self, Courses},
    recording::Overview,
};
use memtrace_common::loss::{Effect, Reason};

/// Reliability of the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quality {
    /// Share of records lost or dropped unintentionally.
    pub(super) lost: f64,
    /// Allocated bytes of sites without a stack, of all.
    pub(super) without_stack: f64,
    /// Frees of unknown blocks: most are from before the recording.
    pub(super) unknown_frees: f64,
    /// Processes of the recording.
    pub(super) processes: usize,
    /// Length of the recording, seconds.
    pub(super) length: f64,
    pub(super) interval: f64,
    /// How long a process has to live to be judged, seconds.
    pub(super) least_life: f64,
    /// Whether malloc was recorded.
    pub(super) heap: bool,
}

impl Quality {
    pub(super) fn of(overview: &Overview, courses: &Courses) -> Quality {
        let harmless = [Effect::Filtered, Effect::StackLost, Effect::NamesLost];
        let harmful = |effect| !harmless.contains(&effect);
        let lost: u64 = overview
            .losses
            .iter()
            .filter(|(reason, _)| harmful(reason.effect()))
            .map(|(_, count)| count)
            .sum();
        let unknown = overview.losses.iter();
        let unknown = unknown.filter(|(reason, _)| *reason == Reason::UnknownFree);
        let share = |part: u64, all: u64| match all {
            0 => 0.0,
            all => part as f64 / all as f64,
        };
        let start = overview.meta.started_ns;
        let end = overview.time_ns.unwrap_or(start);
        Quality {
            lost: share(lost, overview.emitted),
            without_stack: share(courses.without_stack, courses.allocated),
            unknown_frees: unknown.map(|(_, count)| *count as f64).sum(),
            processes: overview.processes.len(),
            length: end.saturating_sub(start) as f64 / 1e9,
            interval: overview.meta.interval_ns as f64 / 1e9,
            least_life: series::least_life(&overview.meta),
            heap: !overview.meta.without_heap,
        }
    }
}
