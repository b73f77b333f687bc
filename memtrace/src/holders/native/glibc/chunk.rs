//! A chunk: its header, which has its size and marks, and what they say about the block in it.

use crate::{
    holders::{memory::Memory, native::Block},
    process::page_size,
};
use std::ops::Range;

/// Pages of some kernels are multiples of it.
pub(super) const PAGE: u64 = 4 << 10;

/// From the beginning of a chunk to the memory that the program has.
pub(super) const HEADER: u64 = 16;

/// In the size of a chunk: the one before is in use.
pub(super) const PREV_INUSE: u64 = 1;
/// It has a mapping of its own.
pub(super) const IS_MMAPPED: u64 = 2;
/// It is of another arena than the main one.
pub(super) const NON_MAIN_ARENA: u64 = 4;
pub(super) const FLAGS: u64 = 15;

/// The smallest chunk.
pub(super) const LEAST: u64 = 32;

/// Whether glibc's own structures still have a block, recorded or found earlier, as in use: it lies in a chunk, and
/// the next chunk marks that as in use. Lists of freed chunks are not consulted.
pub(in crate::holders) fn is_allocated(memory: &(impl Memory + ?Sized), block: Block) -> bool {
    let Some(size) = memory.word(block.start.wrapping_sub(HEADER / 2)) else {
        return false;
    };
    let chunk = size & !FLAGS;
    if chunk < block.size.saturating_add(HEADER / 2) {
        return false;
    }
    let next = block.start.wrapping_sub(HEADER / 2).wrapping_add(chunk);
    size & IS_MMAPPED != 0 || memory.word(next).is_some_and(|next| next & PREV_INUSE != 0)
}

/// Whether the chunk at a block has the size that malloc gives a block of that size. A recorded block was freed since,
/// and its memory given to another one, if it has not.
pub(in crate::holders) fn has_its_size(memory: &(impl Memory + ?Sized), block: Block) -> bool {
    let least = (block.size.saturating_add(HEADER / 2)).max(LEAST);
    let least = least.checked_next_multiple_of(HEADER).unwrap_or(least);
    memory
        .word(block.start.wrapping_sub(HEADER / 2))
        .is_some_and(|size| {
            let most = match size & IS_MMAPPED {
                0 => HEADER,
                _ => HEADER + page_size(),
            };
            (least..=least.saturating_add(most)).contains(&(size & !FLAGS))
        })
}

/// Whether `address`, in memory of the allocator, can be a chunk freed to a list, and the size in its header.
pub(super) fn size_of_freed(
    memory: &(impl Memory + ?Sized),
    regions: &[Range<u64>],
    chunk: u64,
) -> Option<u64> {
    let is_inside = regions.iter().any(|region| region.contains(&chunk));
    if !chunk.is_multiple_of(HEADER) || !is_inside {
        return None;
    }
    let size = memory.word(chunk.checked_add(8)?)?;
    (size & IS_MMAPPED == 0).then_some(size & !FLAGS)
}
