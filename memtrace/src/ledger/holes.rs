//! Free space between the live blocks of a heap, and the blocks that keep it from being given back.
//!
//! Only address space that allocators have taken since tracing began: elsewhere a gap may hold
//! unknown blocks.

use super::{SiteKey, regions::Regions, table::Block, totals::Book};
use crate::event::Layer;

/// Space of an allocator that no known block takes, with a live block above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First address, and the first after it.
    pub start: u64,
    pub end: u64,
    /// Site of the older one of the neighbouring blocks.
    pub site: SiteKey,
}

/// Memory that the blocks of a site hold open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Resident bytes of their holes.
    pub bytes: u64,
    pub holes: u64,
}

/// Overhead in front of a block: glibc's size word and the part that the previous block may use
/// (malloc/malloc.c, `malloc_chunk`).
const HEADER: u64 = 16;

/// Smaller ones are left by rounding and headers.
const LEAST: u64 = 32;

/// Calls `f` with the holes of one address space in order of their addresses. Space above the last
/// block of a mapping is not a hole: no block keeps it.
pub(super) fn for_each(
    regions: &Regions,
    mut blocks: Vec<Block>,
    book: &Book,
    mut f: impl FnMut(Hole),
) {
    blocks.sort_unstable_by_key(|block| block.addr);
    let mut blocks = blocks.into_iter().peekable();
    for (start, end) in spans(regions) {
        while blocks.next_if(|block| block.addr < start).is_some() {}
        let mut free = start;
        let mut below: Option<Block> = None;
        while let Some(block) = blocks.next_if(|block| block.addr < end) {
            let hole_end = block.addr.saturating_sub(HEADER);
            if hole_end >= free + LEAST {
                let older = match below {
                    Some(below) if below.birth_ns <= block.birth_ns => below,
                    _ => block,
                };
                f(Hole {
                    start: free,
                    end: hole_end,
                    site: book.key(older.site),
                });
            }
            free = free.max(block.addr.saturating_add(block.size));
            below = Some(block);
        }
    }
}

/// Possible starts of glibc's arenas: HEAP_MAX_SIZE of malloc/arena.c on 64-bit machines. The top
/// of the previous arena can be given back.
const ARENA: u64 = 64 << 20;

/// Address space that allocators have mapped while tracing; neighbours are merged, except arenas.
fn spans(regions: &Regions) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (start, region) in regions.iter() {
        if region.site.is_none() || region.kind.layer() != Layer::Vm || !region.kind.by_allocator {
            continue;
        }
        match spans.last_mut() {
            Some((_, end)) if *end == start && start % ARENA != 0 => *end = region.end,
            _ => spans.push((start, region.end)),
        }
    }
    spans
}
