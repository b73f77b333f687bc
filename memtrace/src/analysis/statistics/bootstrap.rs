//! Resampling that keeps neighbours together: the moving-block bootstrap
//! (Künsch, "The jackknife and the bootstrap for general stationary
//! observations", Annals of Statistics 17, 1989).

use fastrand::Rng;

/// Draws as many values as there are, in runs of `length` neighbours that begin anywhere.
pub(super) fn resample(values: &[f64], length: usize, rng: &mut Rng, out: &mut Vec<f64>) {
    out.clear();
    let n = values.len();
    let length = length.clamp(1, n.max(1));
    while out.len() < n {
        let start = rng.usize(..=n - length);
        let wanted = length.min(n - out.len());
        out.extend_from_slice(&values[start..start + wanted]);
    }
}

/// Length of the runs for `values`: from the autocorrelation at lag 1 as of an AR(1) process
/// (Carlstein, "The use of subseries values for estimating the variance of a general statistic",
/// Annals of Statistics 14, 1986), at most a quarter of the series.
pub(super) fn run_length(values: &[f64]) -> usize {
    let n = values.len();
    let mean = super::mean(values).unwrap_or(0.0);
    let rests: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let variance: f64 = rests.iter().map(|rest| rest * rest).sum();
    let neighbours: f64 = rests.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let phi = if variance > 0.0 {
        (neighbours / variance).clamp(0.0, 0.99)
    } else {
        0.0
    };
    let length = (2.0 * phi / (1.0 - phi * phi)).powf(2.0 / 3.0) * (n as f64).cbrt();
    (length.ceil() as usize).clamp(1, (n / 4).max(1))
}
