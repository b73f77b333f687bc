//! The course of a number of objects: whether it grows steadily.

use std::ops::Range;

use crate::{holders::Counted, recording::Objects};

/// Least counts of a type for an answer.
const LEAST_COUNTS: usize = 6;

/// Least growth that counts, objects.
const LEAST_GROWTH: u64 = 100;

/// The part of the time that is the start, in which a program makes what it needs.
const START: u64 = 5;

/// In each third of the time, it grows by at least this share of the mean: a cache that fills grows more and more slowly,
/// and one that is full no longer.
const LEAST_OF_MEAN: f64 = 0.5;

/// It falls at no time by more than this share of its growth: what comes and goes does.
const MOST_FALL: f64 = 0.1;

/// A count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point(Objects);

impl Point {
    /// No object was counted if there are very few.
    pub(super) fn of(time_ns: u64, counted: Option<&Counted>) -> Self {
        Self(Objects {
            time_ns,
            count: counted.map_or(0, |of| of.count),
            bytes: counted.map_or(0, |of| of.bytes),
        })
    }

    pub(super) fn objects(self) -> Objects {
        self.0
    }

    fn rate_since(self, earlier: Point) -> f64 {
        let seconds = self.0.time_ns.saturating_sub(earlier.0.time_ns) as f64 / 1e9;
        (self.0.count as f64 - earlier.0.count as f64) / seconds.max(f64::MIN_POSITIVE)
    }
}

/// The counts, which are in order, from the one after the start up to the last if their number grows steadily between these.
pub(super) fn growing(counts: &[Point]) -> Option<Range<usize>> {
    let (begin, end) = (counts.first()?.0.time_ns, counts.last()?.0.time_ns);
    let start = begin + end.saturating_sub(begin) / START;
    let from = counts.partition_point(|it| it.0.time_ns < start);
    let after = &counts[from..];
    if after.len() < LEAST_COUNTS {
        return None;
    }
    let last = after.len() - 1;
    let grown = after[last].0.count.checked_sub(after[0].0.count)?;
    let rate = after[last].rate_since(after[0]);
    let places = [0, last / 3, last * 2 / 3, last];
    let mut thirds = places
        .windows(2)
        .map(|part| after[part[1]].rate_since(after[part[0]]));
    let mut most = 0;
    let falls = after.iter().map(|it| {
        most = most.max(it.0.count);
        most - it.0.count
    });
    let fall = falls.max().unwrap_or(0);
    (grown >= LEAST_GROWTH
        && thirds.all(|of| of >= LEAST_OF_MEAN * rate)
        && fall as f64 <= MOST_FALL * grown as f64)
        .then_some(from..counts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a second apart.
    fn grows(count: impl Fn(u64) -> u64) -> bool {
        let point = |second: u64| {
            Point(Objects {
                time_ns: second * 1_000_000_000,
                count: count(second),
                bytes: 0,
            })
        };
        let counts: Vec<Point> = (1..=15).map(point).collect();
        growing(&counts).is_some()
    }

    #[test]
    fn steady_growth_is_found_after_any_start() {
        assert!(grows(|second| 110 * second));
        assert!(grows(|second| 50_000 + 11 * second));
        assert!(grows(
            |second| 5000 + 110 * second - if second % 2 == 0 { 40 } else { 0 }
        ));
        let after_start = |second: u64| {
            if second <= 3 {
                9000 * second
            } else {
                27_000 + 50 * second
            }
        };
        assert!(grows(after_start));
        let counts: Vec<Point> = (1..=4)
            .map(|it| {
                Point(Objects {
                    time_ns: it,
                    count: it * 1000,
                    bytes: 0,
                })
            })
            .collect();
        assert_eq!(growing(&counts), None, "too few counts");
    }

    #[test]
    fn caches_churn_and_the_start_do_not_grow() {
        assert!(!grows(|_| 100_000));
        assert!(!grows(|second| 1000 + second), "too little");
        assert!(
            !grows(|second| (1000 * second).min(9000)),
            "a cache that is full"
        );
        assert!(
            !grows(|second| 20_000 - 20_000 / (second + 1)),
            "a cache that fills"
        );
        assert!(
            !grows(|second| second % 4 * 3000 + 50 * second),
            "collected again and again"
        );
        assert!(!grows(|second| 1000 * second.min(4)), "the start");
        assert!(
            !grows(|second| if second == 12 { 9000 } else { 0 } + second * 5),
            "a peak"
        );
    }
}
