//! Finds blocks of glibc's malloc in its own structures in memory, whether or not a recording has them. The process
//! runs meanwhile, so every value may be torn, and every list has a bound.
//!
//! Structures: malloc/malloc.c and malloc/arena.c of glibc, 2.26 to 2.43, of 64-bit architectures.

mod arena;
mod chunk;
mod lists;
#[cfg(test)]
mod tests;
mod walk;

use self::{
    arena::Layout,
    chunk::{FLAGS, HEADER, IS_MMAPPED, PAGE},
    walk::Region,
};
pub(in crate::holders) use self::{
    chunk::{has_its_size, is_allocated},
    lists::may_be_cache,
};
use super::super::memory::Memory;
use super::{
    Modules,
    blocks::{Block, Builder, Origin},
};
use crate::process::{
    maps::{self, Mapping},
    page_size,
};
use std::ops::Range;

/// Alignment and largest size of the heaps of arenas other than the main one (HEAP_MAX_SIZE).
const HEAP: u64 = 64 << 20;

/// The smallest chunk that is taken to have a mapping of its own: a smaller number may be anything.
const LEAST_MAPPED: u64 = 32 << 10;

/// Pages that are looked at for the beginning of such a chunk.
const MAX_PROBES: usize = 1 << 20;

/// Finds the blocks that are alive and gives them to `builder`. Returns the memory that the allocator manages, so
/// that freed memory in it is not mistaken for anything else; empty if the program has another allocator.
pub(in crate::holders) fn find(
    memory: &(impl Memory + ?Sized),
    mappings: &[Mapping],
    modules: &Modules,
    known: &[Range<u64>],
    builder: &mut Builder,
) -> Vec<Range<u64>> {
    let Some((layout, arenas)) = arena::find(memory, modules) else {
        return Vec::new();
    };
    let mut taken = Vec::new();
    let mut caches = Vec::new();
    for region in regions(memory, mappings, layout) {
        taken.push(region.whole.clone());
        walk::walk(memory, &region, |chunk, size, is_certain| {
            let block = Block {
                start: chunk + HEADER,
                // The last word of the next chunk's header belongs to this one.
                size: size - HEADER / 2,
            };
            if lists::may_be_cache(block.size) {
                caches.push(block);
            }
            builder.add(
                block,
                match is_certain {
                    true => Origin::Older,
                    false => Origin::Unclear,
                },
            );
        });
    }
    for cache in caches {
        if let Some(freed) = lists::cache(memory, &taken, cache) {
            // Nor is the list itself the program's.
            builder.add_freed(cache.start);
            freed.into_iter().for_each(|start| builder.add_freed(start));
        }
    }
    // The others are in their own heaps.
    let main = arenas.iter().take(1);
    taken.extend(main.map(|arena| arena.start..arena.start + arena::SIZE));
    for arena in &arenas {
        let freed = lists::fast_bins(memory, &taken, layout, arena);
        freed.into_iter().for_each(|start| builder.add_freed(start));
    }
    let others: Vec<Range<u64>> = taken.iter().chain(known).cloned().collect();
    for chunk in mapped(memory, mappings, others) {
        let block = Block {
            start: chunk.start + HEADER,
            size: chunk.end - chunk.start - HEADER,
        };
        builder.add(block, Origin::Older);
        taken.push(chunk);
    }
    taken
}

/// The heaps of all arenas.
fn regions(memory: &(impl Memory + ?Sized), mappings: &[Mapping], layout: Layout) -> Vec<Region> {
    let main = maps::heap(mappings).map(|heap| Region {
        chunks: heap.clone(),
        whole: heap,
        is_main: true,
    });
    let others = mappings.iter().filter(|mapping| is_anonymous(mapping));
    let others = others.flat_map(|mapping| {
        let first = mapping
            .start
            .checked_next_multiple_of(HEAP)
            .unwrap_or(mapping.end);
        let starts = (first..mapping.end).step_by(HEAP as usize);
        starts.filter_map(move |start| heap(memory, mapping, start, layout))
    });
    main.into_iter().chain(others).collect()
}

/// `heap_info`: { arena, previous heap, size, writable size }, and the page size since 2.35.
fn heap(
    memory: &(impl Memory + ?Sized),
    mapping: &Mapping,
    start: u64,
    layout: Layout,
) -> Option<Region> {
    let arena = memory.word(start)?;
    let previous = memory.word(start.checked_add(8)?)?;
    let size = memory.word(start.checked_add(16)?)?;
    let writable = memory.word(start.checked_add(24)?)?;
    let is_size = |size: u64| size != 0 && size <= HEAP && size.is_multiple_of(PAGE);
    if !is_size(size) || !is_size(writable) || size > writable {
        return None;
    }
    let first = match (arena.checked_sub(start), previous) {
        // The arena itself comes first.
        (Some(0x20 | 0x30), 0) => (arena + layout.size()).next_multiple_of(HEADER),
        // An arena's further heaps. The first one shows whether the header has the page size.
        (_, previous) if previous.is_multiple_of(HEAP) && previous != 0 => {
            let header = arena.checked_sub(arena & !(HEAP - 1))?;
            let is_same = memory.word(previous)? == arena;
            (is_same && matches!(header, 0x20 | 0x30)).then(|| start + header)?
        }
        _ => return None,
    };
    let end = (start + size).min(mapping.end);
    (first < end).then_some(Region {
        whole: start..(start + writable).min(mapping.end),
        chunks: first..end,
        is_main: false,
    })
}

/// Chunks with a mapping of their own. The kernel makes one mapping of neighbours.
fn mapped(
    memory: &(impl Memory + ?Sized),
    mappings: &[Mapping],
    mut taken: Vec<Range<u64>>,
) -> Vec<Range<u64>> {
    taken.sort_by_key(|range| range.start);
    let page = page_size();
    let mut found = Vec::new();
    let mut probes = 0;
    for mapping in mappings.iter().filter(|mapping| is_anonymous(mapping)) {
        let mut at = mapping.start;
        while at < mapping.end && probes < MAX_PROBES {
            let after = taken.partition_point(|other| other.start <= at);
            let before = after.checked_sub(1).and_then(|index| taken.get(index));
            if let Some(other) = before.filter(|other| other.contains(&at)) {
                at = other.end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
                continue;
            }
            probes += 1;
            match mapped_size(memory, at).filter(|&size| size <= mapping.end - at) {
                Some(size) => {
                    found.push(at..at + size);
                    at += size;
                }
                None => at = at.saturating_add(page),
            }
        }
    }
    found
}

fn mapped_size(memory: &(impl Memory + ?Sized), chunk: u64) -> Option<u64> {
    let before = memory.word(chunk)?;
    let size = memory.word(chunk.checked_add(8)?)?;
    let bytes = size & !FLAGS;
    (before == 0
        && size & FLAGS == IS_MMAPPED
        && bytes.is_multiple_of(PAGE)
        && bytes >= LEAST_MAPPED)
        .then_some(bytes)
}

fn is_anonymous(mapping: &Mapping) -> bool {
    let is_named = mapping.path.as_deref().is_some_and(|path| {
        // Since 5.17 programs can name their anonymous memory, as glibc does on request.
        !path.as_os_str().as_encoded_bytes().starts_with(b"[anon:")
    });
    let permissions = mapping.permissions;
    permissions.read && permissions.write && !permissions.shared && !is_named
}
