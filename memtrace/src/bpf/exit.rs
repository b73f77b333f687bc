//! The end of this process from any thread. The kernel leaves breakpoints behind if it kills a thread that sets or removes
//! probes.

use std::{
    fs,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::grace;

/// Longest wait for threads that set or remove probes. Only the kernel can hold them up.
const PATIENCE: Duration = Duration::from_secs(2);

static CALLS: (Mutex<Calls>, Condvar) = (
    Mutex::new(Calls {
        running: 0,
        is_last: false,
    }),
    Condvar::new(),
);

struct Calls {
    /// Threads that set or remove probes.
    running: usize,
    /// The process is about to end; no further ones may begin.
    is_last: bool,
}

/// Sets or removes probes, by a call that [`remove_probes`] must wait for.
pub(super) fn uninterrupted<T>(call: impl FnOnce() -> T) -> T {
    let begun = CALLS.1.wait_while(lock(), |calls| calls.is_last);
    begun.unwrap_or_else(PoisonError::into_inner).running += 1;
    let result = call();
    lock().running -= 1;
    CALLS.1.notify_all();
    result
}

/// Removes every probe of this process, which must end next: other threads that set or remove one wait for ever.
pub(crate) fn remove_probes() {
    let _short = grace::shorten();
    let mut calls = lock();
    calls.is_last = true;
    let waited = CALLS
        .1
        .wait_timeout_while(calls, PATIENCE, |calls| calls.running != 0);
    drop(waited);
    close_links();
    grace::restore();
}

fn close_links() {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    for descriptor in descriptors.flatten() {
        let is_link = fs::read_link(descriptor.path()).is_ok_and(|target| {
            let target = target.to_string_lossy();
            target.contains("bpf_link") || target.contains("perf_event")
        });
        let number = descriptor
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let (true, Some(number)) = (is_link, number) {
            // SAFETY: its owner never gets to use it: the process ends.
            unsafe { libc::close(number) };
        }
    }
}

fn lock() -> MutexGuard<'static, Calls> {
    CALLS.0.lock().unwrap_or_else(PoisonError::into_inner)
}
