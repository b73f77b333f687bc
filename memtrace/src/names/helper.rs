//! memtrace's end of the line to the process that reads symbols.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::net::UnixStream,
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::line::{Answer, Line, Request};
use crate::{file::BUDGET, process::page_size};

/// How often a wait looks whether it is over.
const SLICE: Duration = Duration::from_millis(50);

/// Most that may be resident, bytes: mapped files count, which its own limit of memory leaves out.
const MOST_RESIDENT: u64 = BUDGET;

/// How long an ended process may take to be gone.
const REAPING: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the process that reads symbols cannot be started: {0}")]
    NotStarted(#[source] io::Error),
    #[error("the process that reads symbols failed: {0}")]
    Died(#[source] io::Error),
    #[error("the process that reads symbols takes too much memory")]
    TooLarge,
    #[error("the process that reads symbols did not answer in time")]
    TooSlow,
    #[error("nobody waits for names any more")]
    Over,
}

/// Dropping it ends the process, whatever it does.
pub(super) struct Helper {
    line: Line,
    /// `None`: it is a thread of a test.
    child: Option<Child>,
}

impl Helper {
    /// # Errors
    /// [`Failure::NotStarted`].
    pub(super) fn start(spawn: Spawn, patience: Duration) -> Result<Self, Failure> {
        let start = || {
            let (own, other) = UnixStream::pair()?;
            own.set_read_timeout(Some(SLICE))?;
            own.set_write_timeout(Some(patience))?;
            Ok(Self {
                line: Line::new(own),
                child: spawn(other)?,
            })
        };
        start().map_err(Failure::NotStarted)
    }

    /// # Errors
    /// [`Failure::Died`], or it does not read.
    pub(super) fn send(&mut self, request: &Request, file: Option<&File>) -> Result<(), Failure> {
        match self.line.send(request, file) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Failure::TooSlow),
            result => result.map_err(Failure::Died),
        }
    }

    /// Waits for an answer, `patience` at most.
    ///
    /// # Errors
    /// All but [`Failure::NotStarted`].
    pub(super) fn receive(
        &mut self,
        patience: Duration,
        is_over: &AtomicBool,
    ) -> Result<Answer, Failure> {
        let begun = Instant::now();
        loop {
            match self.line.receive() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(Failure::Died(ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(Failure::Died(error)),
            }
            if is_over.load(Ordering::Relaxed) {
                return Err(Failure::Over);
            }
            if self.is_too_large() {
                return Err(Failure::TooLarge);
            }
            if begun.elapsed() >= patience {
                return Err(Failure::TooSlow);
            }
        }
    }
}

impl Helper {
    pub(super) fn is_too_large(&self) -> bool {
        let statm = |child: &Child| {
            let text = fs::read_to_string(format!("/proc/{}/statm", child.id())).ok()?;
            text.split(' ').nth(1)?.parse::<u64>().ok()
        };
        let pages = self.child.as_ref().and_then(statm);
        pages.is_some_and(|pages| pages.saturating_mul(page_size()) > MOST_RESIDENT)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        // It may have ended already.
        let _ = child.kill();
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < REAPING {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts the process, with its end of the line.
pub(super) type Spawn = fn(UnixStream) -> io::Result<Option<Child>>;

#[cfg(not(test))]
pub(super) fn spawn(line: UnixStream) -> io::Result<Option<Child>> {
    crate::helper::start(super::SUBCOMMAND, &line).map(Some)
}

/// The test's own program has no such subcommand.
#[cfg(test)]
pub(super) fn spawn(line: UnixStream) -> io::Result<Option<Child>> {
    std::thread::spawn(move || super::process::serve(Line::new(line)));
    Ok(None)
}
