//! The signals that a recording acts on, and those that it passes on to a launched command.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    error::{SessionError, system},
    readiness::pidfd,
};
use crate::{process::launch::Launched, progress::say};

/// The signals that a recording acts on.
pub(super) struct Signals {
    pub(super) interrupts: Signal,
    pub(super) terminations: Signal,
    pub(super) hangups: Signal,
}

impl Signals {
    pub(super) fn watch() -> Result<Self, SessionError> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt()).map_err(system("watch SIGINT"))?,
            terminations: signal(SignalKind::terminate()).map_err(system("watch SIGTERM"))?,
            hangups: signal(SignalKind::hangup()).map_err(system("watch SIGHUP"))?,
        })
    }

    /// Waits for the command to end, which may be long after the recording did.
    pub(super) async fn wait_for(&mut self, launched: &mut Launched) -> Result<i32, SessionError> {
        let waiting = system("wait for the command");
        if let Some(status) = launched.try_wait().map_err(&waiting)? {
            return Ok(status);
        }
        say(&format!(
            "waiting for process {} to end, to pass on its exit status",
            launched.tgid()
        ));
        let fd = pidfd(launched.tgid()).map_err(&waiting)?;
        loop {
            tokio::select! {
                ended = fd.readable() => {
                    drop(ended.map_err(&waiting)?);
                    return launched.wait().map_err(&waiting);
                }
                _ = self.terminations.recv() => pass_on(launched, libc::SIGTERM),
                // The terminal sent these to the command too.
                _ = self.interrupts.recv() => {}
                _ = self.hangups.recv() => {}
            }
        }
    }
}

/// Sends the command a signal that was sent to memtrace alone.
pub(super) fn pass_on(launched: &Launched, signal: i32) {
    // SAFETY: no memory is involved; the child is not reaped yet.
    unsafe { libc::kill(launched.tgid().cast_signed(), signal) };
}
