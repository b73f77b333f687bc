//! Events as the user side handles them: decoded, with stacks as [`StackId`]s.
//! Pure data: nothing here knows where an event came from.

pub use memtrace_common::Layer;
pub(crate) use memtrace_common::device::Pool;

/// A distinct stack of the recording. Equal stacks (same files, same file
/// offsets) have equal ids, also across processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack could be taken, or it was lost.
    pub const UNKNOWN: StackId = StackId(0);
}

/// One event. `tgid` is the process whose memory it is about, `tid` the thread
/// that acted, `time_ns` CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub time_ns: u64,
    pub tgid: u32,
    pub tid: u32,
    pub action: Action,
}

/// A memory event. Addresses are absolute in the process, lengths in bytes as requested (the ledger
/// rounds vm lengths to pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Alloc {
        layer: Layer,
        addr: u64,
        size: u64,
        stack: StackId,
    },
    /// `repeated`: perhaps a second report of a release already reported, then without effect.
    Free {
        layer: Layer,
        addr: u64,
        repeated: bool,
    },
    /// A realloc of `addr` is about to happen in this thread.
    ReallocBegin {
        layer: Layer,
        addr: u64,
    },
    /// `addr` 0 and `size` > 0: failed, the old block lives on. `addr` 0 and `size` 0: it was freed.
    ReallocEnd {
        layer: Layer,
        addr: u64,
        size: u64,
        stack: StackId,
    },
    /// Memory of a device, or page-locked memory. `addr` is a handle for physical memory.
    DeviceAlloc {
        layer: Layer,
        addr: u64,
        size: u64,
        stack: StackId,
        device: Device,
        source: Source,
    },
    /// An allocation on a device failed; `error` is the library's code.
    DeviceFailed {
        layer: Layer,
        size: u64,
        stack: StackId,
        device: Device,
        error: u32,
        /// Present if a caching allocator failed to provide a block.
        report: Option<CacheReport>,
    },
    /// A caching allocator gave a block, or takes it back (`size` 0), and reports its totals.
    CachedBlock {
        layer: Layer,
        addr: u64,
        size: u64,
        stack: StackId,
        device: Device,
        report: CacheReport,
    },
    /// The bytes requested for the block at `addr` of a caching allocator, on the stream that it
    /// gives this number (0: the default one).
    DeviceRequest {
        layer: Layer,
        addr: u64,
        size: u64,
        stream: u64,
    },
    /// Physical memory was mapped.
    DeviceMap {
        addr: u64,
        len: u64,
        handle: u64,
    },
    /// A range of mapped physical memory is about to be unmapped.
    DeviceUnmap {
        addr: u64,
        len: u64,
    },
    /// One more reference to physical memory.
    DeviceRetain {
        handle: u64,
    },
    /// Memory reserved or handed out by a pool of the driver.
    DevicePool {
        device: Device,
        bytes: u64,
        figure: Pool,
    },
    Mmap {
        addr: u64,
        len: u64,
        stack: StackId,
        kind: MapKind,
    },
    /// `len` 0: the whole shared memory attachment at `addr` (shmdt).
    UnmapBegin {
        addr: u64,
        len: u64,
    },
    UnmapEnd {
        failed: bool,
    },
    RemapBegin {
        addr: u64,
        len: u64,
    },
    RemapEnd {
        failed: bool,
        addr: u64,
        len: u64,
        flags: u32,
        stack: StackId,
        by_allocator: bool,
    },
    /// brk returned: the break requested (0: a query) and the break now.
    Brk {
        requested: u64,
        now: u64,
        stack: StackId,
        by_allocator: bool,
    },
    Fork {
        child: u32,
        shared_vm: bool,
    },
    Exec,
    Exit {
        status: u32,
    },
}

/// Index of a device (GPU) as the process counts them; `None`: not known which.
pub(crate) type Device = Option<u8>;

/// Out of memory, in CUDA's runtime and driver and in HIP (cudaErrorMemoryAllocation and its relatives).
pub(crate) const OUT_OF_MEMORY: u32 = 2;

/// A caching allocator's report of its memory on a device, bytes: in blocks, and in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheReport {
    pub allocated: u64,
    pub reserved: u64,
}

/// The requester of device memory, and the key by which it will be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// A call of the runtime, in flight in the same thread, requested it from the driver.
    pub below: bool,
    /// The caching allocator that requested it, by the layer of its blocks.
    pub by_cache: Option<Layer>,
    /// It comes from a stream's pool.
    pub stream_ordered: bool,
    /// It is known by a handle, and outlives that while it is mapped.
    pub physical: bool,
}

impl Source {
    /// Whether an allocator requested it, to hand it out in parts or pass it on.
    pub fn by_allocator(self) -> bool {
        self.below || self.by_cache.is_some()
    }
}

/// Attributes of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapKind {
    /// An allocation function of the same thread was in flight.
    pub by_allocator: bool,
    pub shared: bool,
    /// Backed by a file (or shared memory segment) rather than anonymous.
    pub file: bool,
    /// An arena of Python's object allocator.
    pub arena: bool,
}

impl MapKind {
    /// The layer of the mapping, from its first byte to its last.
    pub fn layer(self) -> Layer {
        if self.arena { Layer::Python } else { Layer::Vm }
    }
}
