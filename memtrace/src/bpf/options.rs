//! The options with which the kernel side is loaded.

use std::ops::RangeInclusive;

/// Size of the ring buffer in bytes.
pub(crate) const RING_BYTES: RangeInclusive<u32> = 4096..=1 << 30;

/// Options for loading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Bytes of the ring buffer, in [`RING_BYTES`]; rounded up to a power of two.
    pub ring_bytes: u32,
    /// Trace forked children.
    pub follow: bool,
    /// Attach uprobes one by one even if the kernel has multi links.
    pub one_by_one: bool,
    /// Follow frame pointers instead of unwind tables.
    pub frame_pointers: bool,
    /// Find the Python frames of stacks.
    pub python_frames: bool,
    /// Probe the malloc family.
    pub heap: bool,
    /// Attach empty programs to the allocation functions, to measure probes themselves.
    pub empty_probes: bool,
    /// Send one in this many walks to be verified; 0: none.
    pub verify_every: u64,
    /// Measure the duration of walks.
    pub time_walks: bool,
}

/// As `memtrace record` without options.
impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            follow: true,
            one_by_one: false,
            frame_pointers: false,
            python_frames: true,
            heap: true,
            empty_probes: false,
            verify_every: 0,
            time_walks: false,
        }
    }
}
