//! A signal that comes while something takes long and waits for nothing: a thread of its own notices it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::watch::Watch;

/// See the module. Dropping it ends the thread.
pub(crate) struct Interruption {
    has_come: Arc<AtomicBool>,
    _watch: Option<Watch>,
}

impl Interruption {
    /// Without a thread, signals go unnoticed.
    pub(crate) fn begin() -> Self {
        let has_come = Arc::<AtomicBool>::default();
        let noticed = Arc::clone(&has_come);
        let watch = Watch::begin("interruption", move |_| {
            noticed.store(true, Ordering::Relaxed);
        });
        if let Err(error) = &watch {
            tracing::debug!("cannot watch for signals: {error}");
        }
        Self {
            has_come,
            _watch: watch.ok(),
        }
    }

    /// Set once a signal has come.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_come)
    }

    pub(crate) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_signal_is_noticed() {
        let interruption = Interruption::begin();
        assert!(!interruption.has_come());
        // SAFETY: no memory is involved; the signal is watched, so it ends nothing.
        unsafe { libc::kill(libc::getpid(), libc::SIGHUP) };
        let begun = Instant::now();
        while !interruption.has_come() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert!(interruption.has_come());
    }
}
