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
    /// All of a course but the start of its program, which lasts at least until the point `started` if that is in the first
    /// half; of a short one as much as can be judged.
    pub(crate) fn after_start(values: &[f64], started: usize) -> Window {
        let most = values.len().saturating_sub(MIN_POINTS);
        let started = match started <= values.len() / 2 {
            true => started,
            false => 0,
        };
        Window {
            from: warm_up(values).max(started).min(most),
            to: values.len(),
        }
    }

    /// The values that represent the window's beginning and its end. Of the times, they are those of all other values.
    pub(crate) fn ends(self, values: &[f64]) -> Option<(f64, f64)> {
        let points = values
            .get(self.from..self.to.min(values.len()))
            .unwrap_or_default();
        let edge = (points.len() / EDGE).max(1).min(points.len());
        let first = median(&points[..edge]);
        first.zip(median(&points[points.len() - edge..]))
    }

    /// Change of `values` from the window's beginning to its end.
    pub(crate) fn change(self, values: &[f64]) -> f64 {
        self.ends(values).map_or(0.0, |(first, last)| last - first)
    }

    /// The lowest value of the window's last third less that of its first third.
    pub(crate) fn rise_of_lows(self, values: &[f64]) -> f64 {
        let points = values
            .get(self.from..self.to.min(values.len()))
            .unwrap_or_default();
        let third = points.len() / 3;
        let lowest = |points: &[f64]| points.iter().copied().reduce(f64::min);
        let ends = lowest(&points[..third]).zip(lowest(&points[points.len() - third..]));
        ends.map_or(0.0, |(first, last)| last - first)
    }

    /// Whether a sum of work grew more than twice as much in the first third of the window as in the last, or the other way
    /// round.
    pub(crate) fn has_burst(self, sum: &[f64]) -> bool {
        let points = sum
            .get(self.from..self.to.min(sum.len()))
            .unwrap_or_default();
        let third = points.len() / 3;
        let done = |points: &[f64]| match points {
            [first, .., last] => last - first,
            _ => 0.0,
        };
        let (early, late) = (
            done(&points[..third]),
            done(&points[points.len() - third..]),
        );
        early > 2.0 * late || late > 2.0 * early
    }

    /// Mean change of `values` in a second.
    pub(crate) fn rate(self, values: &[f64], times: &[f64]) -> f64 {
        self.change(values) / self.change(times).max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rise_has_its_own_rate() {
        let times: Vec<f64> = (0..120).map(|point| f64::from(point) / 2.0).collect();
        let values: Vec<f64> = times.iter().map(|time| 7.0 + 90.0 * time).collect();
        for (from, to) in [(0, 120), (30, 120), (50, 73)] {
            let window = Window { from, to };
            let rate = window.rate(&values, &times);
            assert!((rate - 90.0).abs() < 1e-9, "{rate} from {from} to {to}");
        }
    }
}
