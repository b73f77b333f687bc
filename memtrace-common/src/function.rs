//! How to read the arguments and the result of a probed function. Two generic programs (entry,
//! return) serve every function of an allocator of memory, two more those of devices; the
//! differences travel as the probe's cookie, so a new allocator is a row of data, not new kernel
//! code.

use crate::{
    Layer,
    wire::{Bits, wire_enum},
};

wire_enum! {
    /// The effect of a call on the ledger, or on the kernel side's state of a thread.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Operation: u8 {
        /// Allocates a block.
        Alloc = 1,
        /// Releases a block; needs no return probe.
        Free = 2,
        /// Releases a block and allocates another (or the same).
        Realloc = 3,
        /// Reports the block `block` that an allocator handed out or took back (`c10::reportMemoryUsageToProfiler`) or,
        /// without one, that it is out of memory: bytes in the argument `size`, then its total in blocks, its total
        /// held, and the device. Needs no return probe.
        Report = 4,
        /// Maps physical memory: address, size, offset, handle, as cuMemMap.
        Map = 5,
        /// Unmaps a range: address, size. Needs no return probe.
        Unmap = 6,
        /// Gives one more reference to physical memory, written where the first argument points.
        Retain = 7,
        /// Makes the device whose index is the first argument the thread's current one.
        SetDevice = 8,
        /// Gives a context of the device whose index is the argument `size`, written where the first
        /// argument points.
        RetainContext = 9,
        /// As `RetainContext`, and puts it on top of the thread's.
        CreateContext = 10,
        /// Replaces the thread's topmost context by the first argument.
        SetContext = 11,
        /// Puts the first argument on top of the thread's contexts.
        PushContext = 12,
        /// Removes the thread's topmost context.
        PopContext = 13,
        /// Looks up a function's address by name: name, where to write the address.
        Resolve = 14,
        /// Queries an attribute of a pool: pool, attribute, where to write it.
        PoolAttribute = 15,
    }
}

impl Operation {
    /// Whether the outcome matters, so that the function's return is probed as well.
    pub const fn needs_return(self) -> bool {
        !matches!(self, Self::Free | Self::Report | Self::Unmap)
    }

    /// Whether it allocates memory.
    pub const fn gives(self) -> bool {
        matches!(self, Self::Alloc | Self::Realloc)
    }
}

wire_enum! {
    /// Where the result is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Outcome: u8 {
        /// The returned value is the address; 0 means failure.
        Pointer = 0,
        /// The returned value is an error code, 0 for success; the address was
        /// written where the first argument points.
        ErrorAndOutPointer = 1,
        /// The returned value is an error code, 0 for success; the address is the argument `block`.
        ErrorAndBlock = 2,
        /// The address is the argument `block`; nothing is returned, and nothing can fail.
        Block = 3,
    }
}

wire_enum! {
    /// How a block's size follows from the arguments, for functions of devices.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Measure: u8 {
        /// The argument `size`, times the argument `count` where there is one.
        Arguments = 0,
        /// Rows of the argument `size` in bytes, as many as the argument `count`; how far apart they
        /// are is written where the second argument points.
        Pitched = 1,
        /// A `cudaExtent` on the stack, whose rows are as far apart as the second word says where the
        /// first argument points (`cudaPitchedPtr`).
        PitchedExtent = 2,
        /// Elements of a `cudaChannelFormatDesc` (second argument), `size` times `count` of them.
        Channels = 3,
        /// Elements of a `cudaChannelFormatDesc` (second argument), in a `cudaExtent` on the stack; as
        /// many levels, each half of the one before, as the argument `count` says.
        ChannelsExtent = 4,
        /// A `CUDA_ARRAY_DESCRIPTOR` (second argument).
        Array = 5,
        /// A `CUDA_ARRAY3D_DESCRIPTOR` (second argument), with levels as in `ChannelsExtent`.
        Array3D = 6,
        /// A `CUDA_MEM_ALLOC_NODE_PARAMS` (fifth argument), which gets the address as well.
        GraphNode = 7,
        /// Physical memory of the argument `size`; the device is in the `CUmemAllocationProp` that the
        /// third argument points to.
        Physical = 8,
        /// Another process's memory: nothing of this one's.
        Foreign = 9,
    }
}

/// Marks an argument that a function does not have.
pub const NO_ARGUMENT: u8 = 15;

/// Description of one probed function. Arguments are indices of the platform's
/// integer argument registers, 0 to 5, or [`NO_ARGUMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub operation: Operation,
    pub layer: Layer,
    pub outcome: Outcome,
    /// Argument that holds the size in bytes.
    pub size: u8,
    /// Argument that multiplies the size (calloc, reallocarray).
    pub count: u8,
    /// Argument that holds the block to take.
    pub block: u8,
    pub measure: Measure,
    /// The memory comes from a stream's pool.
    pub stream_ordered: bool,
    /// A C++ exception may leave it instead of a result.
    pub may_throw: bool,
    /// Number of the probed function, so that no two have the same cookie: the kernel side uses it
    /// to distinguish a tail call from a call that never returned.
    pub index: u16,
}

