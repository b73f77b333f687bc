//! Surviving SIGBUS while a library reads files through mappings of its own: others may truncate
//! them at any time. What this program reads itself it reads by pread ([`crate::file`]).

use std::{cell::Cell, ptr, sync::OnceLock};

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unguarded,
    Guarded,
    /// Guarded, and a page was gone.
    Hit,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Unguarded) };
}

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs `read`, to which pages that are gone from their file read as zeroes; true if there were any.
pub(crate) fn guarded<T>(read: impl FnOnce() -> T) -> (T, bool) {
    BEFORE.get_or_init(install);
    let outer = STATE.replace(State::Guarded);
    let result = read();
    let hit = STATE.replace(outer) == State::Hit;
    if hit && outer != State::Unguarded {
        STATE.set(State::Hit);
    }
    (result, hit)
}

fn install() -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction; both live.
    unsafe {
        let mut before = std::mem::zeroed::<libc::sigaction>();
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGBUS, ptr::null(), &mut before);
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        before
    }
}

/// Only system calls, and memory that is there: it runs in the middle of anything.
extern "C" fn handle(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel's information about this very signal; a page of zeroes takes the place of
    // one that cannot be read, within a mapping that only a guarded reader uses.
    unsafe {
        let errno = *libc::__errno_location();
        if STATE.get() != State::Unguarded && (*info).si_code == libc::BUS_ADRERR {
            let size = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let page = (*info).si_addr() as usize & !(size - 1);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let zeroes = libc::mmap(page as *mut _, size, libc::PROT_READ, flags, -1, 0);
            if zeroes != libc::MAP_FAILED {
                STATE.set(State::Hit);
                *libc::__errno_location() = errno;
                return;
            }
        }
        // Not ours: it happens again, to whoever handled it before.
        if let Some(before) = BEFORE.get() {
            libc::sigaction(libc::SIGBUS, before, ptr::null_mut());
        } else {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    #[test]
    fn what_is_gone_reads_as_zeroes_and_is_told() {
        let file = file::of_bytes(&[7; 3 * 4096]).unwrap();
        // SAFETY: reads of it are guarded.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let sum = || map.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(guarded(sum), (7 * 3 * 4096, false));
        file.set_len(4096).unwrap();
        assert_eq!(guarded(|| guarded(sum)), ((7 * 4096, true), true));
        // The page stays; a later reader is not told again.
        assert_eq!(guarded(sum), (7 * 4096, false));
    }
}
