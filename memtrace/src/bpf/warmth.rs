//! Keeps the kernel ready to set probes while processes are being forked.
//!
//! To set one, the kernel takes `dup_mmap_sem` for writing (kernel/events/uprobes.c). Who takes it first after a while waits
//! for an RCU grace period (`rcu_sync_enter`, kernel/rcu/sync.c): 10 ms, on a busy machine several times as long, and so
//! would each forked child. Setting another probe every few milliseconds keeps that state. It is on an empty file that
//! nobody maps.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{link::Link, multi, removal::Removal};
use crate::{file, process::weight};

/// Between two probes; a grace period takes longer.
const EVERY: Duration = Duration::from_millis(3);
/// How long it goes on after a probe was wanted.
const STAYS: Duration = Duration::from_millis(250);

/// See the module. Dropping it ends it.
pub(super) struct Warmth(Arc<Shared>);

struct Shared {
    program: OwnedFd,
    file: File,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    wanted: Instant,
    is_idle: bool,
    has_ended: bool,
}

impl Warmth {
    /// `program` is one for entries.
    ///
    /// # Errors
    /// There is no memory for the file, or no thread.
    pub(super) fn start(program: &OwnedFd) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            program: program.try_clone()?,
            file: file::of_bytes(&[0; 16])?,
            state: Mutex::new(State {
                wanted: Instant::now(),
                is_idle: false,
                has_ended: false,
            }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("memtrace-warmth".to_owned())
            .spawn(move || of_thread.work())?;
        Ok(Self(shared))
    }

    /// Probes were set, and further ones are likely.
    pub(super) fn keep(&self) {
        let mut state = self.0.lock();
        state.wanted = Instant::now();
        if state.is_idle {
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Warmth {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        // As in `Removal`.
        let _ = weight::raise();
        let removal = Removal::default();
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        while self.wait() {
            match multi::attach_plain(&self.program, std::process::id(), &path, &[0]) {
                Ok(link) => removal.add(vec![Link::Multi(link)]),
                Err(error) => {
                    tracing::debug!("probes are set at once only now and then: {error}");
                    return;
                }
            }
            thread::sleep(EVERY);
        }
    }

    /// Waits until a probe is likely; false at the end.
    fn wait(&self) -> bool {
        let is_idle = |state: &mut State| {
            state.is_idle = !state.has_ended && state.wanted.elapsed() > STAYS;
            state.is_idle
        };
        let state = self.changed.wait_while(self.lock(), is_idle);
        !state.unwrap_or_else(PoisonError::into_inner).has_ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
