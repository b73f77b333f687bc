//! The time before recording begins: slow steps are reported on standard error, and a signal ends
//! memtrace at once, from a thread of its own, because loading and attaching wait for the kernel.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

/// A step is announced after this time, and again if another one takes as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// State shared with the thread.
#[derive(Default)]
struct State {
    doing: String,
    output: Option<PathBuf>,
}

/// See the module. Dropping it ends the thread.
pub(super) struct Startup {
    state: Arc<Mutex<State>>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Startup {
    /// # Errors
    /// The thread cannot be started, or signals cannot be watched.
    pub(super) fn begin() -> io::Result<Self> {
        let state = Arc::<Mutex<State>>::default();
        let (over, is_over) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let watched = Arc::clone(&state);
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
            state,
            thread: Some((over, thread)),
        })
    }

    /// Sets the current step.
    pub(super) fn doing(&self, what: String) {
        lock(&self.state).doing = what;
    }

    /// The file to remove if the recording does not start.
    pub(super) fn created(&self, output: &Path) {
        lock(&self.state).output = Some(output.to_owned());
    }

    /// Recording has begun. Signals have another meaning from now on.
    pub(super) fn over(&mut self) {
        if let Some((over, thread)) = self.thread.take() {
            // It ended because it could no longer watch.
            let _ = over.send(());
            let _ = thread.join();
        }
        lock(&self.state).output = None;
    }
}

impl Drop for Startup {
    fn drop(&mut self) {
        let output = lock(&self.state).output.take();
        self.over();
        if let Some(output) = output {
            remove(&output);
        }
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes an empty recording.
fn remove(output: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let mut path = output.as_os_str().to_owned();
        path.push(suffix);
        // Most of them are not there.
        let _ = fs::remove_file(path);
    }
}

async fn watch(
    state: &Mutex<State>,
    mut over: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut ticks = interval(PATIENCE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is at once.
    ticks.tick().await;
    ready();
    let mut said = String::new();
    loop {
        tokio::select! {
            _ = &mut over => return Ok(()),
            _ = interrupts.recv() => interrupted(state, libc::SIGINT),
            _ = terminations.recv() => interrupted(state, libc::SIGTERM),
            _ = ticks.tick() => {
                let doing = lock(state).doing.clone();
                if doing != said {
                    // A closed standard error must not end a recording.
                    let _ = writeln!(io::stderr(), "memtrace: {doing} …");
                    said = doing;
                }
            }
        }
    }
}

/// Ends memtrace with a shell's exit status for a signal. The kernel removes every probe with the
/// process, and a command that waits to be launched ends.
fn interrupted(state: &Mutex<State>, signal: i32) -> ! {
    // Held to the end: no file may be created any more.
    let state = lock(state);
    if let Some(output) = &state.output {
        remove(output);
    }
    let _ = writeln!(io::stderr(), "memtrace: ended before recording began");
    std::process::exit(128 + signal)
}
