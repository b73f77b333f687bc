//! The maps by which the kernel side and the holder speak (see [`crate::hold`]).

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use aya::{
    Ebpf,
    maps::{Array, HashMap, Map, MapData, MapError},
};

use memtrace_common::event::Unwinding;

use super::{error::TracerError, maps::descriptor, raw::Raw};
use crate::hold::Stops;

/// Descriptors of the maps, which the holder inherits.
pub(crate) struct StopMaps([OwnedFd; 3]);

impl StopMaps {
    pub(super) fn of(ebpf: &Ebpf) -> Result<Self, TracerError> {
        Ok(Self([
            descriptor(ebpf, "STOPPED")?,
            descriptor(ebpf, "UNWINDING")?,
            descriptor(ebpf, "RECORDING")?,
        ]))
    }

    pub(crate) fn descriptors(&self) -> &[OwnedFd] {
        &self.0
    }

    /// Threads that the kernel side has marked and that were not handled yet.
    pub(super) fn marked(&self) -> Vec<u32> {
        let [stopped, unwinding, _] = &self.0;
        let map = |fd: &OwnedFd| Some(Map::HashMap(MapData::from_fd(fd.try_clone().ok()?).ok()?));
        let stopped = map(stopped).and_then(|map| HashMap::<_, u32, u32>::try_from(map).ok());
        let unwinding =
            map(unwinding).and_then(|map| HashMap::<_, u32, Raw<Unwinding>>::try_from(map).ok());
        let mut marked = Vec::new();
        if let Some(map) = stopped {
            marked.extend(map.keys().filter_map(Result::ok));
        }
        if let Some(map) = unwinding {
            marked.extend(map.keys().filter_map(Result::ok));
        }
        marked
    }
}

/// The same maps, opened by the holder.
pub(crate) struct OpenStopMaps {
    stopped: HashMap<MapData, u32, u32>,
    unwinding: HashMap<MapData, u32, Raw<Unwinding>>,
    recording: Array<MapData, u32>,
}

impl OpenStopMaps {
    /// Opens the descriptors from [`StopMaps::descriptors`], in the same order.
    ///
    /// # Errors
    /// A descriptor is not that of such a map.
    pub(crate) fn open([stopped, unwinding, recording]: [RawFd; 3]) -> Result<Self, MapError> {
        let map = |fd: RawFd| {
            // SAFETY: the parent has left it open for this process to own.
            MapData::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        Ok(Self {
            stopped: HashMap::try_from(Map::HashMap(map(stopped)?))?,
            unwinding: HashMap::try_from(Map::HashMap(map(unwinding)?))?,
            recording: Array::try_from(Map::Array(map(recording)?))?,
        })
    }
}

impl Stops for OpenStopMaps {
    fn take(&mut self, tid: u32) -> bool {
        self.stopped.remove(&tid).is_ok()
    }

    fn take_returns(&mut self, tid: u32) -> Option<Unwinding> {
        let unwinding = self.unwinding.get(&tid, 0).ok()?;
        // One that was looked up can be removed.
        let _ = self.unwinding.remove(&tid);
        Some(unwinding.0)
    }

    fn is_empty(&self) -> bool {
        self.stopped.keys().next().is_none()
    }

    fn end_recording(&mut self) {
        // A map that is there can be written.
        let _ = self.recording.set(0, 0, 0);
    }
}
