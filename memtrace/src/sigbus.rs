//! Survives SIGBUS while a library reads files through mappings of its own: others may truncate
//! them at any time. memtrace itself reads files by pread ([`crate::file`]).

use std::{
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering, compiler_fence},
    },
};

const UNGUARDED: u8 = 0;
const GUARDED: u8 = 1;
/// Guarded, and a page was gone.
const HIT: u8 = 2;

thread_local! {
    /// The state of the thread. Atomic, because a signal handler changes it in the middle of
    /// anything.
    static STATE: AtomicU8 = const { AtomicU8::new(UNGUARDED) };
}

fn swap(state: u8) -> u8 {
    compiler_fence(Ordering::SeqCst);
    let before = STATE.with(|now| now.swap(state, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
    before
}

/// The previous action of SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs `read`, to which pages that are gone from their file read as zeroes; true if there were any.
pub(crate) fn guarded<T>(read: impl FnOnce() -> T) -> (T, bool) {
    BEFORE.get_or_init(install);
    let outer = swap(GUARDED);
    let result = read();
    let hit = swap(outer) == HIT;
    if hit && outer != UNGUARDED {
        swap(HIT);
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
        if STATE.with(|now| now.load(Ordering::Relaxed)) != UNGUARDED
            && (*info).si_code == libc::BUS_ADRERR
        {
            let size = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let page = (*info).si_addr() as usize & !(size - 1);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let zeroes = libc::mmap(page as *mut _, size, libc::PROT_READ, flags, -1, 0);
            if zeroes != libc::MAP_FAILED {
                swap(HIT);
                *libc::__errno_location() = errno;
                return;
            }
        }
        // Not ours: it happens again, with the previous handler.
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
    fn truncated_pages_read_as_zeroes_and_are_reported() {
        let file = file::of_bytes(&[7; 3 * 4096]).unwrap();
        // SAFETY: reads of it are guarded.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let sum = || map.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(guarded(sum), (7 * 3 * 4096, false));
        file.set_len(4096).unwrap();
        assert_eq!(guarded(|| guarded(sum)), ((7 * 4096, true), true));
        // The page stays; later reads raise no further signal.
        assert_eq!(guarded(sum), (7 * 4096, false));
    }
}
