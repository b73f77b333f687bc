//! Mappings and the break.

use super::*;

const VM: Layer = Layer::Vm;
const DONTUNMAP: u32 = 4;

fn remap(b: &mut Bench, old: (u64, u64), new: Option<(u64, u64)>, flags: u32, stack: u32) {
    let action = Action::RemapBegin {
        addr: old.0 * PAGE,
        len: old.1 * PAGE,
    };
    b.does(1, 1, action);
    let (addr, len) = new.unwrap_or_default();
    let action = Action::RemapEnd {
        failed: new.is_none(),
        addr: addr * PAGE,
        len: len * PAGE,
        flags,
        stack: StackId(stack),
        by_allocator: false,
    };
    b.does(1, 1, action);
}

fn brk(b: &mut Bench, now: u64, stack: u32) {
    let action = Action::Brk {
        requested: now,
        now,
        stack: StackId(stack),
        by_allocator: false,
    };
    b.does(1, 1, action);
}

#[test]
fn lengths_round_up_to_pages() {
    let mut b = Bench::new();
    let action = Action::Mmap {
        addr: 10 * PAGE,
        len: PAGE + 1,
        stack: StackId(7),
        kind: MapKind::default(),
    };
    b.does(1, 1, action);
    assert_eq!(b.live(1, VM), (2 * PAGE, 1));
    let action = Action::UnmapBegin {
        addr: 10 * PAGE,
        len: 1,
    };
    b.does(1, 1, action);
    b.unmap_end(1, false);
    assert_eq!(b.live(1, VM), (PAGE, 1));
}

#[test]
fn munmap_in_the_middle_makes_two_pieces() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.munmap(1, 13, 2);
    let totals = b.vm(1);
    assert_eq!((totals.live_bytes, totals.live_count), (8 * PAGE, 2));
    assert_eq!((totals.free_bytes, totals.free_count), (2 * PAGE, 0));
    b.munmap(1, 10, 10);
    let totals = b.vm(1);
    assert_eq!((totals.live_bytes, totals.live_count), (0, 0));
    assert_eq!((totals.free_bytes, totals.free_count), (10 * PAGE, 2));
    assert_eq!(b.site(1, VM, 7).unwrap().lifetimes.iter().sum::<u64>(), 2);
}

#[test]
fn munmap_of_an_edge_shrinks_the_piece() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.munmap(1, 8, 4);
    b.munmap(1, 19, 4);
    assert_eq!(b.live(1, VM), (7 * PAGE, 1));
}

#[test]
fn map_fixed_over_the_middle_replaces_it() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.mmap(1, 14, 2, 8);
    assert_eq!(b.live(1, VM), (10 * PAGE, 3));
    let old = b.site(1, VM, 7).unwrap().totals;
    assert_eq!((old.live_bytes, old.live_count), (8 * PAGE, 2));
    assert_eq!(old.free_bytes, 2 * PAGE);
    assert_eq!(b.vm(1).peak_bytes, 10 * PAGE);
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn munmap_stays_live_until_its_outcome() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.unmap_begin(1, 10, 10);
    assert_eq!(b.live(1, VM), (10 * PAGE, 1));
    b.unmap_end(1, false);
    assert_eq!(b.live(1, VM), (0, 0));
}

#[test]
fn failed_munmap_changes_nothing() {
    for (start, len) in [(10, 10), (10, 3), (17, 3), (13, 2), (5, 50)] {
        let mut b = Bench::new();
        b.mmap(1, 10, 10, 7);
        b.mmap(1, 20, 10, 8);
        let before = b.vm(1);
        b.unmap_begin(1, start, len);
        b.unmap_end(1, true);
        assert_eq!(b.vm(1), before, "{start} {len}");
        // One piece again: one release ends it.
        b.munmap(1, 10, 10);
        assert_eq!(b.site(1, VM, 7).unwrap().totals.free_count, 1);
        assert_eq!(b.live(1, VM), (10 * PAGE, 1));
    }
}

#[test]
fn failed_munmap_after_the_rest_was_unmapped_leaves_one_piece() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.unmap_begin(2, 14, 2);
    b.unmap_begin(3, 10, 4);
    b.unmap_end(3, false);
    b.unmap_begin(3, 16, 4);
    b.unmap_end(3, false);
    b.unmap_end(2, true);
    assert_eq!(b.live(1, VM), (2 * PAGE, 1));
}