/// Where a cookie has what.
mod bits {
    use super::Bits;

    pub(super) const OPERATION: Bits = Bits::lowest(8);
    pub(super) const LAYER: Bits = OPERATION.then(4);
    pub(super) const OUTCOME: Bits = LAYER.then(4);
    pub(super) const SIZE: Bits = OUTCOME.then(4);
    pub(super) const COUNT: Bits = SIZE.then(4);
    pub(super) const BLOCK: Bits = COUNT.then(4);
    pub(super) const MEASURE: Bits = BLOCK.then(4);
    pub(super) const STREAM_ORDERED: Bits = MEASURE.then(1);
    pub(super) const MAY_THROW: Bits = STREAM_ORDERED.then(1);
    pub(super) const INDEX: Bits = MAY_THROW.then(16);
    pub(super) const NESTED: Bits = INDEX.then(1);
}

const _: () = assert!(bits::OPERATION.hold(Operation::MAX));
const _: () = assert!(bits::LAYER.hold(Layer::MAX));
const _: () = assert!(bits::OUTCOME.hold(Outcome::MAX));
const _: () = assert!(bits::MEASURE.hold(Measure::MAX));
const _: () = assert!(bits::SIZE.hold(NO_ARGUMENT as u64));
const _: () = assert!(bits::COUNT.hold(NO_ARGUMENT as u64));
const _: () = assert!(bits::BLOCK.hold(NO_ARGUMENT as u64));

impl Function {
    /// Packs the description into a probe's cookie; never 0.
    pub const fn cookie(self) -> u64 {
        bits::OPERATION.of(self.operation as u64)
            | bits::LAYER.of(self.layer as u64)
            | bits::OUTCOME.of(self.outcome as u64)
            | bits::SIZE.of(self.size as u64)
            | bits::COUNT.of(self.count as u64)
            | bits::BLOCK.of(self.block as u64)
            | bits::MEASURE.of(self.measure as u64)
            | bits::STREAM_ORDERED.of(self.stream_ordered as u64)
            | bits::MAY_THROW.of(self.may_throw as u64)
            | bits::INDEX.of(self.index as u64)
    }

    /// Whether it is one for the programs that know devices.
    pub const fn of_device(self) -> bool {
        self.layer.of_device()
    }
}

/// Set by the kernel side in the cookie of a call: another call of its layer was in flight.
pub const NESTED: u64 = bits::NESTED.of(1);

/// A cookie taken apart on the kernel side, where a failed decode would only
/// cost instructions: the user side packs it, nobody else.
#[derive(Clone, Copy)]
pub struct Cookie(pub u64);

impl Cookie {
    /// An [`Operation`] as integer.
    pub const fn operation(self) -> u8 {
        bits::OPERATION.get(self.0) as u8
    }
    /// A [`Layer`] as integer.
    pub const fn layer(self) -> u8 {
        bits::LAYER.get(self.0) as u8
    }
    /// An [`Outcome`] as integer.
    pub const fn outcome(self) -> u8 {
        bits::OUTCOME.get(self.0) as u8
    }
    pub const fn size(self) -> u8 {
        bits::SIZE.get(self.0) as u8
    }
    pub const fn count(self) -> u8 {
        bits::COUNT.get(self.0) as u8
    }
    pub const fn block(self) -> u8 {
        bits::BLOCK.get(self.0) as u8
    }
    /// A [`Measure`] as integer.
    pub const fn measure(self) -> u8 {
        bits::MEASURE.get(self.0) as u8
    }
    pub const fn stream_ordered(self) -> bool {
        bits::STREAM_ORDERED.get(self.0) != 0
    }
    pub const fn may_throw(self) -> bool {
        bits::MAY_THROW.get(self.0) != 0
    }
    pub const fn index(self) -> u32 {
        bits::INDEX.get(self.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_round_trip() {
        let calloc = Function {
            operation: Operation::Alloc,
            layer: Layer::Heap,
            outcome: Outcome::ErrorAndOutPointer,
            size: 1,
            count: 5,
            block: NO_ARGUMENT,
            measure: Measure::Foreign,
            stream_ordered: true,
            may_throw: true,
            index: 0xbeef,
        };
        let cookie = Cookie(calloc.cookie());
        assert_eq!(cookie.operation(), Operation::Alloc as u8);
        assert_eq!(cookie.layer(), Layer::Heap as u8);
        assert_eq!(cookie.outcome(), Outcome::ErrorAndOutPointer as u8);
        assert_eq!(cookie.size(), 1);
        assert_eq!(cookie.count(), 5);
        assert_eq!(cookie.block(), NO_ARGUMENT);
        assert_eq!(cookie.measure(), Measure::Foreign as u8);
        assert!(cookie.stream_ordered());
        assert!(cookie.may_throw());
        assert_eq!(cookie.index(), 0xbeef);
    }
}
