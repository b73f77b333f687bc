//! Recordings that begin late (`memtrace record --start-after`). Until then the program runs without a probe.

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep},
};

use super::session::{Signals, pass_on};
use crate::{
    process::{self, job, launch::Launched, memory},
    units,
};

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What a recording waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartAfter {
    Time(Duration),
    /// SIGUSR1 to memtrace.
    Signal,
    /// The processes and their descendants have more resident memory than this, bytes.
    Resident(u64),
}

impl FromStr for StartAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "SIGUSR1" {
            return Ok(Self::Signal);
        }
        if let Some(size) = text.strip_prefix("rss>") {
            return units::parse_size(size).map(Self::Resident);
        }
        if text == "rss" {
            return Err("for the shell `>` names a file: quote it, as in `'rss>2G'`".to_owned());
        }
        units::parse_duration(text)
            .map(Self::Time)
            .map_err(|_| format!("`{text}` is not a time such as 30s, `rss>SIZE` or `SIGUSR1`"))
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
        }
    }
}

impl StartAfter {
    /// Waits for it; false if the processes end before, or the user does not want to wait. `with_descendants`: their
    /// memory counts too. Signals do what they do while a command is recorded.
    ///
    /// # Errors
    /// Signals cannot be watched.
    pub(super) async fn wait(
        &self,
        pids: &[u32],
        launched: Option<&Launched>,
        with_descendants: bool,
        signals: &mut Signals,
    ) -> io::Result<bool> {
        let mut awaited = signal(SignalKind::user_defined1())?;
        let mut was_interrupted = false;
        // A closed standard error must not end it.
        let _ = writeln!(io::stderr(), "memtrace: recording begins {self}");
        let time = match self {
            Self::Time(time) => Some(*time),
            Self::Signal | Self::Resident(_) => None,
        };
        let timer = sleep(time.unwrap_or_default());
        tokio::pin!(timer);
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut timer, if time.is_some() => return Ok(true),
                _ = awaited.recv() => if *self == Self::Signal {
                    return Ok(true);
                },
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
                    if pids.iter().all(|&pid| process::has_ended(pid)) {
                        return Ok(false);
                    }
                    if let Self::Resident(bytes) = self
                        && resident(pids, with_descendants) > *bytes
                    {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// Resident memory of processes, bytes; pages that they share count for each.
fn resident(pids: &[u32], with_descendants: bool) -> u64 {
    let descendants = match with_descendants {
        true => job::descendants(pids),
        false => Vec::new(),
    };
    let all = pids.iter().chain(&descendants);
    let identities = all.filter_map(|&pid| memory::identity(pid).ok());
    identities.map(|identity| identity.rss_bytes).sum()
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
        assert!(read("rss").unwrap_err().contains("quote it"));
        for wrong in ["", "rss>", "rss>much", "SIGUSR2", "step"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
