//! Blocks that stay, and samples of them.

use super::*;
use crate::ledger::survivors::Survivors;
use std::ops::Range;

/// The clock of a bench starts here.
const START: u64 = 1001;

fn key(b: &Bench, stack: u32) -> SiteKey {
    let survivors = b.ledger.survivors(1, &(0..u64::MAX), 1);
    let mut keys = survivors.into_iter().map(|of| of.site);
    keys.find(|key| key.stack.0 == stack).unwrap()
}

fn of(b: &Bench, born: Range<u64>, stack: u32) -> Option<Survivors> {
    let mut survivors = b.ledger.survivors(1, &born, 1).into_iter();
    survivors.find(|of| of.site.stack.0 == stack)
}

#[test]
fn only_live_blocks_of_the_window_count() {
    let mut b = Bench::new();
    for block in 0..100 {
        b.alloc(1, 0x1000 + 0x100 * block, 10, 7);
    }
    for block in 40..50 {
        b.free(1, 0x1000 + 0x100 * block);
    }
    let found = of(&b, START + 20..START + 60, 7).unwrap();
    assert_eq!((found.bytes, found.blocks), (300, [20, 10]));
    assert_eq!(found.freed, 10);
    assert_eq!(of(&b, START + 40..START + 50, 7), None);
    assert_eq!(b.ledger.survivors(2, &(0..u64::MAX), 1), []);
}

#[test]
fn frees_of_young_blocks_do_not_count() {
    let mut b = Bench::new();
    b.alloc(1, 0x1000, 10, 7);
    for _ in 0..100 {
        b.alloc(1, 0x2000, 10, 7);
        b.free(1, 0x2000);
    }
    b.alloc(1, 0x3000, 10, 7);
    b.now += 1000;
    b.free(1, 0x3000);
    let freed = |least_age| b.ledger.survivors(1, &(0..u64::MAX), least_age)[0].freed;
    assert_eq!(freed(400), 1);
    assert_eq!(freed(2000), 0);
}

#[test]
fn inherited_blocks_are_the_parents() {
    let mut b = Bench::new();
    b.alloc(1, 0x1000, 10, 7);
    b.fork(1, 2);
    b.alloc(2, 0x2000, 20, 8);
    let own = b.ledger.survivors(2, &(0..u64::MAX), 1);
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].bytes, 20);
    let mut all: Vec<_> = b.ledger.heap_blocks(2).collect();
    all.sort_unstable();
    assert_eq!(all, [(0x1000, 10), (0x2000, 20)]);
    let of_parent = b.ledger.heap_site(2, 0x1000).unwrap();
    assert_eq!(of_parent, key(&b, 7));
    assert_eq!(b.ledger.heap_site(2, 0x1001), None);
}

#[test]
fn a_sample_has_blocks_of_every_age_the_oldest_first() {
    let mut b = Bench::new();
    for block in 0..10_000 {
        b.alloc(1, 0x1000 + 0x100 * block, 10, 7 + block as u32 % 2);
    }
    let site = key(&b, 7);
    let born = START + 1000..START + 9000;
    let samples = b.ledger.sample(1, &born, &[site]);
    let ages: Vec<u64> = samples[0]
        .iter()
        .map(|(addr, _)| (addr - 0x1000) / 0x100)
        .collect();
    assert_eq!(ages.len(), 64);
    assert!(ages.is_sorted());
    assert!(ages.iter().all(|birth| birth % 2 == 0));
    for part in 0..16 {
        let part = 1000 + part * 500..1500 + part * 500;
        let of_part = ages.iter().filter(|birth| part.contains(*birth));
        assert_eq!(of_part.count(), 4, "{part:?}: {ages:?}");
    }
}

#[test]
fn a_site_of_few_blocks_is_looked_at_whole() {
    let mut b = Bench::new();
    for block in 0..3 {
        b.alloc(1, 0x1000 + 0x100 * block, 10 + block, 7);
    }
    let samples = b.ledger.sample(1, &(0..START + 3), &[key(&b, 7)]);
    assert_eq!(samples, [[(0x1000, 10), (0x1100, 11), (0x1200, 12)]]);
}

#[test]
fn an_arena_of_python_is_a_block() {
    let mut b = Bench::new();
    b.mmap_arena(1, 10, 256, 7);
    b.mmap(1, 1000, 256, 8);
    let survivors = b.ledger.survivors(1, &(0..u64::MAX), 1);
    let mut of_python = survivors.iter().filter(|of| of.site.layer == Layer::Python);
    let arena = of_python.next().expect("an arena");
    assert_eq!(survivors.len(), 2, "{survivors:?}");
    let samples = b.ledger.sample(1, &(0..u64::MAX), &[arena.site]);
    assert_eq!(samples, [[(10 * PAGE, 256 * PAGE)]]);
}

#[test]
fn mappings_of_the_program_stay_like_blocks() {
    let mut b = Bench::new();
    b.mmap(1, 0x10, 32, 7);
    b.mmap(1, 0x100, 32, 7);
    let kind = MapKind {
        by_allocator: true,
        ..MapKind::default()
    };
    b.mmap_as(kind, 1, (0x200, 32), 8);
    let site = key(&b, 7);
    let samples = b.ledger.sample(1, &(0..u64::MAX), &[site]);
    assert_eq!(
        samples[0],
        [(0x10 * PAGE, 32 * PAGE), (0x100 * PAGE, 32 * PAGE)]
    );
    // The blocks in an allocator's mapping have sites of their own.
    assert_eq!(of(&b, 0..u64::MAX, 8), None);
}
