//! Free space between live blocks.

use super::*;

fn holes(b: &Bench) -> Vec<(u64, u64, u32)> {
    let mut found = Vec::new();
    b.ledger.for_each_hole(1, |hole| {
        found.push((hole.start, hole.end, hole.site.stack.0))
    });
    found
}

/// Address space of an allocator, in pages.
fn heap(b: &mut Bench, addr: u64, len: u64) {
    let kind = MapKind {
        by_allocator: true,
        ..MapKind::default()
    };
    b.mmap_as(kind, 1, (addr, len), 1);
}

#[test]
fn a_survivor_holds_open_memory_freed_below_it() {
    let mut b = Bench::new();
    heap(&mut b, 100, 100);
    let base = 100 * PAGE;
    b.alloc(1, base + 16, 10_000, 7);
    b.alloc(1, base + 10_032, 64, 8);
    assert_eq!(holes(&b), []);
    b.free(1, base + 16);
    assert_eq!(holes(&b), [(base, base + 10_016, 8)]);
    // Above the last block nothing keeps the space.
    b.free(1, base + 10_032);
    assert_eq!(holes(&b), []);
}

#[test]
fn the_older_neighbour_has_the_hole() {
    let mut b = Bench::new();
    heap(&mut b, 100, 100);
    let base = 100 * PAGE;
    b.alloc(1, base + 16, 100, 7);
    b.alloc(1, base + 50_000, 100, 8);
    b.alloc(1, base + 90_000, 100, 7);
    assert_eq!(
        holes(&b),
        [
            (base + 116, base + 49_984, 7),
            (base + 50_100, base + 89_984, 8)
        ]
    );
}

#[test]
fn only_mappings_made_while_tracing_have_holes() {
    let mut b = Bench::new();
    b.ledger.seed_regions(1, &[(100 * PAGE, 50 * PAGE)], None);
    b.mmap(1, 200, 50, 1);
    b.mmap_arena(1, 300, 50, 1);
    for page in [110, 210, 310] {
        b.alloc(1, page * PAGE, 64, 7);
    }
    assert_eq!(holes(&b), []);
}

#[test]
fn two_mappings_have_no_hole_between_them_unless_they_touch() {
    let mut b = Bench::new();
    heap(&mut b, 100, 10);
    heap(&mut b, 120, 10);
    b.alloc(1, 100 * PAGE + 16, 64, 7);
    b.alloc(1, 129 * PAGE, 64, 8);
    assert_eq!(holes(&b), [(120 * PAGE, 129 * PAGE - 16, 8)]);
    heap(&mut b, 110, 10);
    assert_eq!(holes(&b), [(100 * PAGE + 80, 129 * PAGE - 16, 7)]);
}
