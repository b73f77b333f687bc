//! Shares of runs, with their uncertainty.

use std::{fmt, ops::AddAssign};

/// So many of so many.
#[derive(Clone, Copy, Default)]
pub(crate) struct Share {
    pub(crate) part: usize,
    pub(crate) of: usize,
}

impl Share {
    pub(crate) fn new(part: usize, of: usize) -> Share {
        Share { part, of }
    }

    /// The share of the items for which it is true.
    pub(crate) fn count(items: impl IntoIterator<Item = bool>) -> Share {
        let mut share = Share::default();
        for item in items {
            share += Share::new(item.into(), 1);
        }
        share
    }

    /// Whether at least this share is reached: of nothing, every share is.
    pub(crate) fn reaches(self, target: f64) -> bool {
        self.part as f64 >= target * self.of as f64
    }

    /// The 95 % interval of the share behind it, by Wilson's score: 0 to 1.
    pub(crate) fn interval(self) -> (f64, f64) {
        const Z: f64 = 1.96;
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let n = self.of as f64;
        let p = self.part as f64 / n;
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        (
            ((middle - half) / scale).max(0.0),
            ((middle + half) / scale).min(1.0),
        )
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Share) {
        self.part += other.part;
        self.of += other.of;
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of == 0 {
            return out.pad("–");
        }
        let (low, high) = self.interval();
        let percent = 100.0 * self.part as f64 / self.of as f64;
        let text = format!(
            "{} of {} ({percent:.0} %; {:.0}–{:.0})",
            self.part,
            self.of,
            100.0 * low,
            100.0 * high
        );
        out.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn intervals_are_those_of_wilson() {
        // From the published tables: 0 of 10, 5 of 10, 81 of 100.
        for (part, of, low, high) in [
            (0, 10, 0.0, 0.2775),
            (5, 10, 0.2366, 0.7634),
            (81, 100, 0.7222, 0.8749),
        ] {
            let (from, to) = Share::new(part, of).interval();
            assert!(
                (from - low).abs() < 5e-4 && (to - high).abs() < 5e-4,
                "{from} {to}"
            );
        }
        assert_eq!(Share::default().interval(), (0.0, 1.0));
    }
}
