//! Recordings that begin late (`memtrace record --start-after`). Until then the program runs without a probe.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    str::FromStr,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::session::{Signals, pass_on};
use crate::{
    host::{Source, cgroup, system},
    process::{
        self,
        choose::{Choice, ChooseError, listed},
        job,
        launch::Launched,
        memory,
    },
    units,
};

/// How often the processes are looked at, and how often they are chosen anew.
const LOOK: Duration = Duration::from_millis(50);
const CHOOSE: Duration = Duration::from_secs(1);

/// Growth of resident memory: over so many steps of this length, with so many of them upwards, and by at least so many
/// bytes. A step or two down are garbage collection.
const STEP: Duration = Duration::from_secs(5);
const STEPS: usize = 6;
const UPWARDS: usize = 5;
const LEAST_GROWTH: u64 = 8 << 20;

/// What a recording waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartAfter {
    Time(Duration),
    /// SIGUSR1 to memtrace.
    Signal,
    /// The processes and their descendants have more resident memory than this, bytes.
    Resident(u64),
    /// They have more resident memory than these percent of what they may use.
    Share(u8),
    /// Their resident memory grows, see [`Growth`].
    Growing,
}

impl FromStr for StartAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "SIGUSR1" => return Ok(Self::Signal),
            "growing" => return Ok(Self::Growing),
            "rss" => {
                return Err("for the shell `>` names a file: quote it, as in `'rss>2G'`".to_owned());
            }
            _ => {}
        }
        if let Some(limit) = text.strip_prefix("rss>") {
            return match limit.strip_suffix('%') {
                Some(percent) => percent
                    .parse()
                    .ok()
                    .filter(|percent| (1..=100).contains(percent))
                    .map(Self::Share)
                    .ok_or_else(|| format!("`{limit}` is not a share from `1%` to `100%`")),
                None => units::parse_size(limit).map(Self::Resident),
            };
        }
        units::parse_duration(text).map(Self::Time).map_err(|_| {
            format!(
                "`{text}` is not a time such as 30s, `rss>SIZE`, `rss>PERCENT%`, `growing` or \
                 `SIGUSR1`"
            )
        })
    }
}

impl fmt::Display for StartAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => {
                let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                write!(f, "in {}", units::duration(ns))
            }
            Self::Signal => write!(f, "at SIGUSR1: `kill -USR1 {}`", std::process::id()),
            Self::Resident(bytes) => {
                write!(f, "when more than {} are resident", units::size(*bytes))
            }
            Self::Share(percent) => write!(
                f,
                "when more than {percent} % of the memory that the processes may use are resident"
            ),
            Self::Growing => write!(
                f,
                "when resident memory has been growing for {} s",
                STEP.as_secs() * STEPS as u64
            ),
        }
    }
}

/// The processes that a recording waits for.
pub(super) struct Watched {
    pids: Vec<u32>,
    /// They are chosen anew while waiting.
    choice: Option<Choice>,
    chosen: Option<Instant>,
    /// Their memory counts too.
    with_descendants: bool,
}

impl Watched {
    /// # Errors
    /// The choice can never match a process.
    pub(super) fn new(
        pids: Vec<u32>,
        choice: Option<Choice>,
        with_descendants: bool,
    ) -> Result<Self, ChooseError> {
        let mut watched = Self {
            pids,
            choice,
            chosen: None,
            with_descendants,
        };
        match watched.choose() {
            Err(error) if error.may_pass() => say(&format!("{error}; waiting for one")),
            result => result?,
        }
        Ok(watched)
    }

    pub(super) fn into_pids(self) -> Vec<u32> {
        self.pids
    }

    /// Chooses the processes anew, and lists them if they are others.
    fn choose(&mut self) -> Result<(), ChooseError> {
        let Some(choice) = &self.choice else {
            return Ok(());
        };
        self.chosen = Some(Instant::now());
        let before = std::mem::take(&mut self.pids);
        let chosen = choice.find(self.with_descendants)?;
        self.pids = chosen.iter().map(|of| of.pid).collect();
        if self.pids != before {
            say(&format!("chosen: {}", listed(&chosen)));
        }
        Ok(())
    }

    /// Looks at the processes again; false if none of them runs, and none is waited for.
    fn look(&mut self) -> bool {
        if self.chosen.is_some_and(|at| at.elapsed() >= CHOOSE) {
            // Such processes may start later.
            let _ = self.choose();
        }
        self.pids.retain(|&pid| !process::has_ended(pid));
        self.choice.is_some() || !self.pids.is_empty()
    }

    /// Resident memory, bytes; pages that processes share count for each.
    fn resident(&self) -> u64 {
        let descendants = match self.with_descendants {
            true => job::descendants(&self.pids),
            false => Vec::new(),
        };
        let all = self.pids.iter().chain(&descendants);
        let identities = all.filter_map(|&pid| memory::identity(pid).ok());
        identities.map(|identity| identity.rss_bytes).sum()
    }

    /// The memory that the processes may use, bytes, and what limits it.
    fn limit(&self, source: &Source) -> Option<(u64, &'static str)> {
        let limits = self.pids.iter();
        let limits = limits.filter_map(|&pid| cgroup::memory_limit(source, pid));
        let group = limits
            .min()
            .map(|limit| (limit, "the limit of the control group"));
        let machine = system::sample(source).mem_total;
        let machine = machine.map(|total| (total, "the memory of the machine"));
        group
            .into_iter()
            .chain(machine)
            .min_by_key(|(limit, _)| *limit)
    }
}

