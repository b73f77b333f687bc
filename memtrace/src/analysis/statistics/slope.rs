//! The Theil–Sen slope: Sen, "Estimates of the regression coefficient based on
//! Kendall's tau", Journal of the American Statistical Association 63 (1968).

use super::median;

/// The median of the slopes between all pairs of points with different `x`, and the median of `y −
/// slope·x`; `None` if no two points differ in `x`. Points beyond the shorter of both slices are
/// ignored. Time and memory grow with the square of the number of points.
pub(crate) fn theil_sen(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    let points: Vec<(f64, f64)> = x.iter().copied().zip(y.iter().copied()).collect();
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (i, (x1, y1)) in points.iter().enumerate() {
        for (x2, y2) in &points[i + 1..] {
            if x1 != x2 {
                slopes.push((y2 - y1) / (x2 - x1));
            }
        }
    }
    let slope = median(&slopes)?;
    let rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    Some((slope, median(&rests)?))
}
