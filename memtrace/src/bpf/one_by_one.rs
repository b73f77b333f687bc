//! Uprobes one by one, each by a perf event.

use std::os::fd::{AsFd, BorrowedFd};

use aya::{Ebpf, programs::UProbe};

use super::{
    error::TracerError,
    event::{self, Place},
    exit::uninterrupted,
    link::Link,
    object::program,
};

/// Attaches a program to one place of the file at `path`, in all threads of a process. `symbol` names it in errors.
///
/// # Errors
/// The process is gone, or the kernel cannot probe the place.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    tgid: u32,
    path: &str,
    (symbol, place): (&str, Place),
    cookie: u64,
) -> Result<Link, TracerError> {
    uninterrupted(|| event::attach(program, tgid, path, place, cookie))
        .map(Link::Event)
        .map_err(|source| TracerError::Uprobe {
            symbol: symbol.to_owned(),
            tgid,
            source,
        })
}

/// A loaded program of the object.
pub(super) fn loaded<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<BorrowedFd<'a>, TracerError> {
    let uprobe: &mut UProbe = program(ebpf, name)?;
    match uprobe.fd() {
        Ok(fd) => Ok(fd.as_fd()),
        Err(source) => Err(TracerError::Program {
            program: name,
            source,
        }),
    }
}
