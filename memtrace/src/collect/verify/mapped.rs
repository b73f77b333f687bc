//! Executable mappings, as the walks need them.

use crate::collect::location::ModuleIndex;

/// An executable mapping from `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) file_offset: u64,
    pub(super) module: Option<ModuleIndex>,
}
