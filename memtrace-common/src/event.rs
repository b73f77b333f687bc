//! The kernel side's reports, one record of the ring buffer each.
//!
//! There is one ring buffer for everything, because its order makes the ledger exact: an allocation is reserved before
//! its pointer reaches user code, a release before the allocator sees it, so an address's history arrives in the order
//! in which it happened, across threads and CPUs. Calls that both release and allocate (realloc, munmap, mremap) are
//! reported twice: the release before the call, so that another thread's reuse of the range cannot overtake it, and the
//! outcome after it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{limits::MAX_FRAMES, unwind::Registers, wire::wire_enum};

wire_enum! {
    /// Kind of a record, first byte of its [`Header`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Kind: u8 {
        /// [`Alloc`]: a successful allocation.
        Alloc = 1,
        /// [`Free`]: a release that is about to happen.
        Free = 2,
        /// [`Free`]: a realloc of `addr` is about to happen; [`Kind::ReallocEnd`] has its outcome.
        ReallocBegin = 3,
        /// [`Alloc`]: outcome of the thread's last [`Kind::ReallocBegin`]. `addr` 0 with `size` > 0: it
        /// failed and the old block lives on. `addr` 0 with `size` 0: the old block was freed.
        ReallocEnd = 4,
        /// [`Map`]: a successful mmap.
        Mmap = 5,
        /// [`Unmap`]: a munmap or shmdt is about to happen.
        UnmapBegin = 6,
        /// [`Unmap`]: outcome of the thread's last [`Kind::UnmapBegin`], in `flags` ([`flags::FAILED`]).
        UnmapEnd = 7,
        /// [`Unmap`]: an mremap of `addr`, `len` is about to happen.
        RemapBegin = 8,
        /// [`Map`]: outcome of the thread's last [`Kind::RemapBegin`]; [`flags::FAILED`] when it failed.
        /// `map_flags` holds mremap's flags.
        RemapEnd = 9,
        /// [`Map`]: brk returned; `addr` is the program break now, `len` the requested one (0: a query).
        Brk = 10,
        /// [`Map`]: a successful shmat; the kernel side does not know the length, `len` is 0 on the wire.
        Shmat = 11,
        /// [`Lifecycle`]: a process was forked; `Header::tgid` is the child's, `other` the parent's.
        Fork = 12,
        /// [`Lifecycle`]: a successful exec; `other` is the tid that called it (the tgid's from now on).
        Exec = 13,
        /// [`Lifecycle`]: the last thread of a process ended; `value` is its wait status.
        Exit = 14,
        /// [`Stack`]: a stack not reported before.
        Stack = 15,
        /// [`Lifecycle`]: the thread stops and waits for the collector, or cannot be stopped
        /// ([`flags::FAILED`]) and runs on; `value` is a [`Stop`].
        Stopped = 16,
        /// [`Verify`]: a walk with its input, to be repeated by other means.
        Verify = 17,
        /// [`Timing`]: the duration of a walk.
        Timing = 18,
        /// [`crate::python::Code`]: a code object that stacks refer to.
        PythonCode = 19,
        /// [`crate::device::Alloc`]: memory of a device, or page-locked; also a call that failed.
        DeviceAlloc = 20,
        /// [`crate::device::Report`]: a report of PyTorch's caching allocator on one of its blocks, or on running out
        /// of memory.
        DeviceReport = 21,
        /// [`crate::device::Range`]: physical memory was mapped (cuMemMap).
        DeviceMap = 22,
        /// [`crate::device::Range`]: a range is about to be unmapped (cuMemUnmap).
        DeviceUnmap = 23,
        /// [`crate::device::Range`]: one more reference to the physical memory `handle`.
        DeviceRetain = 24,
        /// [`crate::device::Range`]: a pool of the driver reported its figure with the number `handle`, `len` bytes;
        /// [`crate::device::Pool`].
        DevicePool = 25,
        /// [`crate::device::Range`]: the driver returned the address `addr` for the name with number `handle`. The
        /// process is stopped, if allowed.
        EntryPoint = 26,
        /// [`crate::device::Range`]: `len` bytes were requested for the block at `addr` of PyTorch's caching allocator,
        /// which was reported before, on the stream with the number `handle`.
        DeviceRequest = 27,
    }
}

wire_enum! {
    /// Why a process was stopped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Stop: u64 {
        /// A forked child before its first user instruction.
        Fork = 1,
        /// A new program before its interpreter's first instruction.
        Exec = 2,
        /// After it mapped an executable file that the collector has not seen, or attached shared memory whose length
        /// is only in its maps; the record of it precedes.
        Map = 3,
        /// When it was given the address of a driver's function that may have no probe yet; the record
        /// of it precedes.
        EntryPoint = 4,
        /// The process `other` tries to trace it, and finds it traced. Nothing waits.
        Tracer = 5,
        /// After it mapped one more executable file, when so much of its code has changed that the collector may come
        /// too late.
        Behind = 6,
    }
}

/// Bits of [`Header::flags`].
pub mod flags {
    /// The call failed.
    pub const FAILED: u16 = 1 << 0;
    /// An allocation function of the same thread was in flight: the allocator did this for itself.
    pub const BY_ALLOCATOR: u16 = 1 << 1;
    /// [`super::Kind::Fork`]: the child runs in the parent's address space (vfork, CLONE_VM).
    pub const SHARED_VM: u16 = 1 << 2;
    /// [`super::Kind::UnmapBegin`]: of shmdt, so `len` is 0 and means the whole attachment.
    pub const SHMDT: u16 = 1 << 3;
    /// [`super::Kind::Free`]: the thread's last act was to release the same block by another
    /// function, which may have called this one. Then the block is gone already.
    pub const REPEATED: u16 = 1 << 4;
    /// [`super::Kind::DeviceAlloc`]: requested by a call of a layer above that is in flight in the same thread: by the
    /// runtime, from the driver.
    pub const BELOW: u16 = 1 << 5;
    /// [`super::Kind::DeviceAlloc`]: by a function that takes the memory from a stream's pool.
    pub const STREAM_ORDERED: u16 = 1 << 6;
    /// [`super::Kind::DeviceAlloc`]: physical memory, known by a handle (cuMemCreate).
    pub const PHYSICAL: u16 = 1 << 7;
}

