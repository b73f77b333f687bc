//! When intervals come and live blocks are scanned. The distance of intervals is as requested, or short at first and
//! longer the longer the recording, at a bounded share of the time.

use std::{fmt, str::FromStr, time::Duration};

use crate::units;

/// The first distance of automatic intervals.
const FIRST: Duration = Duration::from_millis(100);

/// When there are this many intervals, pairs of them are merged, and the next ones come half as
/// often. Half as many are still twice as many as are ever used (`analysis::series::MAX_POINTS`).
const MOST: usize = 1000;

/// After a costly interval there is a rest of this many times its cost: writing takes 5 % of the
/// time, however much there is to write.
const REST: u32 = 19;

/// For its cost alone no interval is delayed to more than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// A commit waits for the disk. With the time to write it, at most a second of a recording is lost when memtrace is
/// killed.
const COMMIT: Duration = Duration::from_millis(500);

/// Longer intervals are written meanwhile, at this distance.
const UNFINISHED: Duration = Duration::from_millis(800);

/// Live blocks are scanned one by one (their ages, and the memory they hold open) after this time,
/// after half as long again and so on, and at least this often, so that a program that ends, or a
/// killed recording, has that too; unless there are too many blocks to scan beside the work.
const FIRST_SCAN: Duration = Duration::from_secs(2);
const SCAN_EVERY: Duration = Duration::from_secs(60);
const SCANNED_AT_MOST: u64 = 1_000_000;

/// The distance of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    Auto,
    Every(Duration),
}

impl Spacing {
    /// The distance of the first ones.
    pub(crate) fn first(self) -> Duration {
        match self {
            Self::Auto => FIRST,
            Self::Every(step) => step,
        }
    }

    /// Figures that cost more than an interval should are read at this distance at least.
    pub(super) fn least_rest(self) -> Duration {
        match self {
            Self::Auto => Duration::from_secs(1),
            Self::Every(_) => Duration::ZERO,
        }
    }
}

impl FromStr for Spacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => units::parse_duration(text)
                .map(Self::Every)
                .map_err(|error| format!("{error}, or `auto`")),
        }
    }
}

impl fmt::Display for Spacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Every(step) => write!(f, "{step:?}"),
        }
    }
}

/// Extra work of an interval besides adding the changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tick {
    /// See [`crate::recording::Interval`].
    pub(super) commit_later: bool,
    pub(super) unfinished: bool,
    pub(super) ends_round: bool,
    pub(super) halve: bool,
    /// Scan all live blocks.
    pub(super) scan: bool,
    /// Wait for figures that are read in the background.
    pub(super) last: bool,
}

/// The schedule of one recording.
#[derive(Debug)]
pub(super) struct Schedule {
    spacing: Spacing,
    step: Duration,
    /// Intervals in the file.
    kept: usize,
    /// When something was committed last, since the start.
    committed: Option<Duration>,
    /// When the last interval that is over ended.
    ended: Option<Duration>,
    /// When the last one was written, over or not.
    written: Duration,
    /// When the next scan is due.
    scan_at: Duration,
}

impl Schedule {
    pub(super) fn new(spacing: Spacing) -> Self {
        Self {
            spacing,
            step: spacing.first(),
            kept: 0,
            committed: None,
            ended: None,
            written: Duration::ZERO,
            scan_at: FIRST_SCAN,
        }
    }

    /// An interval comes at `now` (since the start). `blocks`: the number of live ones.
    pub(super) fn tick(&mut self, now: Duration, blocks: u64) -> Tick {
        let scan = now >= self.scan_at && blocks <= SCANNED_AT_MOST;
        if scan {
            self.scan_at = now + (now / 2).min(SCAN_EVERY);
        }
        Tick {
            scan,
            ..self.interval(now)
        }
    }

    /// A round ends at `now` (since the start), and an interval with it.
    pub(super) fn round(&mut self, now: Duration) -> Tick {
        self.ended = None;
        Tick {
            ends_round: true,
            ..self.interval(now)
        }
    }

