//! Growth of resident memory, as the kernel counts it.

use crate::targets::running::Running;
use anyhow::{Context, Result};
use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

/// Time between two readings.
const STEP: Duration = Duration::from_millis(250);

/// Bytes per second that the processes of a program gain meanwhile: the slopes of the lines that fit their
/// resident memory best.
///
/// # Errors
/// The program ended.
pub(super) fn growth(program: &Running, seconds: f64) -> Result<f64> {
    let start = Instant::now();
    let mut readings: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    while start.elapsed().as_secs_f64() < seconds {
        for process in program.processes() {
            if let Some(bytes) = resident(process) {
                let time = start.elapsed().as_secs_f64();
                readings.entry(process).or_default().push((time, bytes));
            }
        }
        thread::sleep(STEP);
    }
    resident(program.id()).context("the untraced copy ended early")?;
    Ok(readings.values().filter_map(|points| slope(points)).sum())
}

/// Bytes.
fn resident(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // A process that has ended and is not waited for has none.
    (pages > 0.0).then_some(pages * page as f64)
}

/// By least squares. `None` for too few points to tell.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 8 {
        return None;
    }
    let n = points.len() as f64;
    let (sum_x, sum_y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), of| (x + of.0, y + of.1));
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let (mut xy, mut xx) = (0.0, 0.0);
    for (x, y) in points {
        xy += (x - mean_x) * (y - mean_y);
        xx += (x - mean_x) * (x - mean_x);
    }
    (xx > 0.0).then_some(xy / xx)
}

#[cfg(test)]
mod tests {
    use super::slope;

    #[test]
    fn the_slope_is_that_of_the_best_line() {
        let line: Vec<(f64, f64)> = (0..10)
            .map(|x| (f64::from(x), 7.0 + 3.0 * f64::from(x)))
            .collect();
        assert_eq!(slope(&line), Some(3.0));
        assert_eq!(slope(&line[..7]), None);
    }
}
