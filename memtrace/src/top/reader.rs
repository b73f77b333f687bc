//! The thread that reads the recording again and again, at a bounded share of the time.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use super::reading::Reading;
use crate::recording::{Error, Recording};

/// A recorder commits once a second; reading more often would show nothing more.
const EVERY: Duration = Duration::from_secs(1);

/// After a reading there is a rest of this many times its cost: a large recording takes at most a fifth of a processor,
/// and its writer, whose commits wait for readers, has most of the time for itself.
const REST: u32 = 4;

/// How often a recording that does not exist yet is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Readings of a recording. Dropping it ends the thread after the reading in progress.
pub(crate) struct Reader {
    readings: Receiver<Result<Reading, Error>>,
    _end: Sender<()>,
}

impl Reader {
    /// Reads the recording at `path` from now on. `is_patient`: a recorder is about to make it.
    pub(crate) fn start(path: PathBuf, is_patient: bool) -> std::io::Result<Reader> {
        let (sender, readings) = channel();
        let (end, ends) = channel();
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || {
                let reading = || run(&path, is_patient, &sender, &ends);
                if let Err(error) = reading() {
                    // Nobody is interested any more.
                    let _ = sender.send(Err(error));
                }
            })?;
        Ok(Reader {
            readings,
            _end: end,
        })
    }

    /// The newest reading, if there is one that was not taken.
    ///
    /// # Errors
    /// The recording can no longer be read; nothing comes after that.
    pub(crate) fn newest(&self) -> Result<Option<Reading>, Error> {
        self.readings.try_iter().last().transpose()
    }
}

fn run(
    path: &Path,
    is_patient: bool,
    sender: &Sender<Result<Reading, Error>>,
    ends: &Receiver<()>,
) -> Result<(), Error> {
    let has_ended = |rest| !matches!(ends.recv_timeout(rest), Err(RecvTimeoutError::Timeout));
    let recording = loop {
        match Recording::open(path) {
            Ok(recording) => break recording,
            // While it is being made, it may look like anything.
            Err(_) if is_patient => {
                if has_ended(LOOK) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    };
    let mut known = None;
    loop {
        let begun = Instant::now();
        recording.read_again();
        let version = recording.version()?;
        if known != Some(version) {
            match Reading::of(&recording) {
                Ok(reading) => {
                    known = Some(version);
                    if sender.send(Ok(reading)).is_err() {
                        return Ok(());
                    }
                }
                // The next look may have more luck.
                Err(Error::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let cost = begun.elapsed();
        if has_ended(EVERY.saturating_sub(cost).max(cost * REST)) {
            return Ok(());
        }
    }
}