    fn interval(&mut self, now: Duration) -> Tick {
        self.written = now;
        // The next one may come a little early.
        let is_due = |last, distance| now + FIRST / 2 >= last + distance;
        if self.ended.is_some_and(|last| !is_due(last, self.step)) {
            return Tick {
                unfinished: true,
                ..Tick::default()
            };
        }
        self.ended = Some(now);
        let Spacing::Auto = self.spacing else {
            return Tick::default();
        };
        self.kept += 1;
        let halve = self.kept == MOST;
        if halve {
            self.kept /= 2;
            self.step *= 2;
        }
        // The next one would be too late.
        let commit = self
            .committed
            .is_none_or(|last| now + self.step > last + COMMIT);
        if commit {
            self.committed = Some(now);
        }
        Tick {
            commit_later: !commit,
            halve,
            ..Tick::default()
        }
    }

    /// From an interval that took `cost` to the next one, or to the next time that it is written.
    pub(super) fn until_next(&self, cost: Duration) -> Duration {
        let rest = cost * (REST + 1);
        match self.spacing {
            _ if self.step > PATIENCE => {
                let end = self.ended.unwrap_or_default() + self.step;
                rest.max(UNFINISHED).min(end.saturating_sub(self.written))
            }
            Spacing::Auto => rest.min(PATIENCE).max(self.step),
            Spacing::Every(step) => step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ticks without cost until `end`: the intervals in the file, and the commits.
    fn run(spacing: Spacing, end: Duration) -> (usize, usize) {
        let mut schedule = Schedule::new(spacing);
        let (mut now, mut kept, mut commits) = (Duration::ZERO, 0, 0);
        let mut committed = now;
        while now <= end {
            let tick = schedule.tick(now, 0);
            kept += usize::from(!tick.unfinished);
            if !tick.commit_later {
                assert!(now - committed < 900 * MS, "{committed:?} {now:?}");
                commits += 1;
                committed = now;
            }
            if tick.halve {
                kept /= 2;
            }
            now += schedule.until_next(Duration::ZERO);
        }
        (kept, commits)
    }

    #[test]
    fn any_recording_has_enough_intervals_and_not_too_many() {
        assert_eq!(run(Spacing::Auto, 15_000 * MS).0, 151);
        for seconds in [20, 99, 100, 101, 3600, 86_400, 1_000_000] {
            let (kept, commits) = run(Spacing::Auto, seconds * 1000 * MS);
            assert!((200..=MOST).contains(&kept), "{kept} in {seconds} s");
            assert!(
                commits <= 2 * seconds as usize + 1,
                "{commits} in {seconds} s"
            );
        }
        let chosen = Spacing::Every(50 * MS);
        assert_eq!(run(chosen, 100_000 * MS), (2001, 2001));
        // Long ones are written meanwhile.
        let (kept, commits) = run(Spacing::Every(60_000 * MS), 600_000 * MS);
        assert_eq!(kept, 11);
        assert!(commits > 600, "{commits}");
    }

    #[test]
    fn costly_work_is_done_a_little_less_often() {
        let schedule = Schedule::new(Spacing::Auto);
        for (cost, distance) in [(0, 100), (5, 100), (10, 200), (40, 800), (400, 1000)] {
            assert_eq!(schedule.until_next(cost * MS), distance * MS, "{cost} ms");
        }
        let chosen = Schedule::new(Spacing::Every(50 * MS));
        assert_eq!(chosen.until_next(40 * MS), 50 * MS);
    }

    #[test]
    fn scans_come_more_rarely_and_not_among_too_many_blocks() {
        let mut schedule = Schedule::new(Spacing::Every(1000 * MS));
        let mut scans = |blocks| {
            let seconds = 0..300;
            let is_scan = |second: &u64| schedule.tick(*second as u32 * 1000 * MS, blocks).scan;
            seconds.filter(is_scan).collect::<Vec<u64>>()
        };
        assert!(scans(SCANNED_AT_MOST + 1).is_empty());
        assert_eq!(
            scans(SCANNED_AT_MOST),
            [2, 3, 5, 8, 12, 18, 27, 41, 62, 93, 140, 200, 260]
        );
    }

    #[test]
    fn a_spacing_is_auto_or_a_time() {
        assert_eq!("auto".parse(), Ok(Spacing::Auto));
        assert_eq!("250ms".parse(), Ok(Spacing::Every(250 * MS)));
        let error = "often".parse::<Spacing>().unwrap_err();
        assert!(error.contains("`often` is not a duration"), "{error}");
        assert_eq!(Spacing::Auto.to_string(), "auto");
    }
}
