//! Decides which functions of a file are probed, and at which instruction: from the table of
//! allocators and a file's symbols to a list of places. Attaching is done elsewhere.

pub(crate) mod allocator;
pub(crate) mod device_libraries;
pub(crate) mod plan;
mod probe;
mod reads;
mod usdt;

pub(crate) use probe::{Probe, ProbeLine};