#[test]
fn range_mapped_anew_during_a_munmap_is_released_at_once() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.unmap_begin(2, 10, 10);
    b.mmap(1, 12, 3, 8);
    assert_eq!(b.live(1, VM), (10 * PAGE, 2));
    assert_eq!(b.vm(1).peak_bytes, 10 * PAGE);
    b.unmap_end(2, false);
    assert_eq!(b.live(1, VM), (3 * PAGE, 1));
    assert_eq!(b.site(1, VM, 7).unwrap().totals.free_count, 1);
}

#[test]
fn mremap_counts_as_realloc_at_its_own_stack() {
    // Grown in place, moved, shrunk.
    for new in [(10, 20), (50, 10), (10, 4)] {
        let mut b = Bench::new();
        b.mmap(1, 10, 10, 7);
        remap(&mut b, (10, 10), Some(new), 0, 8);
        assert_eq!(b.live(1, VM), (new.1 * PAGE, 1));
        assert_eq!(b.vm(1).peak_bytes, new.1.max(10) * PAGE);
        let old = b.site(1, VM, 7).unwrap().totals;
        assert_eq!((old.live_bytes, old.free_count), (0, 1));
        assert_eq!(b.site(1, VM, 8).unwrap().totals.live_bytes, new.1 * PAGE);
    }
}

#[test]
fn failed_mremap_changes_nothing() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    let before = b.vm(1);
    remap(&mut b, (12, 4), None, 0, 8);
    assert_eq!(b.vm(1), before);
}

#[test]
fn mremap_that_keeps_the_old_range_adds_the_new_one() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    remap(&mut b, (10, 10), Some((50, 10)), DONTUNMAP | 1, 8);
    assert_eq!(b.live(1, VM), (20 * PAGE, 2));
}

#[test]
fn mremap_of_length_zero_duplicates() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    remap(&mut b, (10, 0), Some((50, 10)), 1, 8);
    assert_eq!(b.live(1, VM), (20 * PAGE, 2));
}

#[test]
fn mremap_onto_a_mapping_replaces_it() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.mmap(1, 50, 4, 9);
    remap(&mut b, (10, 10), Some((49, 4)), 3, 8);
    assert_eq!(b.live(1, VM), (5 * PAGE, 2));
    assert_eq!(b.site(1, VM, 9).unwrap().totals.live_bytes, PAGE);
}

#[test]
fn mremap_keeps_the_kind_of_the_mapping() {
    let mut b = Bench::new();
    let action = Action::Mmap {
        addr: 10 * PAGE,
        len: PAGE,
        stack: StackId(7),
        kind: MapKind {
            by_allocator: true,
            ..MapKind::default()
        },
    };
    b.does(1, 1, action);
    remap(&mut b, (10, 1), Some((20, 2)), 1, 8);
    let changes = b.ledger.take_changes();
    let moved = changes.sites.iter().find(|(key, _)| key.stack.0 == 8);
    assert!(moved.unwrap().0.by_allocator);
}

#[test]
fn an_allocator_enlarges_a_mapping_from_before_the_attach() {
    let mut b = Bench::new();
    b.does(
        1,
        1,
        Action::RemapBegin {
            addr: 10 * PAGE,
            len: PAGE,
        },
    );
    let action = Action::RemapEnd {
        failed: false,
        addr: 20 * PAGE,
        len: 2 * PAGE,
        flags: 1,
        stack: StackId(8),
        by_allocator: true,
    };
    b.does(1, 1, action);
    let changes = b.ledger.take_changes();
    let moved = changes.sites.iter().find(|(key, _)| key.stack.0 == 8);
    assert!(moved.unwrap().0.by_allocator);
}

#[test]
fn second_munmap_of_a_thread_loses_the_first_outcome() {
    let mut b = Bench::new();
    b.mmap(1, 10, 10, 7);
    b.mmap(1, 30, 10, 7);
    b.unmap_begin(1, 10, 10);
    b.unmap_begin(1, 30, 10);
    assert_eq!(b.counts(), (0, 0, 1));
    assert_eq!(b.live(1, VM), (10 * PAGE, 1));
}

