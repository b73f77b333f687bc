//! The place of a site's memory.

use crate::{
    event::{Device, Layer},
    ledger::SiteKey,
};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The process's own.
    Host,
    Device(Device),
    /// The host's, locked for a device.
    Locked,
    /// Within another site's memory: PyTorch's tensors are in the heap, blocks of a caching
    /// allocator in its segments.
    Within,
}

pub(crate) fn place(key: &SiteKey) -> Place {
    match key.layer {
        Layer::Vm | Layer::Heap | Layer::Python => Place::Host,
        Layer::Pinned => Place::Locked,
        layer if key.by_allocator || !layer.of_device() => Place::Within,
        _ => Place::Device(key.device),
    }
}
