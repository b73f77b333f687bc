//! Statistics of series that grow, or do not. Everything is a pure function of
//! its arguments: resampling takes a seed.
//!
//! Points of one process are not independent of one another, so tests made for
//! independent points see growth where there is none. Here the effect is a
//! robust slope with a bootstrap interval that keeps neighbours together
//! ([`trend_after`]), over means of blocks long enough to be nearly independent; the
//! significance test ([`mann_kendall`]) only opens the gate.

mod bootstrap;
mod fdr;
mod mann_kendall;
mod slope;
mod trend;
mod warm_up;

pub(crate) use fdr::benjamini_hochberg;
pub(crate) use mann_kendall::mann_kendall;
pub(crate) use slope::theil_sen;
#[cfg(test)]
pub(crate) use trend::trend;
pub(crate) use trend::{MIN_POINTS, TooShort, Trend, trend_after};
pub(crate) use warm_up::{WARM_UP, warm_up};

/// The middle value, or the mean of the middle two; `None` without values. NaN counts as larger
/// than all numbers.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    median_of(&mut values.to_vec())
}

/// As [`median`], of values whose order is lost.
fn median_of(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let is_odd = values.len() % 2 == 1;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().max_by(|a, b| a.total_cmp(b));
    match lower.filter(|_| !is_odd) {
        Some(lower) => Some(f64::midpoint(*lower, *upper)),
        None => Some(*upper),
    }
}

/// The median distance from the median; `None` of no values. Not scaled to a standard deviation.
pub(crate) fn median_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&distances)
}

/// The arithmetic mean; `None` of no values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    match values.len() {
        0 => None,
        n => Some(values.iter().sum::<f64>() / n as f64),
    }
}

#[cfg(test)]
mod tests;
