//! Registers and stacks: a file for each architecture, x86-64 so far.

mod x86_64;

pub use x86_64::*;
