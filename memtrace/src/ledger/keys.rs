//! The keys of the figures: a process, and an allocation site of it.

use crate::event::{Device, Layer, StackId};

/// A process of the recording (a tgid may come back; an id does not). From 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// An allocation site: process, layer and stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteKey {
    pub process: ProcessId,
    pub layer: Layer,
    pub stack: StackId,
    /// The layer's caller was itself an allocator (mappings, and device memory).
    pub by_allocator: bool,
    /// The device of its memory; also `None` for memory of no device.
    pub device: Device,
}
