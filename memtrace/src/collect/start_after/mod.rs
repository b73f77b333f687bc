//! Recordings that begin late (`memtrace record --start-after`). Until then the program runs without a probe.

mod calls;
mod functions;
mod growth;
mod python;
mod watched;

use std::{fmt, str::FromStr, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    session::{SessionError, system},
    signals::{Signals, pass_on},
};
use crate::{bpf::TracerError, host::Source, process::launch::Launched, progress::say, units};
use calls::Awaited;
use growth::{Growth, STEP, STEPS};
pub(super) use watched::Watched;

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What a recording waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// They call this function, native or of Python.
    Function(String),
    /// A call of theirs is at this line of a Python program, or past it in the same function.
    Line {
        file: String,
        line: u32,
    },
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
        if let Ok(time) = units::parse_duration(text) {
            return Ok(Self::Time(time));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && let Ok(line) = line.parse()
            && !file.is_empty()
        {
            let file = file.to_owned();
            return Ok(Self::Line { file, line });
        }
        if is_function(text) {
            // As people write any function.
            let name = text.strip_suffix("()").unwrap_or(text);
            return Ok(Self::Function(name.to_owned()));
        }
        Err(format!(
            "`{text}` is not a time such as 30s, `rss>SIZE`, `rss>PERCENT%`, `growing`, \
             `SIGUSR1`, a function or `FILE.py:LINE`"
        ))
    }
}

/// Whether a text can be the name of a function. Otherwise memtrace would wait for a misspelt line or signal.
fn is_function(text: &str) -> bool {
    // Parameters and arguments of templates may be anything.
    let name = text.split(['(', '<']).next().unwrap_or(text);
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && !name.starts_with("SIG")
        && !name.ends_with(".py")
        && !name.contains(|c: char| c.is_whitespace() || "/>%".contains(c))
        && !name.replace("::", "").contains(':')
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
            Self::Function(name) => write!(f, "when `{name}` is called"),
            Self::Line { file, line } => write!(f, "when a call is at {file}:{line}"),
        }
    }
}

/// A condition, and what it has seen so far.
pub(super) struct Waiting {
    condition: StartAfter,
    source: Source,
    growth: Growth,
    step: Instant,
    call: Option<Awaited>,
}

impl Waiting {
    /// # Errors
    /// The kernel refuses the program that waits for calls of a function.
    pub(super) fn new(condition: StartAfter) -> Result<Self, TracerError> {
        Ok(Self {
            call: Awaited::of(&condition)?,
            condition,
            source: Source::host(),
            growth: Growth::default(),
            step: Instant::now(),
        })
    }

    /// Why recording begins now, if so.
    fn met(&mut self, watched: &Watched) -> Result<Option<String>, TracerError> {
        Ok(match self.condition {
            StartAfter::Time(_) | StartAfter::Signal => None,
            StartAfter::Function(_) | StartAfter::Line { .. } => match &mut self.call {
                Some(call) => call.met(watched)?,
                None => None,
            },
            StartAfter::Resident(limit) => {
                let resident = watched.resident();
                (resident > limit).then(|| format!("{} are resident", units::size(resident)))
            }
            StartAfter::Share(percent) => {
                let resident = watched.resident();
                watched.limit(&self.source).and_then(|(limit, of)| {
                    let share = u128::from(limit) * u128::from(percent) / 100;
                    (u128::from(resident) > share).then(|| {
                        let [resident, limit] = [resident, limit].map(units::size);
                        format!("{resident} are resident, more than {percent} % of {limit} ({of})")
                    })
                })
            }
            StartAfter::Growing if watched.is_empty() || self.step.elapsed() < STEP => None,
            StartAfter::Growing => {
                self.step = Instant::now();
                let resident = watched.resident();
                let grows = self.growth.add(resident);
                grows.then(|| format!("resident memory has grown to {}", units::size(resident)))
            }
        })
    }

    /// Waits for it; false if the processes end before, or the user does not want to wait. Signals do what they do while
    /// a command is recorded.
    ///
    /// # Errors
    /// Signals cannot be watched, or the kernel side cannot be read.
    pub(super) async fn wait(
        mut self,
        watched: &mut Watched,
        launched: Option<&Launched>,
        signals: &mut Signals,
    ) -> Result<bool, SessionError> {
        let watching = system("watch for signals");
        let mut awaited = signal(SignalKind::user_defined1()).map_err(watching)?;
        let mut was_interrupted = false;
        say(&format!("recording begins {}", self.condition));
        let time = match self.condition {
            StartAfter::Time(time) => Some(time),
            _ => None,
        };
        let timer = sleep(time.unwrap_or_default());
        tokio::pin!(timer);
        let mut is_due = false;
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut timer, if time.is_some() && !is_due => is_due = true,
                _ = awaited.recv() => is_due |= self.condition == StartAfter::Signal,
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
                    if let Some(why) = self.met(watched)? {
                        say(&why);
                        is_due = true;
                    }
                }
            }
            // Chosen processes may have yet to start.
            if is_due && !watched.is_empty() {
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
        let function = |name: &str| Ok(StartAfter::Function(name.to_owned()));
        for name in [
            "step",
            "ns::Trainer::step",
            "Trainer.step",
            "f(char const*, a::b<int>)",
        ] {
            assert_eq!(read(name), function(name));
        }
        assert_eq!(read("step()"), function("step"));
        let line = Ok(StartAfter::Line {
            file: "train.py".to_owned(),
            line: 30,
        });
        assert_eq!(read("train.py:30"), line);
        assert!(read("rss").unwrap_err().contains("quote it"));
        for wrong in [
            "", "rss>", "rss>much", "rss>0%", "rss>101%", "rss>%", "SIGUSR2", "30x", ":5",
            "a.py:x", "a.py", "a b", "rsss>1g", "a/b",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
