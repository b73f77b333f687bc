//! A copy of another process's memory, made by one system call.

use std::io;

/// Fills the buffer with the memory of process `pid` from an absolute address on. It may wait for a file, as
/// [`super::Memory`] does not. Not by `/proc/PID/mem`: while that waits, the process cannot change its mappings.
///
/// # Errors
/// The process is gone or may not be read; `EFAULT`: part of it cannot be read.
pub(crate) fn copy_memory(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: writes to `buffer` alone.
    let read = unsafe { libc::process_vm_readv(pid.cast_signed(), &local, 1, &remote, 1, 0) };
    match usize::try_from(read) {
        Ok(read) if read == buffer.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
