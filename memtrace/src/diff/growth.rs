//! Growth rates of sites, and their uncertainty.

use crate::analysis::statistics::{theil_sen, trend_after};

/// Fixed, so that the same recordings give the same intervals.
const SEED: u64 = 0;

/// Growth of live memory: bytes per unit (a second, or the unit that was requested).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Growth {
    pub rate: f64,
    /// 95 % interval of `rate`; `None`: too few intervals were recorded.
    pub interval: Option<(f64, f64)>,
}

impl Growth {
    /// Nothing there, and that is certain.
    pub(crate) const NONE: Growth = Growth {
        rate: 0.0,
        interval: Some((0.0, 0.0)),
    };

    /// Theil–Sen slope of `y` over `x` without the first `skip` points, with the interval of a
    /// moving-block bootstrap.
    pub(super) fn of(x: &[f64], y: &[f64], skip: usize) -> Growth {
        // A constant series has no noise to draw from.
        let after = y.get(skip..).unwrap_or_default();
        if after.len() > 1 && after.iter().all(|value| *value == after[0]) {
            return Growth::NONE;
        }
        match trend_after(skip, x, y, SEED) {
            Ok(trend) => Growth {
                rate: trend.slope,
                interval: Some(trend.interval)
                    .filter(|(low, high)| low.is_finite() && high.is_finite()),
            },
            Err(_) => Growth {
                rate: theil_sen(&x[skip.min(x.len())..], &y[skip.min(y.len())..])
                    .map_or(0.0, |(slope, _)| slope),
                interval: None,
            },
        }
    }

    /// That of a series `scale` times as large.
    pub(super) fn times(self, scale: f64) -> Growth {
        Growth {
            rate: self.rate * scale,
            interval: self.interval.map(|(low, high)| (low * scale, high * scale)),
        }
    }

    /// `self − baseline`. The interval's ends are as far from the difference as the root of the summed
    /// squares of how far those of both are from theirs (the method of variance estimates recovery:
    /// Zou and Donner, "Construction of confidence limits about effect measures", Statistics in
    /// Medicine 27, 2008).
    pub(super) fn minus(self, baseline: Growth) -> Growth {
        let rate = self.rate - baseline.rate;
        let interval = self.interval.zip(baseline.interval).map(|(new, old)| {
            let below = (self.rate - new.0).hypot(old.1 - baseline.rate);
            let above = (new.1 - self.rate).hypot(baseline.rate - old.0);
            (rate - below, rate + above)
        });
        Growth { rate, interval }
    }

    /// Several runs as one, to be compared with `rate`: the nearest rate, because what one of them has is no difference,
    /// and an interval that covers all of theirs, because differences between runs of one machine are not differences
    /// between machines.
    pub(super) fn pooled(runs: &[Growth], rate: f64) -> Growth {
        let rates = runs.iter().map(|growth| growth.rate);
        let nearest = rates.min_by(|a, b| (a - rate).abs().total_cmp(&(b - rate).abs()));
        let ends: Option<Vec<(f64, f64)>> = runs.iter().map(|growth| growth.interval).collect();
        let around = |ends: Vec<(f64, f64)>| {
            let low = ends.iter().map(|end| end.0).reduce(f64::min)?;
            Some((low, ends.iter().map(|end| end.1).reduce(f64::max)?))
        };
        Growth {
            rate: nearest.unwrap_or(0.0),
            interval: ends.and_then(around),
        }
    }

    /// The interval leaves 0 out.
    pub(crate) fn is_sure(&self) -> bool {
        self.interval
            .is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(rate: f64, low: f64, high: f64) -> Growth {
        Growth {
            rate,
            interval: Some((low, high)),
        }
    }

    #[test]
    fn a_line_has_its_slope_and_a_constant_none() {
        let x: Vec<f64> = (0..50).map(f64::from).collect();
        let line: Vec<f64> = x.iter().map(|x| 1000.0 + 7.0 * x).collect();
        let found = Growth::of(&x, &line, 10);
        assert!((found.rate - 7.0).abs() < 1e-9, "{found:?}");
        assert!(found.is_sure());
        assert_eq!(Growth::of(&x, &[5.0; 50], 10), Growth::NONE);
    }

    #[test]
    fn few_points_have_a_rate_and_no_interval() {
        let found = Growth::of(&[0.0, 1.0, 2.0], &[0.0, 3.0, 6.0], 1);
        assert_eq!((found.rate, found.interval), (3.0, None));
        assert_eq!(Growth::of(&[0.0], &[3.0], 0).interval, None);
        assert_eq!(Growth::of(&[], &[], 5).rate, 0.0);
        assert!(!found.is_sure());
    }

    #[test]
    fn differences_change_their_sign_with_their_sides() {
        let (a, b) = (growth(10.0, 7.0, 14.0), growth(2.0, -2.0, 5.0));
        let forth = a.minus(b);
        assert_eq!(forth, growth(8.0, 8.0 - 18f64.sqrt(), 8.0 + 32f64.sqrt()));
        let back = b.minus(a);
        assert_eq!(back, growth(-8.0, -8.0 - 32f64.sqrt(), -8.0 + 18f64.sqrt()));
        assert_eq!(a.minus(a).rate, 0.0);
    }

    #[test]
    fn pooled_runs_include_their_differences() {
        let runs = [
            growth(1.0, 0.0, 2.0),
            growth(9.0, 8.0, 10.0),
            growth(2.0, 1.0, 3.0),
        ];
        assert_eq!(Growth::pooled(&runs, 3.0), growth(2.0, 0.0, 10.0));
        assert_eq!(Growth::pooled(&runs, 20.0), growth(9.0, 0.0, 10.0));
        let unknown = Growth {
            rate: 1.0,
            interval: None,
        };
        assert_eq!(Growth::pooled(&[runs[0], unknown], 1.0).interval, None);
    }
}
