//! Memory and CPU time of a process that reads recordings: one that is made to take more, by whatever it contains, ends
//! the process with a line.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use procfs::process::Process;

use crate::{progress, units};

/// Time that a request may take, and for each byte of its recordings.
const TIME: Duration = Duration::from_secs(4);
const TIME_OF_BYTE: Duration = Duration::from_nanos(100);

/// Memory that a request may take, and for each byte of its recordings.
const MEMORY: u64 = 256 << 20;
const MEMORY_OF_BYTE: u64 = 8;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// `None`: nothing was opened yet.
static BUDGET: Mutex<Option<Budget>> = Mutex::new(None);

struct Budget {
    /// The recordings that were opened since the request began.
    paths: Vec<PathBuf>,
    /// This process's may have this at most.
    cpu_ns: u64,
    resident: u64,
}

/// Watches this process to its end, if it can have a thread more: for a command that reads recordings of anybody.
pub(crate) fn watch() {
    let watch = || {
        loop {
            thread::sleep(LOOK);
            look();
        }
    };
    let _ = thread::Builder::new()
        .name("budget".to_owned())
        .spawn(watch);
}

/// A recording is about to be read, besides those that were opened before.
pub(super) fn add(path: &Path, file: &Metadata) {
    // A file with holes is no larger than what it contains.
    let bytes = file.len().min(file.blocks() * 512);
    let mut budget = lock();
    let budget = budget.get_or_insert_with(|| Budget {
        paths: Vec::new(),
        cpu_ns: cpu_ns() + nanoseconds(TIME),
        resident: MEMORY,
    });
    if !budget.paths.iter().any(|known| known == path) {
        budget.paths.push(path.into());
        let time = bytes.saturating_mul(nanoseconds(TIME_OF_BYTE));
        budget.cpu_ns = budget.cpu_ns.saturating_add(time);
        let memory = bytes.saturating_mul(MEMORY_OF_BYTE);
        budget.resident = budget.resident.saturating_add(memory);
    }
}

/// Another request begins.
pub(crate) fn renew() {
    *lock() = None;
}

fn look() {
    let budget = lock();
    let Some(budget) = &*budget else {
        return;
    };
    let what = if resident() > budget.resident {
        format!("more than {}", units::size(budget.resident))
    } else if cpu_ns() > budget.cpu_ns {
        "too much time".to_owned()
    } else {
        return;
    };
    let path = budget.paths.last().map(|path| path.display());
    let path = path.map(|path| path.to_string()).unwrap_or_default();
    progress::clear();
    progress::say(&format!(
        "`{path}` is damaged, or made to harm its reader: it takes {what} to read"
    ));
    // SAFETY: no memory is involved. The other threads may be at anything.
    unsafe { libc::_exit(2) }
}

fn lock() -> MutexGuard<'static, Option<Budget>> {
    BUDGET.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this process so far.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Resident bytes of this process; 0 if they are not known.
fn resident() -> u64 {
    let own = Process::myself().and_then(|own| own.statm());
    own.map_or(0, |statm| statm.resident * procfs::page_size())
}
