//! The Mann–Kendall test for a monotonic trend with the correction of its
//! variance for autocorrelation: Hamed and Rao, "A modified Mann-Kendall trend
//! test for autocorrelated data", Journal of Hydrology 204 (1998).

use super::theil_sen;

/// Two-sided 5 % point of the normal distribution: autocorrelations beyond it count.
const SIGNIFICANT: f64 = 1.959_963_984_540_054;

/// Outcome of [`mann_kendall`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MannKendall {
    /// Pairs that rise less pairs that fall.
    pub s: f64,
    /// Variance of `s` for independent points, ties accounted for.
    pub variance: f64,
    /// The factor by which autocorrelation multiplies the variance. Below 1 if neighbours
    /// alternate; it may even be negative.
    pub correction: f64,
    /// Two-sided, with a correction of at least 1: it only ever makes the test more careful.
    pub p_value: f64,
}

/// Tests whether `y`, at equal distances in time, rises or falls throughout. Fewer than three
/// points, or only equal ones, have the p-value 1.
pub(crate) fn mann_kendall(y: &[f64]) -> MannKendall {
    let n = y.len() as f64;
    let s: f64 = y
        .iter()
        .enumerate()
        .flat_map(|(i, a)| y[i + 1..].iter().map(move |b| sign(b - a)))
        .sum();
    let ties: f64 = tied(y).map(|t| t * (t - 1.0) * (2.0 * t + 5.0)).sum();
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0;
    let correction = correction(y);
    let corrected = variance * correction.max(1.0);
    let p_value = if y.len() < 3 || corrected <= 0.0 || s == 0.0 {
        1.0
    } else {
        let z = (s.abs() - 1.0) / corrected.sqrt();
        libm::erfc(z / std::f64::consts::SQRT_2)
    };
    MannKendall {
        s,
        variance,
        correction,
        p_value,
    }
}

/// Hamed and Rao's n/n*: from the significant autocorrelations of the ranks of the residuals.
fn correction(y: &[f64]) -> f64 {
    let n = y.len();
    let x: Vec<f64> = (1..=n).map(|i| i as f64).collect();
    let Some((slope, _)) = theil_sen(&x, y) else {
        return 1.0;
    };
    let rests: Vec<f64> = x.iter().zip(y).map(|(x, y)| y - slope * x).collect();
    let correlations = autocorrelations(&ranks(&rests));
    let bound = SIGNIFICANT / (n as f64).sqrt();
    let mut sum = 0.0;
    for (lag, correlation) in correlations.into_iter().enumerate().skip(1) {
        if correlation.abs() > bound {
            let left = n as f64 - lag as f64;
            sum += left * (left - 1.0) * (left - 2.0) * correlation;
        }
    }
    let n = n as f64;
    let all = n * (n - 1.0) * (n - 2.0);
    if all > 0.0 {
        1.0 + 2.0 / all * sum
    } else {
        1.0
    }
}

fn sign(difference: f64) -> f64 {
    if difference > 0.0 {
        1.0
    } else if difference < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// Number of equal values, for each distinct value.
fn tied(y: &[f64]) -> impl Iterator<Item = f64> {
    let mut sorted = y.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let groups: Vec<f64> = sorted
        .chunk_by(|a, b| a == b)
        .map(|group| group.len() as f64)
        .collect();
    groups.into_iter()
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let shared = before as f64 + (group.len() as f64 + 1.0) / 2.0;
        for index in group {
            ranks[*index] = shared;
        }
        before += group.len();
    }
    ranks
}

/// For every lag from 0 on; all 0 (except the first) if the values are equal.
fn autocorrelations(values: &[f64]) -> Vec<f64> {
    let mean = super::mean(values).unwrap_or(0.0);
    let rests: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let variance: f64 = rests.iter().map(|rest| rest * rest).sum();
    (0..values.len())
        .map(|lag| {
            let products = rests.iter().zip(&rests[lag..]);
            let covariance: f64 = products.map(|(a, b)| a * b).sum();
            match (lag, variance > 0.0) {
                (0, _) => 1.0,
                (_, true) => covariance / variance,
                (_, false) => 0.0,
            }
        })
        .collect()
}
