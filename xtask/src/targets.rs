//! Programs of `tests/targets/` that tasks build, start and record: what `verdicts` and `field` share.

pub(crate) mod building;
pub(crate) mod marks;
pub(crate) mod running;
pub(crate) mod share;

use crate::command;
use anyhow::{Context, Result, bail};
use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

/// The mode argument of a program, also in the names of its files.
pub(crate) const fn mode(leaks: bool) -> &'static str {
    if leaks { "leak" } else { "ok" }
}

/// Does something with each item, several at a time. The first error ends one job, and is returned.
pub(crate) fn each<T: Sync>(
    items: &[T],
    jobs: usize,
    action: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            action(item)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        jobs.into_iter().try_for_each(|job| match job.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Does something beside so many busy threads.
pub(crate) fn beside_load<T>(threads: usize, action: impl FnOnce() -> T) -> T {
    /// Ends the threads, even if the action panics.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let busy = AtomicBool::new(true);
    thread::scope(|scope| {
        let _end = End(&busy);
        for _ in 0..threads {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        action()
    })
}

/// Runs memtrace quietly.
///
/// # Errors
/// It cannot be started, or fails.
pub(crate) fn check(record: &mut Command) -> Result<()> {
    record.stderr(Stdio::null());
    let status = record.status().context("cannot start memtrace")?;
    if !status.success() {
        bail!("`{}` failed: {status}", command::shown(record));
    }
    Ok(())
}
