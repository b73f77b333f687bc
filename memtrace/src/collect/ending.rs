//! The end of a recording on request: whatever memtrace waits for, it is over within seconds of a signal, and at once
//! after a second one, but for probes that are being removed. What was committed stays readable.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::watch::Watch;
use crate::{bpf, progress};

/// memtrace ends this long after a signal, unless it is removing its probes. What takes long ends far sooner; this is
/// for a wait that nobody foresaw.
const ALL: Duration = Duration::from_secs(5);
/// Once they are removed, the search for holders may take this long,
const SEARCH: Duration = Duration::from_millis(700);
/// the names of functions may take until then,
const NAMES: Duration = Duration::from_millis(1800);
/// and memtrace ends at the latest after this.
const COMPLETION: Duration = Duration::from_secs(10);
/// Reading the last events and removing probes depends on the kernel alone, and takes as long as it takes; this long
/// at most.
const RELEASE: Duration = Duration::from_secs(30);

/// Signals within this time are one request: a process manager sends several, and a parent's death sends one for each of
/// its threads.
const SAME: Duration = Duration::from_millis(200);

/// What memtrace does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Records.
    Recording,
    /// Reads the last events and removes its probes.
    Releasing,
    /// Searches for holders, and completes the recording.
    Completing,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// When the stage began.
    since: Instant,
    /// The first signal meant for memtrace.
    asked: Option<(i32, Instant)>,
    /// There was a second one.
    is_urgent: bool,
    /// A launched command runs: signals are meant for it, and it must not lose its parent.
    has_command: bool,
    is_over: bool,
}

impl State {
    /// When memtrace ends whatever it does.
    fn limit(&self) -> Option<Instant> {
        let (_, asked) = self.asked?;
        let limit = match self.stage {
            Stage::Releasing => self.since + RELEASE,
            _ if self.is_urgent => asked,
            Stage::Recording => asked + ALL,
            Stage::Completing => asked.max(self.since) + COMPLETION,
        };
        (!self.has_command).then_some(limit)
    }
}

/// See the module. Dropping it ends the watch.
pub(super) struct Ending {
    shared: Arc<(Mutex<State>, Condvar)>,
    _watch: Watch,
}

impl Ending {
    /// Watches from now on. `output` is the recording, for the message.
    ///
    /// # Errors
    /// A thread cannot be started, or signals cannot be watched.
    pub(super) fn watch(output: PathBuf, has_command: bool) -> io::Result<Self> {
        let state = State {
            stage: Stage::Recording,
            since: Instant::now(),
            asked: None,
            is_urgent: false,
            has_command,
            is_over: false,
        };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let of_thread = Arc::clone(&shared);
        // Not joined: it ends soon after `is_over`.
        thread::Builder::new()
            .name("ending".to_owned())
            .spawn(move || wait_for_limit(&of_thread, &output))?;
        let of_watch = Arc::clone(&shared);
        let watch = Watch::begin("ending-signals", move |signal| {
            let mut state = lock(&of_watch.0);
            let is_for_command = state.has_command && state.stage == Stage::Recording;
            if is_for_command || state.is_over {
                return;
            }
            match state.asked {
                Some((_, asked)) => state.is_urgent |= asked.elapsed() > SAME,
                None => state.asked = Some((signal, Instant::now())),
            }
            of_watch.1.notify_all();
        })?;
        Ok(Self {
            shared,
            _watch: watch,
        })
    }

    /// Enters a stage.
    pub(super) fn enter(&self, stage: Stage) {
        self.change(|state| {
            state.stage = stage;
            state.since = Instant::now();
        });
    }

    /// The recording of a command ends because of a signal. Without a command, the watch notices signals itself.
    pub(super) fn ask(&self, signal: i32) {
        self.change(|state| {
            if state.has_command {
                state.asked.get_or_insert((signal, Instant::now()));
            }
        });
    }

    /// The launched command has ended: nobody else waits for memtrace.
    pub(super) fn without_command(&self) {
        self.change(|state| state.has_command = false);
    }

    /// The recording is complete: nothing is left to end. Whether a signal asked for it.
    pub(super) fn complete(&self) -> bool {
        self.change(|state| state.is_over = true);
        lock(&self.shared.0).asked.is_some()
    }

    /// Whether the search for holders has to end. To be asked again and again.
    pub(super) fn ends_search(&self) -> bool {
        self.ends(SEARCH)
    }

    /// The same for the wait for names of functions.
    pub(super) fn ends_names(&self) -> bool {
        self.ends(NAMES)
    }

    fn ends(&self, after: Duration) -> bool {
        let state = lock(&self.shared.0);
        let Some((_, asked)) = state.asked else {
            return false;
        };
        let until = match state.stage {
            // A signal that comes during the search ends it.
            Stage::Completing if asked > state.since => asked + (after - SEARCH),
            _ => state.since.max(asked) + after,
        };
        until <= Instant::now()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.shared.0));
        self.shared.1.notify_all();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.change(|state| state.is_over = true);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_for_limit(shared: &(Mutex<State>, Condvar), output: &Path) {
    let mut state = lock(&shared.0);
    while !state.is_over {
        let now = Instant::now();
        state = match (state.limit(), state.asked) {
            (Some(limit), Some((signal, _))) if limit <= now => end(output, signal),
            (Some(limit), _) => {
                let waited = shared.1.wait_timeout(state, limit - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            (None, _) => {
                let waited = shared.1.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
    }
}

/// Ends memtrace with a shell's exit status for a signal, from any thread.
fn end(output: &Path, signal: i32) -> ! {
    progress::clear();
    progress::say(&format!(
        "ended before the recording was complete; `{}` has everything up to the last second",
        output.display()
    ));
    bpf::remove_probes();
    // Without the destructors of threads that may be waiting for ever.
    // SAFETY: no memory is involved.
    unsafe { libc::_exit(128 + signal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(stage: Stage, has_command: bool) -> State {
        State {
            stage,
            since: Instant::now(),
            asked: None,
            is_urgent: false,
            has_command,
            is_over: false,
        }
    }

    #[test]
    fn without_a_signal_there_is_no_limit() {
        assert_eq!(state(Stage::Completing, false).limit(), None);
    }

    #[test]
    fn a_stage_has_its_own_limit() {
        let mut state = state(Stage::Recording, false);
        let asked = state.since + Duration::from_millis(1);
        state.asked = Some((libc::SIGINT, asked));
        assert_eq!(state.limit(), Some(asked + ALL));
        state.stage = Stage::Releasing;
        assert_eq!(state.limit(), Some(state.since + RELEASE));
        state.stage = Stage::Completing;
        state.since = asked + Duration::from_secs(1);
        assert_eq!(state.limit(), Some(state.since + COMPLETION));
    }

    #[test]
    fn a_second_signal_does_not_interrupt_the_removal_of_probes() {
        let mut state = state(Stage::Releasing, false);
        let asked = state.since;
        state.asked = Some((libc::SIGINT, asked));
        state.is_urgent = true;
        assert_eq!(state.limit(), Some(state.since + RELEASE));
        state.stage = Stage::Completing;
        assert_eq!(state.limit(), Some(asked));
    }

    #[test]
    fn a_command_keeps_its_parent() {
        let mut state = state(Stage::Completing, true);
        state.asked = Some((libc::SIGTERM, Instant::now()));
        assert_eq!(state.limit(), None);
    }
}
