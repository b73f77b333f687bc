//! Which functions of a file are probed, and at which instruction: from the
//! table of allocators and a file's symbols to a list of places.
//! Attaching is done elsewhere.

pub mod allocator;
pub mod libraries;
pub mod plan;
mod probe;
mod usdt;

pub use probe::{Probe, ProbeLine};