/// First bytes of every record.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Header {
    /// A [`Kind`].
    pub kind: u8,
    /// A [`crate::Layer`].
    pub layer: u8,
    /// [`flags`].
    pub flags: u16,
    /// Process whose memory this is about (for a vfork child: the parent).
    pub tgid: u32,
    /// Thread that made the call.
    pub tid: u32,
    pub pad: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time_ns: u64,
}

/// [`Kind::Alloc`], [`Kind::ReallocEnd`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Alloc {
    pub header: Header,
    /// Absolute address in the process.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Key of a [`Stack`] reported earlier; 0: none could be taken.
    pub stack: u64,
}

/// [`Kind::Free`], [`Kind::ReallocBegin`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Free {
    pub header: Header,
    /// Absolute address in the process.
    pub addr: u64,
}

/// [`Kind::Mmap`], [`Kind::RemapEnd`], [`Kind::Brk`], [`Kind::Shmat`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Map {
    pub header: Header,
    /// Start of the mapping, absolute address in the process.
    pub addr: u64,
    /// Bytes, as requested (not rounded to pages).
    pub len: u64,
    /// As in [`Alloc::stack`].
    pub stack: u64,
    /// PROT_* of mmap, 0 elsewhere.
    pub prot: u32,
    /// MAP_* of mmap or MREMAP_* of mremap, 0 elsewhere.
    pub map_flags: u32,
    /// Inode of the mapped file, known for executable file mappings only, else 0.
    pub ino: u64,
    /// Offset into the mapped file, bytes.
    pub file_offset: u64,
    /// Device of the mapped file as the kernel holds it (`MAJOR << 20 | MINOR`), else 0.
    pub dev: u32,
    pub pad: u32,
}

/// [`Kind::UnmapBegin`], [`Kind::UnmapEnd`], [`Kind::RemapBegin`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Unmap {
    pub header: Header,
    pub addr: u64,
    /// Bytes, as requested (not rounded to pages).
    pub len: u64,
}

/// [`Kind::Fork`], [`Kind::Exec`], [`Kind::Exit`], [`Kind::Stopped`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Lifecycle {
    pub header: Header,
    /// See the kinds.
    pub value: u64,
    /// See the kinds.
    pub other: u32,
    pub pad: u32,
}

/// [`Kind::Stack`]: followed by `n` words, leaf first, each a [`crate::unwind::Word`]. Its
/// address is the one to look up: of a return address that is the address minus one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Stack {
    pub header: Header,
    /// Key by which allocations refer to it; never 0.
    pub stack: u64,
    /// Number of words that follow, at most [`crate::limits::MAX_FRAMES`].
    pub n: u32,
    /// A [`crate::unwind::End`].
    pub end: u32,
    /// The program that the process runs: the same in forked children, another after exec.
    pub image: u64,
    /// Name of the thread then, as the kernel keeps it (`task_struct.comm`): up to the first zero.
    pub comm: [u8; COMM],
}

/// Bytes of a thread's name with its zero (TASK_COMM_LEN, include/linux/sched.h).
pub const COMM: usize = 16;

/// Pages of stack in a [`Verify`].
pub const COPIED_PAGES: usize = 8;
/// Bytes of such a page.
pub const COPIED_PAGE: usize = 4096;
/// Pending return probes in a [`Verify`].
pub const COPIED_RETURNS: usize = 16;

/// A return address that the kernel has replaced to probe the return.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct PendingReturn {
    /// The stack pointer at the function's entry, absolute address. On x86-64, the return address was there.
    pub slot: u64,
    /// The original address.
    pub original: u64,
}

/// Most return addresses in an [`Unwinding`].
pub const UNWOUND: usize = 8;

/// Return addresses that the holder puts back before a thread may be unwound.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Unwinding {
    pub tgid: u32,
    /// How many follow.
    pub n: u32,
    pub returns: [PendingReturn; UNWOUND],
}

/// [`Kind::Verify`].
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Verify {
    pub header: Header,
    /// Where the walk began; `pc` is a return address.
    pub at: Registers,
    /// [`crate::code_map::Log::sequence`]: the state of the code that the walk used.
    pub sequence: u64,
    /// The address that replaced pending returns; 0 if the thread has none.
    pub trampoline: u64,
    /// Number of `returns`.
    pub pending: u32,
    /// Number of `frames`.
    pub n: u32,
    /// A [`crate::unwind::End`].
    pub end: u32,
    /// Pages of `copy` that could be read.
    pub pages: u32,
    pub returns: [PendingReturn; COPIED_RETURNS],
    /// As the words of a [`Stack`].
    pub frames: [u64; MAX_FRAMES + 1],
    /// The stack, from the page that holds `at.sp` on.
    pub copy: [[u8; COPIED_PAGE]; COPIED_PAGES],
}

/// [`Kind::Timing`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Timing {
    pub header: Header,
    /// Nanoseconds of the walk.
    pub walk_ns: u64,
    /// Nanoseconds of bpf_get_stackid for the same event.
    pub stackid_ns: u64,
    /// Frames that the walk found.
    pub frames: u32,
    /// A [`crate::unwind::End`].
    pub end: u32,
}
