//! Sizes that both sides must agree on.

/// Most words of one stack: a native frame takes one, a Python frame two.
pub const MAX_FRAMES: usize = 511;

/// Allocation functions that may be in flight in one thread at once, each
/// nested in the one before it.
pub const MAX_IN_FLIGHT: usize = 8;
