//! What is asked of a stopped thread.

use std::io;

/// A request of ptrace(2). The C libraries declare it differently.
#[cfg(target_env = "musl")]
pub(crate) type Request = std::ffi::c_int;
#[cfg(not(target_env = "musl"))]
pub(crate) type Request = std::ffi::c_uint;

/// A stopped thread that this one traces.
#[cfg_attr(
    not(target_arch = "aarch64"),
    allow(dead_code, reason = "elsewhere registers tell everything")
)]
pub(crate) trait Tracee {
    fn ask(&self, request: Request, addr: usize, data: usize) -> io::Result<()>;

    /// A word of its memory.
    fn read(&self, address: u64) -> Option<u64>;

    /// Whether a signal is being delivered or is pending that the program has a handler for.
    fn is_about_to_handle_a_signal(&self) -> bool;
}
