//! Recordings that begin late (`memtrace record --start-after`). Until then the program runs without a probe.

mod calls;
mod condition;
mod functions;
mod growth;
mod python;
mod watched;

use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{
    error::{SessionError, system},
    signals::{Signals, pass_on},
};
use crate::{bpf::TracerError, host::Source, process::launch::Launched, progress::say, units};
use calls::{Awaited, LOOK};
pub(crate) use condition::StartAfter;
use growth::{Growth, STEP};
pub(super) use watched::Watched;

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
    fn check(&mut self, watched: &Watched) -> Result<Option<String>, TracerError> {
        Ok(match self.condition {
            StartAfter::Time(_) | StartAfter::Signal => None,
            StartAfter::Function(_) | StartAfter::Line { .. } => match &mut self.call {
                Some(call) => call.check(watched)?,
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
                    if let Some(why) = self.check(watched)? {
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
