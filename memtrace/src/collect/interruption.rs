//! A signal that comes while something takes long and waits for nothing: a thread of its own notices it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// See the module. Dropping it ends the thread.
pub(crate) struct Interruption {
    has_come: Arc<AtomicBool>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Interruption {
    /// Without a thread, signals go unnoticed.
    pub(crate) fn begin() -> Self {
        let has_come = Arc::<AtomicBool>::default();
        let (over, is_over) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let noticed = Arc::clone(&has_come);
        let thread = std::thread::Builder::new()
            .name("interruption".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let watched = runtime.and_then(|runtime| {
                    runtime.block_on(watch(&noticed, is_over, || {
                        let _ = ready.send(());
                    }))
                });
                if let Err(error) = watched {
                    tracing::debug!("cannot watch for signals: {error}");
                }
            });
        // The end of the thread is an answer too.
        let _ = is_ready.recv();
        Self {
            has_come,
            thread: thread.ok().map(|thread| (over, thread)),
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

impl Drop for Interruption {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.thread.take() {
            // It ended because it could no longer watch.
            let _ = over.send(());
            let _ = thread.join();
        }
    }
}

async fn watch(
    noticed: &AtomicBool,
    mut over: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hangups = signal(SignalKind::hangup())?;
    ready();
    loop {
        tokio::select! {
            _ = &mut over => return Ok(()),
            _ = interrupts.recv() => noticed.store(true, Ordering::Relaxed),
            _ = terminations.recv() => noticed.store(true, Ordering::Relaxed),
            _ = hangups.recv() => noticed.store(true, Ordering::Relaxed),
        }
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
