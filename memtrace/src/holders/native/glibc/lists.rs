//! Chunks freed to lists for quick reuse, which look as if they were in use.

use super::{
    arena::{Arena, Layout},
    chunk::{HEADER, size_of_freed},
};
use crate::holders::{
    memory::{Circle, Memory},
    native::Block,
};
use std::ops::Range;

/// Most entries of a list.
const MAX_LISTED: usize = 1 << 22;

/// Sizes of chunks in the first list, and from one list to the next.
const FIRST: u64 = 32;
const STEP: u64 = 16;

/// Lists of one size each.
const EXACT: u64 = 64;

/// Number of fast bins.
const FAST_BINS: u64 = 10;

/// A version of `tcache_perthread_struct`: a number for each list, then the lists.
struct Cache {
    /// Of the block that it is in.
    size: u64,
    /// Where the lists begin.
    lists: u64,
    count: u64,
}

/// 2.30 to 2.41, 2.26 to 2.29, since 2.42.
const CACHES: [Cache; 3] = [
    Cache {
        size: 0x288,
        lists: 128,
        count: 64,
    },
    Cache {
        size: 0x248,
        lists: 64,
        count: 64,
    },
    Cache {
        size: 0x2f8,
        lists: 152,
        count: 76,
    },
];

/// Whether a block may be a thread's cache.
pub(in crate::holders) fn may_be_cache(size: u64) -> bool {
    CACHES.iter().any(|cache| cache.size == size)
}

/// The blocks in a thread's cache. `None`: the block is not such a cache, or it is empty. While the process runs, a list
/// may make no sense: it is left out.
pub(super) fn cache(
    memory: &(impl Memory + ?Sized),
    regions: &[Range<u64>],
    block: Block,
) -> Option<Vec<u64>> {
    let cache = CACHES.iter().find(|cache| cache.size == block.size)?;
    let mut bytes = vec![0; (cache.count * 8) as usize];
    if !memory.read(block.start.checked_add(cache.lists)?, &mut bytes) {
        return None;
    }
    let (heads, _) = bytes.as_chunks::<8>();
    let mut freed = Vec::new();
    let (mut lists, mut others) = (0, 0);
    for (index, head) in (0..).zip(heads) {
        let head = u64::from_le_bytes(*head);
        if head == 0 {
            continue;
        }
        let is_right = |chunk_size: u64| match index < EXACT {
            true => chunk_size == FIRST + index * STEP,
            false => chunk_size >= FIRST + EXACT * STEP,
        };
        let is_member = |start: u64| {
            let chunk = start.checked_sub(HEADER);
            chunk
                .and_then(|chunk| size_of_freed(memory, regions, chunk))
                .is_some_and(is_right)
        };
        match is_member(head) {
            true => {
                lists += 1;
                follow(memory, head, 0, is_member, &mut freed);
            }
            false => others += 1,
        }
    }
    // A block of the program's has other things in most of these words.
    (lists > others).then_some(freed)
}

/// The blocks in the fast bins of an arena.
pub(super) fn fast_bins(
    memory: &(impl Memory + ?Sized),
    regions: &[Range<u64>],
    layout: Layout,
    arena: &Arena,
) -> Vec<u64> {
    let mut freed = Vec::new();
    let Some(bins) = layout.fast_bins(arena) else {
        return freed;
    };
    for index in 0..FAST_BINS {
        // Links point to chunks here, not to the program's memory in them.
        let head = memory.word(bins + 8 * index).unwrap_or(0);
        let is_member = |start: u64| {
            let chunk = start.checked_sub(HEADER);
            let size = chunk.and_then(|chunk| size_of_freed(memory, regions, chunk));
            size == Some(FIRST + index * STEP)
        };
        if let Some(start) = head.checked_add(HEADER).filter(|&start| is_member(start)) {
            follow(memory, start, HEADER, is_member, &mut freed);
        }
    }
    freed
}

/// Adds a list. Its links lead to memory that is `to_block` before the next block.
fn follow(
    memory: &(impl Memory + ?Sized),
    head: u64,
    to_block: u64,
    is_member: impl Fn(u64) -> bool,
    freed: &mut Vec<u64>,
) {
    let most = freed.len() + MAX_LISTED;
    let mut block = head;
    let mut circle = Circle::default();
    while freed.len() < most && !circle.closes(block) {
        freed.push(block);
        let Some(link) = memory.word(block) else {
            return;
        };
        // Since 2.32 a link is mixed with its address (“safe-linking”).
        let links = [link ^ block >> 12, link].into_iter();
        let mut blocks = links.filter_map(|link| link.checked_add(to_block));
        match blocks.find(|&next| is_member(next)) {
            Some(next) => block = next,
            None => return,
        }
    }
}
