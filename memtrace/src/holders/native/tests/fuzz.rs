//! A heap of glibc, nodes of containers and virtual tables, in which a few words are wrong: every decoder returns soon,
//! and finds only addresses inside the given memory.

use super::*;
use crate::holders::fuzz::{self, Mutable};
use std::ops::Range;

const MAIN: Range<u64> = 0x5555_0000_0000..0x5555_0000_8000;
/// A further arena's heap, at a multiple of 64 MiB.
const OTHER: Range<u64> = 0x7000_0400_0000..0x7000_0400_8000;
/// Chunks with mappings of their own.
const APART: Range<u64> = 0x7000_1000_0000..0x7000_1002_0000;
/// Sizes of chunks; the second one is that of a thread's cache.
const SIZES: [u64; 7] = [0x40, 0x290, 0x20, 0x30, 0x60, 0x20, 0x410];
/// From the beginning of `main_arena` to its bins, and to the list of arenas.
const BINS: u64 = 112;
const NEXT: u64 = BINS + 2048;

/// Memory of a process that has this one's files.
struct Made {
    words: HashMap<u64, u64>,
    blocks: Vec<Block>,
    mappings: Vec<Mapping>,
    modules: Modules,
    variables: Range<u64>,
}

impl Made {
    fn new() -> Self {
        let own = std::process::id();
        let modules = Modules::new(own, &maps::read(own).unwrap());
        let library = modules.iter().find(|it| it.name.starts_with("libc.so"));
        let variables = library.unwrap().writable.clone();
        let line = |range: &Range<u64>, name: &str| {
            format!(
                "{:x}-{:x} rw-p 00000000 00:00 0 {name}\n",
                range.start, range.end
            )
        };
        let text = line(&MAIN, "[heap]") + &line(&OTHER, "") + &line(&APART, "");
        let mut made = Self {
            words: HashMap::new(),
            blocks: Vec::new(),
            mappings: maps::parse(text.as_bytes()).unwrap(),
            variables: variables
                .iter()
                .max_by_key(|it| it.end - it.start)
                .unwrap()
                .clone(),
            modules,
        };
        let ranges = variables.into_iter().chain([MAIN, OTHER, APART]);
        for at in ranges.flat_map(|range| range.step_by(8)) {
            made.put(at, 0);
        }
        let arena = made.variables.start + 0x40;
        made.arena(arena, OTHER.start + 0x30);
        made.arena(OTHER.start + 0x30, arena);
        made.heap(MAIN.start, MAIN.end, 0);
        // `heap_info`: the arena, no heap before, size, writable size.
        for (index, word) in [OTHER.start + 0x30, 0, 0x8000, 0x8000]
            .into_iter()
            .enumerate()
        {
            made.put(OTHER.start + 8 * index as u64, word);
        }
        made.heap(OTHER.start + 0x30 + 0x8a0, OTHER.end, 4);
        made.put(APART.start + 8, 0x9000 | 2);
        made.put(APART.start + 0x9008, 0x8000 | 2);
        made.caches(arena);
        made.nodes();
        made.classes(arena + 0xa00);
        made
    }

    fn put(&mut self, at: u64, word: u64) {
        self.words.insert(at, word);
    }

    fn arena(&mut self, arena: u64, next: u64) {
        for bin in 0..127 {
            let at = arena + BINS + 16 * bin;
            self.put(at, at - 16);
            self.put(at + 8, at - 16);
        }
        self.put(arena + NEXT, next);
    }

    /// Chunks; every fifth is free. `flags` as in their sizes.
    fn heap(&mut self, start: u64, end: u64, flags: u64) {
        let mut at = start;
        let mut before = (0, true);
        for (number, &size) in SIZES.iter().cycle().enumerate() {
            let is_last = at + size + 0x1000 > end;
            let size = if is_last { end - at } else { size };
            if !before.1 {
                self.put(at, before.0);
            }
            self.put(at + 8, size | flags | u64::from(before.1));
            if is_last {
                return;
            }
            before = (size, number % 5 != 4);
            if before.1 {
                let (start, size) = (at + 16, size - 8);
                self.blocks.push(Block { start, size });
            }
            at += size;
        }
    }

    fn of_size(&self, size: u64) -> Vec<u64> {
        let blocks = self.blocks.iter().filter(|block| block.size == size - 8);
        blocks.map(|block| block.start).collect()
    }

