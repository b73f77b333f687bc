//! The maps by which the kernel side and the pauser speak (see [`crate::pause`]).

use std::{
    io,
    os::fd::{AsFd, FromRawFd, OwnedFd, RawFd},
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, Map, MapData, MapError},
};

use memtrace_common::{
    element::{Table, slot},
    event::Unwinding,
};

use super::{
    elements::{ElementMap, Elements},
    error::TracerError,
    maps::descriptor,
    raw::Raw,
};
use crate::pause::Stops;

/// The maps, for the pauser, and for the end of a recording.
pub(crate) struct StopMaps {
    /// Descriptors that the pauser inherits.
    inherited: [OwnedFd; INHERITED],
    unwinding: OwnedFd,
}

const INHERITED: usize = 4;

impl StopMaps {
    /// With `program` and `slots`, by which elements are read and written.
    pub(super) fn of(ebpf: &Ebpf, program: &OwnedFd, slots: &OwnedFd) -> Result<Self, TracerError> {
        let own = |fd: &OwnedFd| fd.try_clone().map_err(TracerError::State);
        Ok(Self {
            inherited: [
                descriptor(ebpf, "STOPPED")?,
                descriptor(ebpf, "RECORDING")?,
                own(program)?,
                own(slots)?,
            ],
            unwinding: descriptor(ebpf, "UNWINDING")?,
        })
    }

    /// For [`OpenStopMaps::open`].
    pub(crate) fn descriptors(&self) -> &[OwnedFd] {
        &self.inherited
    }

    /// Threads that the kernel side has marked and that were not handled yet.
    pub(super) fn marked(&self) -> Vec<u32> {
        let [stopped, ..] = &self.inherited;
        let map = |fd: &OwnedFd| Some(Map::HashMap(MapData::from_fd(fd.try_clone().ok()?).ok()?));
        let stopped = map(stopped).and_then(|map| HashMap::<_, u32, u32>::try_from(map).ok());
        let unwinding = map(&self.unwinding)
            .and_then(|map| HashMap::<_, u32, Raw<Unwinding>>::try_from(map).ok());
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

/// The same maps, opened by the pauser.
pub(crate) struct OpenStopMaps {
    stopped: ElementMap<u32, u32>,
    /// The keys of `stopped`.
    marked: HashMap<MapData, u32, u32>,
    unwinding: ElementMap<u32, Unwinding>,
    recording: Array<MapData, u32>,
}

impl OpenStopMaps {
    /// Opens the descriptors from [`StopMaps::descriptors`], in the same order.
    ///
    /// # Errors
    /// A descriptor is missing, or is not that of such a map.
    pub(crate) fn open(descriptors: &[RawFd]) -> Result<Self, MapError> {
        let descriptors: [RawFd; INHERITED] = descriptors
            .try_into()
            .map_err(|_| MapError::IoError(io::ErrorKind::InvalidInput.into()))?;
        // SAFETY: the parent has left them open for this process to own.
        let [stopped, recording, program, slots] =
            descriptors.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let elements =
            Elements::new(program, slots.as_fd(), slot::HOLDER).map_err(MapError::IoError)?;
        Ok(Self {
            stopped: ElementMap::new(&elements, Table::Stopped),
            marked: HashMap::try_from(Map::HashMap(MapData::from_fd(stopped)?))?,
            unwinding: ElementMap::new(&elements, Table::Unwinding),
            recording: Array::try_from(Map::Array(MapData::from_fd(recording)?))?,
        })
    }
}

impl Stops for OpenStopMaps {
    fn take(&mut self, tid: u32) -> bool {
        self.stopped.remove(tid).is_ok()
    }

    fn take_returns(&mut self, tid: u32) -> Option<Unwinding> {
        let unwinding = self.unwinding.get(tid).ok()?;
        // One that was looked up can be removed.
        let _ = self.unwinding.remove(tid);
        Some(unwinding)
    }

    fn is_empty(&self) -> bool {
        self.marked.keys().next().is_none()
    }

    fn end_recording(&mut self) {
        // A map that is there can be written.
        let _ = self.recording.set(0, 0, 0);
    }
}
