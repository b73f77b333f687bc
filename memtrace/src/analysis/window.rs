//! A part of a series, and the change within it.

use super::statistics::{MIN_POINTS, median, warm_up};

/// The share of a window (one over this) whose median represents its beginning, and its end.
pub(super) const EDGE: usize = 12;

/// A part of a series: indices of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub from: usize,
    pub to: usize,
}

impl Window {
    /// All of a course but the start of its program; of a short one as much as can be judged.
    pub(crate) fn after_start(values: &[f64]) -> Window {
        let most = values.len().saturating_sub(MIN_POINTS);
        Window {
            from: warm_up(values).min(most),
            to: values.len(),
        }
    }

    /// Its length; more than 0.
    pub(crate) fn seconds(self, times: &[f64]) -> f64 {
        let points = times.get(self.from..self.to).unwrap_or_default();
        let ends = points.last().zip(points.first());
        let seconds = ends.map_or(0.0, |(last, first)| last - first);
        seconds.max(f64::MIN_POSITIVE)
    }

    /// Change of `values` from the window's beginning to its end.
    pub(crate) fn change(self, values: &[f64]) -> f64 {
        let points = values
            .get(self.from..self.to.min(values.len()))
            .unwrap_or_default();
        let edge = (points.len() / EDGE).max(1).min(points.len());
        let first = median(&points[..edge]);
        let last = median(&points[points.len() - edge..]);
        last.zip(first).map_or(0.0, |(last, first)| last - first)
    }
}
