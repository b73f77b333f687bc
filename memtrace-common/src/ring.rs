//! The ring buffer: records in one order, in an array that both sides have in their memory.
//!
//! A producer takes room by moving the head, writes its record, and then the word before it. The consumer reads records
//! at the tail as long as their words are not 0, sets what it has read to 0, and moves the tail. Positions count bytes
//! since the beginning. The kernel's own ring buffer takes a lock and several calls for each record.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a part of the buffer. Records do not cross from one to the next.
pub const CHUNK: usize = 256 << 10;

/// An element of the RING map.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Chunk(pub [u64; CHUNK / 8]);

/// Number of elements of the RING_ENDS map. The head and the tail are not in one cache line.
pub const ENDS: u32 = 32;
/// Index of the head: the position of the next record. Only producers write it.
pub const HEAD: u32 = 0;
/// Index of the tail: the position up to which records were read. Only the consumer writes it.
pub const TAIL: u32 = 16;

/// Bytes before each record.
pub const WORD: u64 = 8;

/// Set in the word before a record that is complete.
const READY: u64 = 1 << 32;
/// And if there is none: its room is passed over.
const EMPTY: u64 = 1 << 33;

/// The word before a record of `len` bytes.
#[inline(always)]
pub const fn ready(len: u64) -> u64 {
    READY | len
}

/// The word before `len` bytes without a record.
#[inline(always)]
pub const fn empty(len: u64) -> u64 {
    READY | EMPTY | len
}

/// The length of a record in bytes, and whether it is one; `None` while it is not complete.
#[inline(always)]
pub const fn parse(word: u64) -> Option<(u32, bool)> {
    if word & READY == 0 {
        return None;
    }
    Some((word as u32, word & EMPTY == 0))
}

/// Bytes that a record of `len` bytes takes with its word.
#[inline(always)]
pub const fn room(len: u64) -> u64 {
    WORD + ((len + 7) & !7)
}
