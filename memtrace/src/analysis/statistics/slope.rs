//! The Theil–Sen slope: Sen, "Estimates of the regression coefficient based on
//! Kendall's tau", Journal of the American Statistical Association 63 (1968).

use super::median_of;

/// The median of the slopes between all pairs of points with different `x`, and the median of `y −
/// slope·x`; `None` if no two points differ in `x`. Points beyond the shorter of both slices are
/// ignored. Time and memory grow with the square of the number of points.
pub(crate) fn theil_sen(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    let slope = slope(x, y, &mut Vec::new())?;
    let mut rests: Vec<f64> = x.iter().zip(y).map(|(x, y)| y - slope * x).collect();
    Some((slope, median_of(&mut rests)?))
}

/// The first value of [`theil_sen`]; `slopes` is memory for it.
pub(super) fn slope(x: &[f64], y: &[f64], slopes: &mut Vec<f64>) -> Option<f64> {
    slopes.clear();
    let (mut x, mut y) = (x, y);
    while let ([x1, later_x @ ..], [y1, later_y @ ..]) = (x, y) {
        for (x2, y2) in later_x.iter().zip(later_y) {
            if x1 != x2 {
                slopes.push((y2 - y1) / (x2 - x1));
            }
        }
        (x, y) = (later_x, later_y);
    }
    median_of(slopes)
}
