//! Uprobes one by one, each by a perf event.

use std::{
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use aya::{
    Ebpf,
    programs::{
        ProbeKind, ProgramError, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
    },
};

use super::{error::TracerError, event, exit::uninterrupted, link::Link};
use crate::probes::Probe;

/// Attaches a program of the object to one place.
pub(super) fn attach_one(
    ebpf: &mut Ebpf,
    program: &'static str,
    tgid: u32,
    path: &str,
    (probe, cookie, (offset, semaphore)): (&Probe, Option<u64>, (u64, u64)),
) -> Result<Link, TracerError> {
    let failed = |source| TracerError::Uprobe {
        symbol: probe.symbol.clone(),
        tgid,
        source,
    };
    let uprobe = uprobe(ebpf, program)?;
    if semaphore != 0 {
        let at_return = matches!(uprobe.kind(), ProbeKind::Return);
        let program = uprobe.fd().map_err(failed)?.as_fd();
        let place = (offset, semaphore, at_return);
        return attach_event(program, tgid, path, place, (probe, cookie.unwrap_or(0)));
    }
    attach_at(uprobe, tgid, path, offset, cookie).map_err(failed)
}

/// Attaches another program to one place.
pub(super) fn attach_event(
    program: BorrowedFd<'_>,
    tgid: u32,
    path: &str,
    place: (u64, u64, bool),
    (probe, cookie): (&Probe, u64),
) -> Result<Link, TracerError> {
    let attach = || event::attach(program, tgid, path, place, cookie);
    uninterrupted(attach)
        .map(Link::Event)
        .map_err(|source| TracerError::Uprobe {
            symbol: probe.symbol.clone(),
            tgid,
            source: source.into(),
        })
}

/// Attaches a loaded program in all threads of a process.
pub(super) fn attach_at(
    uprobe: &mut UProbe,
    tgid: u32,
    path: &str,
    offset: u64,
    cookie: Option<u64>,
) -> Result<Link, ProgramError> {
    let pid =
        NonZeroU32::new(tgid).ok_or(std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let point = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(offset),
        cookie,
    };
    let attach = || uprobe.attach(point, Path::new(path), UProbeScope::OneProcess(pid));
    let id = uninterrupted(attach)?;
    uprobe.take_link(id).map(Link::Perf)
}

/// A program of the object.
pub(super) fn uprobe<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut UProbe, TracerError> {
    ebpf.program_mut(name)
        .ok_or(TracerError::Missing(name))?
        .try_into()
        .map_err(|source| TracerError::Program {
            program: name,
            source,
        })
}
