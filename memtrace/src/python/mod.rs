//! Python frames: the file that contains a CPython interpreter, the layout of the structures that
//! the kernel side follows, and the parts of a code object that describe a frame.
//!
//! Versions 3.9 to 3.14 with the global interpreter lock. Up to 3.10 a code object knows only its
//! own name (`run`); since 3.11 a qualified one (`Server.run`).

mod candidate;
mod code_object;
mod detect;
mod lines;
mod offsets;
#[cfg(test)]
mod tests;

pub(crate) use candidate::Candidate;
pub(crate) use code_object::CodeObject;
pub(crate) use detect::{Unsupported, find};
pub(crate) use offsets::interpreter;

use std::io;

/// Fills the buffer with a process's memory from an absolute address on.
pub(crate) type Read<'a> = dyn Fn(u64, &mut [u8]) -> io::Result<()> + 'a;
