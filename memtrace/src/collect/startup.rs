//! The time before recording begins: slow steps are shown on a terminal, and a signal ends memtrace at
//! once, from a thread of its own, because loading and attaching wait for the kernel.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::progress::{self, Manner, Progress};

/// The file to remove if the recording does not start.
type Output = Mutex<Option<PathBuf>>;

/// See the module. Dropping it ends the thread.
pub(super) struct Startup {
    output: Arc<Output>,
    progress: Option<Progress>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Startup {
    /// # Errors
    /// The thread cannot be started, or signals cannot be watched.
    pub(super) fn begin(doing: &str, manner: Manner) -> io::Result<Self> {
        let output = Arc::<Output>::default();
        let (over, is_over) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let watched = Arc::clone(&output);
        let thread = std::thread::Builder::new()
            .name("startup".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let result = runtime.and_then(|runtime| {
                    runtime.block_on(watch(&watched, is_over, || {
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
        Ok(Self {
            output,
            progress: Some(Progress::shown(doing, manner)),
            thread: Some((over, thread)),
        })
    }

    /// Sets the current step.
    pub(super) fn doing(&self, what: String) {
        if let Some(progress) = &self.progress {
            progress.doing(what);
        }
    }

    /// The file to remove if the recording does not start.
    pub(super) fn created(&self, output: &Path) {
        *lock(&self.output) = Some(output.to_owned());
    }

    /// Recording has begun. Signals have another meaning from now on.
    pub(super) fn over(&mut self) {
        if let Some((over, thread)) = self.thread.take() {
            // It ended because it could no longer watch.
            let _ = over.send(());
            let _ = thread.join();
        }
        self.progress = None;
        *lock(&self.output) = None;
    }
}

impl Drop for Startup {
    fn drop(&mut self) {
        let output = lock(&self.output).take();
        self.over();
        if let Some(output) = output {
            remove(&output);
        }
    }
}

fn lock(output: &Output) -> std::sync::MutexGuard<'_, Option<PathBuf>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes an empty recording.
fn remove(output: &Path) {
    let _ = fs::remove_file(output);
}

async fn watch(
    output: &Output,
    over: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    ready();
    tokio::select! {
        _ = over => Ok(()),
        _ = interrupts.recv() => interrupted(output, libc::SIGINT),
        _ = terminations.recv() => interrupted(output, libc::SIGTERM),
    }
}

/// Ends memtrace with a shell's exit status for a signal. The kernel removes every probe with the
/// process, and a command that waits to be launched ends.
fn interrupted(output: &Output, signal: i32) -> ! {
    // Held to the end: no file may be created any more.
    let output = lock(output);
    if let Some(output) = &*output {
        remove(output);
    }
    progress::clear();
    progress::say("ended before recording began");
    std::process::exit(128 + signal)
}