/// A closed standard error must not end a recording.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "memtrace: {line}");
}

/// Resident memory at the ends of the last steps, bytes.
#[derive(Default)]
struct Growth(VecDeque<u64>);

impl Growth {
    /// Adds the end of a step; whether memory has grown over the last steps.
    fn add(&mut self, bytes: u64) -> bool {
        self.0.push_back(bytes);
        if self.0.len() > STEPS + 1 {
            self.0.pop_front();
        }
        let ends = self.0.iter().zip(self.0.iter().skip(1));
        let upwards = ends.filter(|(begin, end)| end > begin).count();
        let first = self.0.front().copied().unwrap_or(bytes);
        self.0.len() > STEPS && upwards >= UPWARDS && bytes.saturating_sub(first) >= LEAST_GROWTH
    }
}

/// A condition, and what it has seen so far.
struct Waiting {
    condition: StartAfter,
    source: Source,
    growth: Growth,
    step: Instant,
}

impl Waiting {
    /// Why recording begins now, if so.
    fn met(&mut self, watched: &Watched) -> Option<String> {
        match self.condition {
            StartAfter::Time(_) | StartAfter::Signal => None,
            StartAfter::Resident(limit) => {
                let resident = watched.resident();
                (resident > limit).then(|| format!("{} are resident", units::size(resident)))
            }
            StartAfter::Share(percent) => {
                let (limit, of) = watched.limit(&self.source)?;
                let resident = watched.resident();
                let share = u128::from(limit) * u128::from(percent) / 100;
                (u128::from(resident) > share).then(|| {
                    let [resident, limit] = [resident, limit].map(units::size);
                    format!("{resident} are resident, more than {percent} % of {limit} ({of})")
                })
            }
            StartAfter::Growing => {
                if watched.pids.is_empty() || self.step.elapsed() < STEP {
                    return None;
                }
                self.step = Instant::now();
                let resident = watched.resident();
                let grows = self.growth.add(resident);
                grows.then(|| format!("resident memory has grown to {}", units::size(resident)))
            }
        }
    }
}

impl StartAfter {
    /// Waits for it; false if the processes end before, or the user does not want to wait. Signals do what they do while
    /// a command is recorded.
    ///
    /// # Errors
    /// Signals cannot be watched.
    pub(super) async fn wait(
        &self,
        watched: &mut Watched,
        launched: Option<&Launched>,
        signals: &mut Signals,
    ) -> io::Result<bool> {
        let mut awaited = signal(SignalKind::user_defined1())?;
        let mut was_interrupted = false;
        say(&format!("recording begins {self}"));
        let time = match self {
            Self::Time(time) => Some(*time),
            _ => None,
        };
        let timer = sleep(time.unwrap_or_default());
        tokio::pin!(timer);
        let mut waiting = Waiting {
            condition: *self,
            source: Source::host(),
            growth: Growth::default(),
            step: Instant::now(),
        };
        let mut is_due = false;
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut timer, if time.is_some() && !is_due => is_due = true,
                _ = awaited.recv() => is_due |= *self == Self::Signal,
                _ = signals.interrupts.recv() => {
                    if launched.is_none() || was_interrupted {
                        return Ok(false);
                    }
                    was_interrupted = true;
                }
                _ = signals.terminations.recv() => match launched {
                    Some(launched) => pass_on(launched, libc::SIGTERM),
                    None => return Ok(false),
                },
                _ = signals.hangups.recv() => return Ok(false),
                _ = ticks.tick() => {
                    if !watched.look() {
                        return Ok(false);
                    }
                    if let Some(why) = waiting.met(watched) {
                        say(&why);
                        is_due = true;
                    }
                }
            }
            // Chosen processes may have yet to start.
            if is_due && !watched.pids.is_empty() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_the_signal_are_read() {
        let read = |text: &str| text.parse::<StartAfter>();
        assert_eq!(read("30s"), Ok(StartAfter::Time(Duration::from_secs(30))));
        assert_eq!(read("rss>2G"), Ok(StartAfter::Resident(2 << 30)));
        assert_eq!(read("SIGUSR1"), Ok(StartAfter::Signal));
        assert_eq!(read("rss>80%"), Ok(StartAfter::Share(80)));
        assert_eq!(read("growing"), Ok(StartAfter::Growing));
        assert!(read("rss").unwrap_err().contains("quote it"));
        for wrong in [
            "", "rss>", "rss>much", "rss>0%", "rss>101%", "rss>%", "SIGUSR2", "step",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_that_rises_most_of_the_time_grows() {
        let grows = |bytes: &[u64]| {
            let mut growth = Growth::default();
            let met: Vec<bool> = bytes.iter().map(|mib| growth.add(mib << 20)).collect();
            met.iter().position(|&met| met)
        };
        assert_eq!(grows(&[10, 12, 14, 16, 18, 20, 22]), Some(6));
        // Collected once, and twice.
        assert_eq!(grows(&[10, 14, 18, 16, 20, 24, 28]), Some(6));
        assert_eq!(grows(&[10, 14, 18, 16, 20, 18, 28]), None);
        // Too little; at its start only; a saw.
        assert_eq!(grows(&[10, 11, 12, 13, 14, 15, 16, 17]), None);
        assert_eq!(grows(&[10, 40, 40, 40, 40, 40, 40, 40]), None);
        assert_eq!(grows(&[10, 30, 10, 30, 10, 30, 10, 30]), None);
        // Only the last steps count.
        assert_eq!(grows(&[99, 9, 10, 12, 14, 16, 18, 20, 22]), Some(7));
    }
}
