//! Sizes that both sides must agree on.

/// Most frames of one stack.
pub const MAX_FRAMES: usize = 255;

/// Allocation functions that may be in flight in one thread at once, each
/// nested in the one before it.
pub const MAX_IN_FLIGHT: usize = 8;
