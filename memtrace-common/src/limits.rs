//! Sizes that both sides must agree on.

/// Most words of one stack: a native frame takes one, a Python frame two. As many as Python's default
/// recursion limit needs, and nested imports (those of PyTorch pass 511).
pub const MAX_FRAMES: usize = 2047;

/// Most frames of a stack along frame pointers, which is the kernel's to walk: the default of its
/// `kernel.perf_event_max_stack`.
pub const MAX_FRAME_POINTERS: usize = 127;

/// Allocation functions that may be in flight in one thread at once, each
/// nested in the one before it.
pub const MAX_IN_FLIGHT: usize = 8;

/// Stack walks that may be in progress on one CPU at once, because threads were preempted in them.
pub const SCRATCHES: u32 = 4;

/// And on all CPUs beyond those.
pub const SPARE_SCRATCHES: u32 = 64;
