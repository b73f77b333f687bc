//! The false discovery rate: Benjamini and Hochberg, "Controlling the false
//! discovery rate", Journal of the Royal Statistical Society B 57 (1995).

/// Adjusts p-values of tests made together: rejecting all that are at most `q` afterwards keeps the
/// expected share of false ones among them at `q`. In the order of the input; values stay within 0
/// and 1.
pub(crate) fn benjamini_hochberg(p_values: &[f64]) -> Vec<f64> {
    let n = p_values.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| p_values[*b].total_cmp(&p_values[*a]));
    let mut adjusted = vec![1.0; n];
    let mut least = 1.0f64;
    for (larger, index) in order.into_iter().enumerate() {
        let rank = (n - larger) as f64;
        least = least.min(p_values[index] * n as f64 / rank);
        adjusted[index] = least.clamp(0.0, 1.0);
    }
    adjusted
}
