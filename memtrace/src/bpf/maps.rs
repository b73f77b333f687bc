//! The maps of the loaded object, by their names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::{Ebpf, maps::Map};

use super::error::TracerError;

/// A map that `ebpf` then holds no more.
pub(super) fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, TracerError> {
    ebpf.take_map(name).ok_or(TracerError::Missing(name))
}

/// A descriptor of our own of a map that is still in `ebpf`.
pub(super) fn descriptor(ebpf: &Ebpf, name: &'static str) -> Result<OwnedFd, TracerError> {
    ebpf.map(name)
        .and_then(map_fd)
        .ok_or(TracerError::Missing(name))?
        .try_clone_to_owned()
        .map_err(TracerError::State)
}

/// Descriptor of a map of one of the types that the kernel side uses.
pub(super) fn map_fd(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerfEventArray(data)
        | Map::ProgramArray(data)
        | Map::RingBuf(data)
        | Map::StackTraceMap(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}
