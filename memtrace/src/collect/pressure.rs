//! When memory is about to run out: the kernel kills a process without notice, so whatever is to be read of it has to be
//! read before. Pure: levels in, the moments to search out.

use std::{collections::VecDeque, time::Duration};

use crate::host::cgroup::Level;

/// Searches for one limit.
const SEARCHES: u32 = 3;

/// A level this high is nearly full; percent of the limit.
const NEARLY: u64 = 95;

/// From here on a level is nearly full, too, if it rises so fast that it is full within [`SOON`]; percent.
const HALF: u64 = 50;

const SOON: Duration = Duration::from_secs(5);

/// How much a level must rise during the recording, in percent. Without a rise, it is always that high.
const RISE: u64 = 5;

/// The time over which the rate is measured, and the least of it.
const RECENT: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_millis(300);

/// The course of a level.
#[derive(Debug, Default)]
pub(super) struct Course {
    lowest: Option<u64>,
    /// Times and bytes, of the last [`RECENT`].
    recent: VecDeque<(Duration, u64)>,
    searches: u32,
    /// The room that was left at the last search.
    room: Option<u64>,
}

impl Course {
    /// Takes the level at a time; whether to search now. The room halves from one search to the next, so that each
    /// sees more of the growth, and a level that only wavers is not searched for again.
    pub(super) fn is_due(&mut self, time: Duration, level: Level) -> bool {
        let Level { used, limit } = level;
        let lowest = self.lowest.map_or(used, |lowest| lowest.min(used));
        self.lowest = Some(lowest);
        self.recent.push_back((time, used));
        while self
            .recent
            .front()
            .is_some_and(|(old, _)| time.saturating_sub(*old) > RECENT)
        {
            self.recent.pop_front();
        }
        let Some(&(since, before)) = self.recent.front() else {
            return false;
        };
        let elapsed = time.saturating_sub(since);
        if elapsed < LEAST || used <= before || used - lowest < percent(limit, RISE) {
            return false;
        }
        let rate = (used - before) as f64 / elapsed.as_secs_f64();
        let is_full_soon = level.room() as f64 <= rate * SOON.as_secs_f64();
        let is_nearly_full =
            used >= percent(limit, NEARLY) || used >= percent(limit, HALF) && is_full_soon;
        let has_halved = self.room.is_none_or(|room| level.room() <= room / 2);
        let is_due = is_nearly_full && has_halved && self.searches < SEARCHES;
        if is_due {
            self.searches += 1;
            self.room = Some(level.room());
        }
        is_due
    }
}

fn percent(of: u64, part: u64) -> u64 {
    of / 100 * part
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The levels, in percent of 1000 MiB, at which a search is due; one each 100 ms.
    fn due(levels: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut course = Course::default();
        let times = (0..).map(|tenth| Duration::from_millis(100 * tenth));
        let due = times.zip(levels).filter(|(time, percent)| {
            let level = Level {
                used: (percent * 10.0 * MIB as f64) as u64,
                limit: 1000 * MIB,
            };
            course.is_due(*time, level)
        });
        due.map(|(_, percent)| percent).collect()
    }

    /// From one level to another in this many steps.
    fn rise(from: f64, to: f64, steps: u32) -> impl Iterator<Item = f64> {
        (0..=steps).map(move |step| from + (to - from) * f64::from(step) / f64::from(steps))
    }

    #[test]
    fn a_slow_rise_is_searched_when_nearly_full() {
        // 0.1 % a second.
        assert_eq!(due(rise(80.0, 95.9, 1590)), [95.0]);
        let all = due(rise(80.0, 100.0, 2000));
        assert_eq!(all.len(), 3);
        assert!(all[1] >= 97.5 && all[2] >= 98.75, "{all:?}");
    }

    #[test]
    fn a_fast_rise_is_searched_seconds_before_the_end() {
        // 10 % a second: from 50 % on it is full in five.
        let all = due(rise(20.0, 100.0, 80));
        assert_eq!(all, [50.0, 75.0, 88.0]);
        // 5 % a second.
        assert_eq!(due(rise(20.0, 80.0, 120)), [75.0]);
    }

    #[test]
    fn memory_that_does_not_rise_is_not_searched() {
        assert_eq!(due(std::iter::repeat_n(99.0, 100)), [0.0; 0]);
        assert_eq!(due(rise(99.0, 60.0, 100)), [0.0; 0]);
        // It is always so high, and wavers.
        let wavering = (0..100).map(|step| if step % 2 == 0 { 96.0 } else { 99.0 });
        assert_eq!(due(wavering), [0.0; 0]);
        // A fast rise that ends early, and a slow one far from the limit.
        assert_eq!(due(rise(0.0, 45.0, 10)), [0.0; 0]);
        assert_eq!(due(rise(50.0, 90.0, 4000)), [0.0; 0]);
    }

    #[test]
    fn a_level_that_comes_back_is_not_searched_again() {
        let falls = rise(95.2, 70.0, 50);
        let rises = rise(70.0, 95.2, 2500);
        let all = due(rise(80.0, 95.2, 1520).chain(falls).chain(rises));
        assert_eq!(all.len(), 1, "{all:?}");
    }
}