#[test]
fn mremap_inside_realloc_does_not_disturb_it() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 5);
    b.mmap(1, 10, 10, 7);
    b.realloc_begin(1, 16);
    remap(&mut b, (10, 10), Some((10, 20)), 1, 8);
    b.realloc_end(1, 16, 200, 6);
    assert_eq!(b.live(1, Layer::Heap), (200, 1));
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn first_break_is_the_baseline() {
    let mut b = Bench::new();
    brk(&mut b, 100 * PAGE + 5, 7);
    assert_eq!(b.live(1, VM), (0, 0));
    brk(&mut b, 104 * PAGE + 5, 7);
    assert_eq!(b.live(1, VM), (4 * PAGE, 1));
    // Within the page: nothing is mapped.
    brk(&mut b, 104 * PAGE + 9, 8);
    assert_eq!(b.vm(1).alloc_count, 1);
    brk(&mut b, 102 * PAGE, 7);
    assert_eq!(b.live(1, VM), (PAGE, 1));
    brk(&mut b, 90 * PAGE, 7);
    assert_eq!(b.live(1, VM), (0, 0));
}

#[test]
fn seeded_break_makes_the_first_growth_count() {
    let mut b = Bench::new();
    let heap = (100 * PAGE, 110 * PAGE);
    b.ledger
        .seed_regions(1, &[(100 * PAGE, 10 * PAGE)], Some(heap));
    assert_eq!(b.layer(1, VM).before_attach_bytes, 10 * PAGE);
    brk(&mut b, 112 * PAGE, 7);
    assert_eq!(b.live(1, VM), (2 * PAGE, 1));
    brk(&mut b, 105 * PAGE, 7);
    assert_eq!(b.live(1, VM), (0, 0));
    assert_eq!(b.layer(1, VM).before_attach_bytes, 5 * PAGE);
}

#[test]
fn shmdt_takes_every_piece_of_the_attachment() {
    let mut b = Bench::new();
    b.mmap(1, 20, 10, 9);
    b.mmap(1, 10, 10, 7);
    b.munmap(1, 13, 2);
    b.munmap(1, 10, 0);
    assert_eq!(b.live(1, VM), (10 * PAGE, 1));
    assert_eq!(b.site(1, VM, 7).unwrap().totals.live_count, 0);
}

#[test]
fn regions_from_before_attach_have_no_site() {
    let mut b = Bench::new();
    b.mmap(1, 30, 2, 7);
    b.ledger
        .seed_regions(1, &[(10 * PAGE, 10 * PAGE), (29 * PAGE, 4 * PAGE)], None);
    assert_eq!(b.layer(1, VM).before_attach_bytes, 12 * PAGE);
    b.munmap(1, 15, 2);
    b.unmap_begin(1, 10, 2);
    b.unmap_end(1, true);
    assert_eq!(b.layer(1, VM).before_attach_bytes, 10 * PAGE);
    // Moved by mremap, a mapping becomes known.
    remap(&mut b, (10, 5), Some((50, 5)), 1, 8);
    assert_eq!(b.layer(1, VM).before_attach_bytes, 5 * PAGE);
    assert_eq!(b.live(1, VM), (7 * PAGE, 2));
    assert!(b.site(1, VM, 0).is_none());
    assert_eq!(b.ledger.births(0).len(), 2);
}

#[test]
fn an_arena_counts_for_python_until_its_last_page_is_gone() {
    const PYTHON: Layer = Layer::Python;
    let mut b = Bench::new();
    b.mmap_arena(1, 100, 64, 7);
    b.mmap(1, 164, 64, 7);
    assert_eq!(b.live(1, PYTHON), (64 * PAGE, 1));
    assert_eq!(b.live(1, VM), (64 * PAGE, 1));
    // One munmap over a part of both.
    b.munmap(1, 160, 8);
    assert_eq!(b.live(1, PYTHON), (60 * PAGE, 1));
    assert_eq!(b.live(1, VM), (60 * PAGE, 1));
    // A failed munmap gives it back, MAP_FIXED replaces a part, a child inherits the rest.
    b.unmap_begin(1, 110, 10);
    b.unmap_end(1, true);
    assert_eq!(b.live(1, PYTHON), (60 * PAGE, 1));
    b.mmap(1, 150, 10, 8);
    assert_eq!(b.live(1, PYTHON), (50 * PAGE, 1));
    assert_eq!(b.live(1, VM), (70 * PAGE, 2));
    b.fork(1, 2);
    assert_eq!(b.inherited(2, PYTHON), (50 * PAGE, 1));
    remap(&mut b, (100, 50), Some((300, 60)), 1, 9);
    assert_eq!(b.live(1, PYTHON), (60 * PAGE, 1), "moved and grown");
    b.munmap(1, 300, 60);
    let totals = b.layer(1, PYTHON).totals;
    assert_eq!((totals.live_bytes, totals.live_count), (0, 0));
    assert_eq!(totals.alloc_bytes, totals.free_bytes);
    assert_eq!(b.live(1, VM), (70 * PAGE, 2));
}
