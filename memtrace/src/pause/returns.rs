//! Return addresses of a stopped thread that the kernel side has replaced.

use memtrace_common::event::Unwinding;
use std::{fs, io, os::unix::fs::FileExt};

/// Puts the return addresses of a stopped thread back.
pub(super) fn restore(unwinding: &Unwinding) -> io::Result<()> {
    let path = format!("/proc/{}/mem", unwinding.tgid);
    let memory = fs::File::options().write(true).open(path)?;
    let returns = unwinding.returns.iter().take(unwinding.n as usize);
    for entry in returns {
        memory.write_all_at(&entry.original.to_ne_bytes(), entry.slot)?;
    }
    Ok(())
}
