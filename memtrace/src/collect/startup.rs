//! The time before recording begins: slow steps are shown on a terminal, and a signal ends memtrace at
//! once, from a thread of its own, because loading and attaching wait for the kernel.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::watch::Watch;
use crate::{
    bpf,
    progress::{self, Manner, Progress},
};

/// The file to remove if the recording does not start.
type Output = Mutex<Option<PathBuf>>;

/// See the module. Dropping it ends the thread.
pub(super) struct Startup {
    output: Arc<Output>,
    progress: Option<Progress>,
    watch: Option<Watch>,
}

impl Startup {
    /// # Errors
    /// The thread cannot be started, or signals cannot be watched.
    pub(super) fn begin(doing: &str, manner: Manner) -> io::Result<Self> {
        let output = Arc::<Output>::default();
        let watched = Arc::clone(&output);
        let watch = Watch::begin("startup", move |signal| interrupted(&watched, signal))?;
        Ok(Self {
            output,
            progress: Some(Progress::shown(doing, manner)),
            watch: Some(watch),
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
        self.watch = None;
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

/// Ends memtrace with a shell's exit status for a signal; a command that waits to be launched ends.
fn interrupted(output: &Output, signal: i32) -> ! {
    // Held to the end: no file may be created any more.
    let output = lock(output);
    if let Some(output) = &*output {
        remove(output);
    }
    progress::clear();
    progress::say("ended before recording began");
    bpf::remove_probes();
    std::process::exit(128 + signal)
}
