//! Sizes that both sides must agree on.

/// Most frames of one stack. `bpf_get_stack` obeys `kernel.perf_event_max_stack`,
/// whose default is 127.
pub const MAX_FRAMES: usize = 127;

/// Allocation functions that may be in flight in one thread at once, each
/// nested in the one before it.
pub const MAX_IN_FLIGHT: usize = 8;
