//! Limits that a shell may have set for memtrace (`ulimit`), and that would end it without a word.

use std::ptr;

/// Bytes of stack that memtrace may need.
const STACK: usize = 8 << 20;

/// Runs `main` such that a file that becomes too large is an error (`ulimit -f`), and with enough stack (`ulimit -s`): on
/// this thread, because it may be the tracer of others.
pub fn within_ulimits<T>(main: impl FnOnce() -> T) -> T {
    handle_file_size();
    match stack_limit() < STACK as u64 {
        true => stacker::grow(STACK, main),
        false => main(),
    }
}

/// Unlike an ignored signal, one with a handler is not inherited by the programs that memtrace starts.
fn handle_file_size() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all-zero bytes are a valid sigaction, which lives; the handler does nothing.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGXFSZ, ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_DFL
        {
            now.sa_sigaction = nothing as *const () as usize;
            now.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &raw const now, ptr::null_mut());
        }
    }
}

/// Bytes.
fn stack_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    limit.rlim_cur
}
