//! The weight of a thread for the scheduler.

use std::io;

/// Ten times the weight of an ordinary thread (sched(7), "The nice value").
pub(crate) const NICE: i32 = -10;

/// Lets the calling thread run before ordinary ones: others wait for its short work. Not if whoever started memtrace gave
/// it another weight. Async-signal-safe.
///
/// # Errors
/// CAP_SYS_NICE is missing.
pub(crate) fn raise() -> io::Result<()> {
    // SAFETY: no memory is involved; 0 is this thread.
    let failed = unsafe {
        libc::getpriority(libc::PRIO_PROCESS, 0) == 0
            && libc::setpriority(libc::PRIO_PROCESS, 0, NICE) != 0
    };
    match failed {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}
