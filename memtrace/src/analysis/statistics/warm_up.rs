//! Finds the end of a program's start-up and the beginning of its steady state.

/// The share of a series that is left out if no change shows, and the least left out: every program
/// starts by loading data.
pub(crate) const WARM_UP: f64 = 0.2;

/// The share up to which a change counts as the end of the start. A change later than half way
/// is behaviour, not start.
const LATEST: f64 = 0.5;

/// Least improvement of the fit for a break to count: a difference of 10 in the Bayesian
/// information criterion is "very strong" evidence (Kass and Raftery, "Bayes factors", Journal of
/// the American Statistical Association 90, 1995).
const EVIDENCE: f64 = 10.0;

/// The number of points at the beginning of `y` (at equal distances in time) that belong to the
/// start-up: up to the point where two straight lines fit best, if they fit much better than one
/// and the point comes within the first half, and in any case a fifth.
pub(crate) fn warm_up(y: &[f64]) -> usize {
    let n = y.len();
    let least = (n as f64 * WARM_UP).ceil() as usize;
    let latest = (n as f64 * LATEST) as usize;
    let sums = Sums::of(y);
    let whole = sums.squares(0, n);
    let two = |cut: usize| sums.squares(0, cut) + sums.squares(cut, n);
    let best = (3..n.saturating_sub(3)).min_by(|a, b| two(*a).total_cmp(&two(*b)));
    let Some(cut) = best else {
        return least;
    };
    // The second line adds two parameters, and its starting point a third.
    let points = n as f64;
    let gain = points * (whole.max(f64::MIN_POSITIVE) / two(cut).max(f64::MIN_POSITIVE)).ln();
    let believed = gain - 3.0 * points.ln() > EVIDENCE;
    match believed && cut <= latest {
        true => cut.max(least),
        false => least,
    }
}

/// Running sums from which the squared distances to the best line over any range follow.
struct Sums {
    y: Vec<f64>,
    xy: Vec<f64>,
    yy: Vec<f64>,
}

impl Sums {
    fn of(values: &[f64]) -> Sums {
        // Around the mean, so that large levels do not cost precision.
        let mean = super::mean(values).unwrap_or(0.0);
        let mut sums = Sums {
            y: vec![0.0],
            xy: vec![0.0],
            yy: vec![0.0],
        };
        let (mut sy, mut sxy, mut syy) = (0.0, 0.0, 0.0);
        for (x, value) in values.iter().enumerate() {
            let y = value - mean;
            sy += y;
            sxy += x as f64 * y;
            syy += y * y;
            sums.y.push(sy);
            sums.xy.push(sxy);
            sums.yy.push(syy);
        }
        sums
    }

    /// Sum of squared distances of the points `from..to` to their least-squares line.
    fn squares(&self, from: usize, to: usize) -> f64 {
        let n = (to - from) as f64;
        let y = self.y[to] - self.y[from];
        let first = from as f64;
        // x counts from `from`.
        let xy = self.xy[to] - self.xy[from] - first * y;
        let yy = self.yy[to] - self.yy[from];
        let x_mean = (n - 1.0) / 2.0;
        let x_squares = n * (n * n - 1.0) / 12.0;
        let covariance = xy - x_mean * y;
        let residual = yy - y * y / n;
        if x_squares > 0.0 {
            (residual - covariance * covariance / x_squares).max(0.0)
        } else {
            residual.max(0.0)
        }
    }
}
