//! CPU time and memory of a process that reads recordings: one that would take more, whatever it contains, ends the
//! process with a line.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use procfs::process::Process;

use crate::{clock, progress, units};

/// CPU time, nanoseconds, that the reading of any recordings may take, and for each byte of large ones. Honest ones of
/// 180,000 sites take half of that in a debug build.
const TIME: u64 = 6_000_000_000;
const TIME_OF_BYTE: u64 = 120;

/// Bytes of memory that the reading of any recordings may take, and for each byte of large ones.
const MEMORY: u64 = 440 << 20;
const MEMORY_OF_BYTE: u64 = 8;

/// Between two looks: memory grows by some megabytes meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// `None`: nothing was opened yet.
static BUDGET: Mutex<Option<Budget>> = Mutex::new(None);

struct Budget {
    /// The recordings that were opened since the request began, and the sum of their bytes.
    paths: Vec<PathBuf>,
    bytes: u64,
    /// What the process had taken before.
    cpu_ns: u64,
    resident: u64,
}

/// CPU time, nanoseconds, for recordings of this many bytes together.
pub(super) fn time(bytes: u64) -> u64 {
    bytes.saturating_mul(TIME_OF_BYTE).max(TIME)
}

/// Bytes of memory for recordings of this many bytes together.
pub(super) fn memory(bytes: u64) -> u64 {
    bytes.saturating_mul(MEMORY_OF_BYTE).max(MEMORY)
}

/// Watches this process to its end, if it can have one thread more: for a command that reads anybody's recordings.
/// `before_end` runs before it ends the process.
pub(crate) fn watch(before_end: fn()) {
    let watch = move || {
        loop {
            thread::sleep(LOOK);
            look(before_end);
        }
    };
    let _ = thread::Builder::new()
        .name("budget".to_owned())
        .spawn(watch);
}

/// A recording of this many bytes is about to be read, besides those that were opened before.
pub(super) fn add(path: &Path, bytes: u64) {
    let mut budget = lock();
    let budget = budget.get_or_insert_with(|| Budget {
        paths: Vec::new(),
        bytes: 0,
        cpu_ns: cpu_ns(),
        resident: resident(),
    });
    if !budget.paths.iter().any(|known| known == path) {
        budget.paths.push(path.into());
        budget.bytes = budget.bytes.saturating_add(bytes);
    }
}

/// Another request begins.
pub(crate) fn renew() {
    // What the last one has freed is not this one's.
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    *lock() = None;
}

fn look(before_end: fn()) {
    let budget = lock();
    let Some(budget) = &*budget else {
        return;
    };
    let (time, memory) = (time(budget.bytes), memory(budget.bytes));
    let what = if resident().saturating_sub(budget.resident) > memory {
        format!("more than {}", units::size(memory))
    } else if cpu_ns().saturating_sub(budget.cpu_ns) > time {
        "too much time".to_owned()
    } else {
        return;
    };
    let paths: Vec<_> = budget
        .paths
        .iter()
        .map(|path| format!("`{}`", path.display()))
        .collect();
    before_end();
    progress::clear();
    progress::say(&format!(
        "reading {} takes {what}: damaged, or made to harm its reader",
        paths.join(" and ")
    ));
    // SAFETY: no memory is involved. The other threads may be at anything.
    unsafe { libc::_exit(2) }
}

fn lock() -> MutexGuard<'static, Option<Budget>> {
    BUDGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CPU time of this process so far.
fn cpu_ns() -> u64 {
    clock::now_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Resident bytes of this process; 0 if they are not known.
pub(super) fn resident() -> u64 {
    let own = Process::myself().and_then(|own| own.statm());
    own.map_or(0, |statm| statm.resident * procfs::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_recordings_may_take_more() {
        assert_eq!((time(0), memory(0)), (TIME, MEMORY));
        assert_eq!(time(1 << 30), TIME_OF_BYTE << 30);
        assert_eq!(memory(1 << 30), MEMORY_OF_BYTE << 30);
        assert_eq!((time(u64::MAX), memory(u64::MAX)), (u64::MAX, u64::MAX));
    }
}