    /// A thread's cache and a fast bin, each with a list of blocks.
    fn caches(&mut self, arena: u64) {
        let small = self.of_size(0x20);
        let cache = self.of_size(0x290)[0];
        let mixed = |at: u64, to: u64| at >> 12 ^ to;
        self.put(cache + 128, small[0]);
        for pair in small[..8].windows(2) {
            self.put(pair[0], mixed(pair[0], pair[1]));
        }
        self.put(small[7], mixed(small[7], 0));
        self.put(arena + 16, small[8] - 16);
        self.put(small[8], mixed(small[8], small[9] - 16));
        self.put(small[9], mixed(small[9], 0));
    }

    /// A tree of three nodes, and a list of three.
    fn nodes(&mut self) {
        let nodes = self.of_size(0x60);
        let [root, left, right] = [nodes[0], nodes[1], nodes[2]];
        for (at, words) in [
            (root, [1, left, left, right]),
            (left, [0, root, 0, 0]),
            (right, [0, root, 0, 0]),
            (nodes[3], [nodes[4], nodes[5], 7, 7]),
            (nodes[4], [nodes[5], nodes[3], 7, 7]),
            (nodes[5], [nodes[3], nodes[4], 7, 7]),
        ] {
            for (index, word) in words.into_iter().enumerate() {
                self.put(at + 8 * index as u64, word);
            }
        }
    }

    /// Objects, their virtual tables, and the names of their classes.
    fn classes(&mut self, start: u64) {
        let names = [
            "St23_Sp_counted_ptr_inplaceIN3foo7SessionESaIvELN9__gnu_cxx12_Lock_policyE2EE",
            "N5outer5innerI3FooSt6vectorIS1_SaIS1_EEE4NodeE",
            "*St15_Sp_counted_ptrIP3BarLN9__gnu_cxx12_Lock_policyE2EE",
            "ZN3foo3barEvEUlT_E_",
        ];
        let objects = self.of_size(0x410);
        for (number, (name, object)) in names.iter().zip(objects).enumerate() {
            let info = start + 0x100 * number as u64;
            let (table, text) = (info + 0x30, info + 0x40);
            self.put(object, table);
            self.put(table - 8, info);
            self.put(info, table);
            self.put(info + 8, text);
            for (index, bytes) in name.as_bytes().chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                self.put(text + 8 * index as u64, u64::from_le_bytes(word));
            }
        }
    }

    fn memory(&self) -> Mutable {
        let mut words: Vec<(u64, u64)> = self.words.iter().map(|(&at, &word)| (at, word)).collect();
        words.sort_unstable();
        Mutable::new(&words)
    }

    fn find(&self, memory: &Mutable) -> Blocks {
        let mut builder = Builder::default();
        find_in_glibc(memory, &self.mappings, &self.modules, &[], &mut builder);
        builder.finish()
    }
}

#[test]
fn mutated_heaps_are_walked_to_an_end() {
    let made = Made::new();
    let mut memory = made.memory();
    // Untouched, so that only correct memory is mutated.
    let whole = made.find(&memory);
    assert!(whole.len() > 50, "{}", whole.len());
    let types = Types::new();
    let name_of = |memory: &Mutable, block: Block, types: &Types| {
        types.type_of(memory, &made.modules, block.start)
    };
    let is_named = |block: &&Block| name_of(&memory, **block, &types).is_some();
    assert_eq!(made.blocks.iter().filter(is_named).count(), 4);
    let is_node = |block: &&Block| node_of(&memory, **block).is_some();
    assert_eq!(made.blocks.iter().filter(is_node).count(), 6);
    let named: Vec<Block> = made.blocks.iter().filter(is_named).copied().collect();
    let nodes: Vec<Block> = made.blocks.iter().filter(is_node).copied().collect();

    let (mut found, mut classes, mut containers) = (0, 0, 0);
    fuzz::run(|random| {
        let start = random.pick(&[MAIN.start, OTHER.start, made.variables.start]);
        match random.below(32) {
            0 => {
                memory.mutate(random, start);
                let blocks = made.find(&memory);
                for block in blocks.iter() {
                    let inside = |range: &Range<u64>| {
                        range.contains(&block.start) && block.size <= range.end - block.start
                    };
                    assert!([MAIN, OTHER, APART].iter().any(inside), "{block:x?}");
                }
                found += blocks.len();
            }
            1..8 => {
                let block = random.pick(&named);
                memory.mutate(random, block.start);
                let class = name_of(&memory, block, &Types::new());
                classes += usize::from(class.is_some());
            }
            _ => {
                let block = random.pick(&nodes);
                memory.mutate(random, block.start);
                containers += usize::from(node_of(&memory, block).is_some());
                is_allocated(&memory, block);
            }
        }
        memory.restore();
    });
    assert!(found > 0 && classes > 0 && containers > 0);
}
