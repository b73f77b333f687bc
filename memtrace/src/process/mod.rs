//! Processes as the kernel shows them.
pub mod launch;
pub mod memory;
