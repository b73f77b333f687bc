//! A thread that acts on signals, whatever the others wait for.

use std::{io, thread::JoinHandle};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// See the module. Dropping it ends the thread.
pub(super) struct Watch(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Watch {
    /// Calls `act` with each SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// The thread cannot be started, or signals cannot be watched.
    pub(super) fn begin(name: &str, act: impl Fn(i32) + Send + 'static) -> io::Result<Self> {
        let (over, is_over) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let result = runtime.and_then(|runtime| {
                    runtime.block_on(watch(act, is_over, || {
                        let _ = ready.send(Ok(()));
                    }))
                });
                if let Err(error) = result {
                    let _ = ready.send(Err(error));
                }
            })?;
        is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self(Some((over, thread))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.0.take() {
            // It ended because it could no longer watch.
            let _ = over.send(());
            let _ = thread.join();
        }
    }
}

async fn watch(
    act: impl Fn(i32),
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
            _ = interrupts.recv() => act(libc::SIGINT),
            _ = terminations.recv() => act(libc::SIGTERM),
            _ = hangups.recv() => act(libc::SIGHUP),
        }
    }
}
