//! Heaps made by hand: as other versions of the library make them, and torn ones.

use super::super::tests::fixture::{Made, Noise};
use super::{
    arena::{Arena, Layout},
    chunk::size_of_freed,
    walk::{Region, walk},
    *,
};

const START: u64 = 0x5555_0000_0000;
const LEN: u64 = 0x2_0000;

/// A heap of chunks without gaps: size, and whether each is in use.
fn heap(chunks: &[(u64, bool)]) -> (Made, Region, Vec<u64>) {
    let mut memory = Made::default();
    memory.map(START, LEN);
    let mut at = START;
    let mut previous = (0, true);
    let mut starts = Vec::new();
    let rest = LEN - chunks.iter().map(|(size, _)| size).sum::<u64>();
    for &(size, in_use) in chunks.iter().chain([&(rest, true)]) {
        if !previous.1 {
            memory.put(at, previous.0);
        }
        memory.put(at + 8, size | u64::from(previous.1));
        starts.push(at);
        at += size;
        previous = (size, in_use);
    }
    (memory, region(true), starts)
}

fn region(is_main: bool) -> Region {
    Region {
        whole: START..START + LEN,
        chunks: START..START + LEN,
        is_main,
    }
}

fn found(memory: &impl Memory, region: &Region) -> Vec<(u64, u64, bool)> {
    let mut found = Vec::new();
    walk(memory, region, |chunk, size, is_certain| {
        found.push((chunk, size, is_certain))
    });
    found
}

#[test]
fn a_block_has_the_size_of_its_chunk() {
    let (memory, _, starts) = heap(&[(0x20, true), (0x400, true), (0x30, true)]);
    let has = |chunk: usize, size| {
        let start = starts[chunk] + HEADER;
        has_its_size(&memory, Block { start, size })
    };
    // A remainder too small for a chunk of its own stays with the block.
    for (chunk, least, most) in [(0, 0, 0x18), (1, 0x3d9, 0x3f8), (2, 0, 0x28)] {
        assert!(has(chunk, least) && has(chunk, most), "{chunk}");
        assert!(!has(chunk, most + 1), "{chunk}");
    }
    assert!(!has(1, 0x3d8) && !has(1, u64::MAX));
}

#[test]
fn chunks_in_use_are_found_and_the_top_is_not_one() {
    let (memory, region, starts) =
        heap(&[(0x20, true), (0x400, false), (0x30, true), (0x1_0000, true)]);
    let expected = [
        (starts[0], 0x20, true),
        (starts[2], 0x30, true),
        (starts[3], 0x1_0000, true),
    ];
    assert_eq!(found(&memory, &region), expected);
}

#[test]
fn after_a_bad_header_the_walk_continues_uncertain() {
    let chunks: Vec<_> = (0..100).map(|_| (0x40, true)).collect();
    let (mut memory, region, starts) = heap(&chunks);
    // The program wrote over a header.
    memory.put(starts[50] + 8, 0x4141_4141_4141_4141);
    let found = found(&memory, &region);
    let at = |start| {
        found
            .iter()
            .find(|chunk| chunk.0 == start)
            .map(|chunk| chunk.2)
    };
    assert_eq!(at(starts[10]), Some(true));
    assert_eq!(at(starts[49]), Some(false));
    assert_eq!(at(starts[50]), None);
    assert_eq!(at(starts[51]), Some(false));
    assert_eq!(at(starts[99]), Some(false));
}

#[test]
fn memory_outside_a_heap_has_no_blocks() {
    let mut memory = Made::default();
    memory.map(START, LEN);
    assert_eq!(found(&memory, &region(true)), []);
    assert_eq!(found(&Made::default(), &region(false)), []);
}

#[test]
fn any_memory_is_walked_to_an_end() {
    for seed in 0..20 {
        let region = region(seed % 2 == 0);
        for (chunk, size, _) in found(&Noise(seed), &region) {
            assert!(region.chunks.contains(&chunk) && size <= LEN);
        }
        let regions = [region.whole.clone()];
        for size in [0x288, 0x248, 0x2f8] {
            let start = START + 16 * seed;
            lists::cache(&Noise(seed), &regions, Block { start, size });
        }
    }
}

