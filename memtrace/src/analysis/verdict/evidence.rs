//! Numbers as evidence says them.

use super::super::statistics::Trend;
use crate::units::size;

/// A signed size, such as `+1.5 MiB`.
pub(super) fn signed(bytes: f64) -> String {
    let sign = if bytes < 0.0 { '-' } else { '+' };
    format!("{sign}{}", size(bytes.abs() as u64))
}

/// A size; what is below 0 counts as 0.
pub(super) fn bytes(bytes: f64) -> String {
    size(bytes.max(0.0) as u64)
}

/// How much it grew, in what time: `+1.5 MiB in 17.4 s`.
pub(super) fn grown(trend: &Trend) -> String {
    let (growth, seconds) = trend.measured();
    format!("{} in {seconds:.1} s", signed(growth))
}

/// A rate with its interval: `+1.5 MiB/s (95 %: +1.2 to +1.8 MiB/s)`.
pub(super) fn rate(trend: &Trend) -> String {
    format!(
        "{}/s (95 %: {} to {}/s)",
        signed(trend.slope),
        signed(trend.interval.0),
        signed(trend.interval.1)
    )
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
