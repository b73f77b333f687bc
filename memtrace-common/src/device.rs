//! Records about device memory (GPUs), and the kernel side's input for them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{event::Header, wire::wire_enum};

/// The current device of a thread: its index + 1. 0: the thread was not seen choosing one.
pub type Current = u32;

/// [`crate::event::Kind::DeviceAlloc`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Alloc {
    pub header: Header,
    /// Address or handle; 0 where the call failed.
    pub addr: u64,
    /// Requested bytes; for pitched and array memory, computed from its dimensions.
    pub size: u64,
    /// As in [`crate::event::Alloc::stack`].
    pub stack: u64,
    /// A [`Current`].
    pub device: u32,
    /// The function's return value; 0 for success.
    pub error: u32,
}

/// [`crate::event::Kind::DeviceReport`], as `c10::reportMemoryUsageToProfiler` is called, or
/// `c10::reportOutOfMemoryToProfiler`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Report {
    pub header: Header,
    /// The block; 0 if there was no memory.
    pub addr: u64,
    /// Bytes, as the allocator rounds them; negative when the block is released.
    pub size: i64,
    /// As in [`crate::event::Alloc::stack`]; 0 for a release.
    pub stack: u64,
    /// Bytes in blocks, and total bytes held, on this device afterwards.
    pub allocated: u64,
    pub reserved: u64,
    /// Index of the device.
    pub device: u32,
    pub pad: u32,
}

/// Several kinds, see [`crate::event::Kind`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Range {
    pub header: Header,
    pub addr: u64,
    pub len: u64,
    pub handle: u64,
    /// A [`Current`].
    pub device: u32,
    pub pad: u32,
}

wire_enum! {
    /// Figures of a driver's pool: cudaMemPoolAttr… of driver_types.h.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u64)]
    pub enum Pool: u64 {
        Reserved = 5,
        PeakReserved = 6,
        Used = 7,
        PeakUsed = 8,
    }
}

/// Bytes of the longest name in the ENTRY_POINTS map, its end included.
pub const NAME: usize = 48;

/// Key of the ENTRY_POINTS map: the name of a function that is requested from the driver by name,
/// padded with zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct EntryPoint {
    pub name: [u8; NAME],
}

impl EntryPoint {
    /// `None` for a name that is too long.
    pub fn new(name: &str) -> Option<Self> {
        let mut padded = [0; NAME];
        // The last byte stays 0.
        padded[..NAME - 1]
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        Some(Self { name: padded })
    }
}

/// Key of the CONTEXTS map: a driver context of a process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct ContextKey {
    pub context: u64,
    pub tgid: u32,
    pub pad: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_padded_and_end() {
        let key = EntryPoint::new("cuMemMap").unwrap();
        assert!(key.name.starts_with(b"cuMemMap\0"));
        assert!(EntryPoint::new(&"x".repeat(NAME - 1)).is_some());
        assert!(EntryPoint::new(&"x".repeat(NAME)).is_none());
    }
}