/// A heap with a thread's cache that has lists of chunks of two sizes.
fn cache(size: u64, lists: u64, is_mixed: bool) -> Option<Vec<u64>> {
    let (mut memory, region, starts) = heap(&[
        (size + 8, true),
        (0x20, true),
        (0x20, true),
        (0x30, true),
        (0x20, true),
    ]);
    let block = |index: usize| starts[index] + HEADER;
    let mut link = |at: u64, to: u64| memory.put(at, if is_mixed { at >> 12 ^ to } else { to });
    link(block(1), block(2));
    link(block(2), 0);
    link(block(3), 0);
    memory.put(block(0) + lists, block(1));
    memory.put(block(0) + lists + 8, block(3));
    // A list of another size, as of a moment before.
    memory.put(block(0) + lists + 16, block(4));
    let regions = [region.whole];
    let start = block(0);
    let found = lists::cache(&memory, &regions, Block { start, size })?;
    let index = |start: &u64| starts.iter().position(|chunk| chunk + HEADER == *start);
    Some(
        found
            .iter()
            .map(|start| index(start).unwrap() as u64)
            .collect(),
    )
}

#[test]
fn the_cache_of_a_thread_is_read_in_each_version() {
    for (size, lists) in [(0x288, 128), (0x248, 64), (0x2f8, 152)] {
        for is_mixed in [false, true] {
            assert_eq!(
                cache(size, lists, is_mixed),
                Some(vec![1, 2, 3]),
                "{size:#x}"
            );
        }
    }
    // A block of that size which is something else.
    assert_eq!(cache(0x288, 136, true), None);
    assert_eq!(cache(0x288, 0, true), None);
}

#[test]
fn chunks_with_mappings_of_their_own_are_found_among_others() {
    let mut memory = Made::default();
    memory.map(START, LEN);
    memory.put(START + 0x3000 + 8, 0x9000 | IS_MMAPPED);
    memory.put(START + 0xc000 + 8, 0x8000 | IS_MMAPPED);
    // Larger than the rest of the mapping, and in memory of something else.
    memory.put(START + 0x1_e000 + 8, 0x8000 | IS_MMAPPED);
    memory.put(START + 0x1_6000 + 8, 0x8000 | IS_MMAPPED);
    let line = format!("{START:x}-{:x} rw-p 00000000 00:00 0\n", START + LEN);
    let mappings = maps::parse(line.as_bytes()).unwrap();
    assert_eq!(
        mapped(
            &memory,
            &mappings,
            vec![START + 0x1_4000..START + 0x1_8000, 0..0]
        ),
        [
            START + 0x3000..START + 0xc000,
            START + 0xc000..START + 0x1_4000
        ]
    );
}

#[test]
fn freed_chunks_lie_in_the_heap() {
    let (memory, region, starts) = heap(&[(0x20, true)]);
    let regions = [region.whole];
    assert_eq!(size_of_freed(&memory, &regions, starts[0]), Some(0x20));
    assert_eq!(size_of_freed(&memory, &regions, starts[0] + 8), None);
    assert_eq!(size_of_freed(&memory, &regions, START - 16), None);
}

/// The main arena, and another one in its list.
fn arenas(to_bins: u64) -> Option<(Layout, Vec<Arena>)> {
    let mut memory = Made::default();
    memory.map(START, 0x4000);
    let (main, other) = (START + 0x340, START + 0x2000);
    for bin in 0..127 {
        let at = main + to_bins + 16 * bin;
        // Some have chunks.
        let link = if bin % 3 == 0 { START + LEN } else { at - 16 };
        memory.put(at, link);
        memory.put(at + 8, link);
    }
    memory.put(main + to_bins + 2048, other);
    memory.put(other + to_bins + 2048, main);
    let mut bytes = vec![0; 0x4000];
    assert!(memory.read(START, &mut bytes));
    arena::search(&memory, START, &bytes)
}

#[test]
fn the_main_arena_is_found_without_a_symbol() {
    for to_bins in [112, 104, 32] {
        let (layout, arenas) = arenas(to_bins).unwrap();
        assert_eq!(layout.size(), to_bins + 2088);
        let starts: Vec<u64> = arenas.iter().map(|arena| arena.start).collect();
        assert_eq!(starts, [START + 0x340, START + 0x2000]);
    }
    assert_eq!(arenas(48), None);
}

#[test]
fn fast_bins_are_lists_of_chunks() {
    let to_bins = 112;
    let (mut memory, region, starts) = heap(&[(0x30, true), (0x30, true), (0x40, true)]);
    memory.map(START + 0x10_0000, 0x1000);
    let arena = Arena {
        start: START + 0x10_0000,
    };
    let (layout, _) = arenas(to_bins).unwrap();
    let link = |at: u64, to: u64| at >> 12 ^ to;
    memory.put(arena.start + 16 + 8, starts[0]);
    memory.put(starts[0] + HEADER, link(starts[0] + HEADER, starts[1]));
    memory.put(starts[1] + HEADER, link(starts[1] + HEADER, 0));
    // A size that does not belong there.
    memory.put(arena.start + 16 + 24, starts[2]);
    let freed = lists::fast_bins(&memory, &[region.whole], layout, &arena);
    assert_eq!(freed, [starts[0] + HEADER, starts[1] + HEADER]);
}
