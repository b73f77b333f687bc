//! Alloc, free, realloc; the table's size.

use super::*;

const HEAP: Layer = Layer::Heap;

#[test]
fn alloc_and_free_count_at_site_and_layer() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.alloc(1, 32, 50, 7);
    b.free(1, 16);
    let totals = b.heap(1);
    let expected = Totals {
        live_bytes: 50,
        live_count: 1,
        alloc_bytes: 150,
        alloc_count: 2,
        free_bytes: 100,
        free_count: 1,
        peak_bytes: 150,
        peak_ns: 1002,
        ..Totals::default()
    };
    assert_eq!(totals, expected);
    let site = b.site(1, HEAP, 7).unwrap();
    assert_eq!(site.totals, expected);
    assert_eq!((site.first_ns, site.last_ns), (1001, 1002));
    // Born 1001, freed 1003.
    assert_eq!(site.lifetimes[1], 1);
    assert_eq!(site.lifetimes.iter().sum::<u64>(), 1);
}

#[test]
fn null_is_neither_an_allocation_nor_a_release() {
    let mut b = Bench::new();
    b.alloc(1, 0, 100, 7);
    b.free(1, 0);
    assert_eq!(b.heap(1), Totals::default());
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn free_of_unknown_address_is_counted() {
    let mut b = Bench::new();
    b.free(1, 16);
    assert_eq!(b.counts(), (1, 0, 0));
    assert_eq!(b.heap(1), Totals::default());
}

#[test]
fn reused_address_replaces_the_old_block_without_a_lifetime() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.alloc(1, 16, 30, 8);
    assert_eq!(b.live(1, HEAP), (30, 1));
    assert_eq!(b.counts(), (0, 1, 0));
    let old = b.site(1, HEAP, 7).unwrap();
    assert_eq!((old.totals.free_bytes, old.totals.free_count), (100, 1));
    assert_eq!(old.lifetimes.iter().sum::<u64>(), 0);
    assert_eq!(b.heap(1).peak_bytes, 100);
}

#[test]
fn realloc_moves_the_block_to_its_own_site_without_a_false_peak() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.realloc_begin(1, 16);
    assert_eq!(b.live(1, HEAP), (100, 1));
    b.realloc_end(1, 64, 120, 8);
    assert_eq!(b.live(1, HEAP), (120, 1));
    assert_eq!(b.heap(1).peak_bytes, 120);
    assert_eq!(b.site(1, HEAP, 7).unwrap().totals.live_bytes, 0);
    assert_eq!(b.site(1, HEAP, 8).unwrap().totals.live_bytes, 120);
    b.free(1, 16);
    assert_eq!(b.counts(), (1, 0, 0));
}

#[test]
fn failed_realloc_keeps_the_old_block() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    let before = b.heap(1);
    b.realloc_begin(1, 16);
    b.realloc_end(1, 0, 1 << 60, 8);
    assert_eq!(b.heap(1), before);
    b.free(1, 16);
    assert_eq!(b.live(1, HEAP), (0, 0));
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn realloc_to_nothing_frees() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.realloc_begin(1, 16);
    b.realloc_end(1, 0, 0, 8);
    assert_eq!(b.live(1, HEAP), (0, 0));
    assert_eq!(b.heap(1).free_count, 1);
    assert!(b.site(1, HEAP, 8).is_none());
}

#[test]
fn realloc_of_null_is_an_allocation() {
    let mut b = Bench::new();
    b.realloc_begin(1, 0);
    b.realloc_end(1, 16, 100, 7);
    assert_eq!(b.live(1, HEAP), (100, 1));
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn realloc_of_unknown_block_counts_only_when_it_succeeds() {
    let mut b = Bench::new();
    b.realloc_begin(1, 16);
    b.realloc_end(1, 0, 100, 7);
    assert_eq!(b.counts(), (0, 0, 0));
    b.realloc_begin(1, 16);
    b.realloc_end(1, 32, 100, 7);
    assert_eq!(b.counts(), (1, 0, 0));
    assert_eq!(b.live(1, HEAP), (100, 1));
}

#[test]
fn second_realloc_of_a_thread_loses_the_first_outcome() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.alloc(1, 32, 50, 7);
    b.realloc_begin(1, 16);
    b.realloc_begin(1, 32);
    assert_eq!(b.counts(), (0, 0, 1));
    assert_eq!(b.live(1, HEAP), (50, 1));
    b.realloc_end(1, 64, 60, 7);
    assert_eq!(b.live(1, HEAP), (60, 1));
    assert_eq!(b.counts(), (0, 0, 1));
}

#[test]
fn reallocs_of_two_threads_do_not_meet() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.alloc(1, 32, 50, 7);
    b.realloc_begin(1, 16);
    b.realloc_begin(2, 32);
    b.realloc_end(1, 64, 10, 7);
    b.realloc_end(2, 0, 99, 7);
    assert_eq!(b.live(1, HEAP), (60, 2));
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn address_of_a_realloc_in_flight_may_be_handed_out_again() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.realloc_begin(2, 16);
    b.alloc(1, 16, 100, 8);
    // The reuse proves that the old block is gone.
    assert_eq!(b.live(1, HEAP), (100, 1));
    b.realloc_end(2, 64, 5, 7);
    assert_eq!(b.live(1, HEAP), (105, 2));
    assert_eq!(b.heap(1).peak_bytes, 105);
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn unknown_stack_is_a_site_like_any_other() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, StackId::UNKNOWN.0);
    assert_eq!(b.site(1, HEAP, 0).unwrap().totals.live_bytes, 100);
}

#[test]
fn changes_contain_only_changes() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.alloc(1, 32, 100, 8);
    assert_eq!(b.ledger.take_changes().sites.len(), 2);
    let none = b.ledger.take_changes();
    assert!(none.sites.is_empty() && none.layers.is_empty());
    b.free(1, 16);
    let changes = b.ledger.take_changes();
    assert_eq!(changes.sites.len(), 1);
    assert_eq!(changes.sites[0].0.stack, StackId(7));
    assert_eq!(changes.layers.len(), 1);
}

#[test]
fn sites_unchanged_since_the_peak_keep_their_live_figures() {
    let mut b = Bench::new();
    b.alloc(1, 16, 10, 7);
    b.alloc(1, 32, 20, 8);
    assert_eq!(b.at_peak(1, HEAP, 7), (10, 1));
    b.free(1, 16);
    b.alloc(1, 48, 5, 7);
    assert_eq!(b.at_peak(1, HEAP, 7), (10, 1));
    assert_eq!(b.at_peak(1, HEAP, 8), (20, 1));
    b.alloc(1, 64, 100, 9);
    assert_eq!(b.at_peak(1, HEAP, 7), (5, 1));
    assert_eq!(b.at_peak(1, HEAP, 9), (100, 1));
}

#[test]
fn births_are_seconds_rounded_up() {
    let mut b = Bench::new();
    for (time, addr) in [
        (1_500_000_000, 16),
        (2_000_000_000, 32),
        (2_000_000_001, 48),
    ] {
        b.now = time - 1;
        b.alloc(1, addr, addr, 7);
    }
    let births = b.ledger.births(0);
    assert_eq!(births.len(), 1);
    assert_eq!(
        births[0].1.rows,
        [(2_000_000_000, 48, 2), (3_000_000_000, 48, 1)]
    );
}

#[test]
fn births_of_many_seconds_are_merged_into_256_rows() {
    let mut b = Bench::new();
    for second in 1..=1000 {
        b.now = second * 1_000_000_000 - 1;
        b.alloc(1, second * 16, 10, 7);
    }
    let rows = &b.ledger.births(0)[0].1.rows;
    assert!(rows.len() <= 256 && rows.len() > 200, "{}", rows.len());
    assert!(rows.is_sorted());
    assert_eq!(rows.last().unwrap().0, 1000 * 1_000_000_000);
    assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), 10_000);
    assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), 1000);
}

fn assert_under_64_bytes(ledger: &Ledger) {
    let (bytes, blocks) = (ledger.table_bytes(), ledger.outstanding());
    assert!(bytes < 64 * blocks, "{bytes} bytes for {blocks} blocks");
}

#[test]
fn two_million_blocks_take_under_64_bytes_each() {
    let mut b = Bench::new();
    let mut random = Random(1);
    let mut addrs = Vec::new();
    // Clusters as an allocator's runs: 16-byte aligned, many sizes, several arenas.
    while addrs.len() < 2_000_000 {
        let mut addr = 0x7f00_0000_0000 + random.below(64) * 0x400_0000 + addrs.len() as u64 * 512;
        let size = 16 * (1 + random.below(16));
        for _ in 0..256 {
            addrs.push(addr);
            addr += size;
        }
    }
    addrs.sort_unstable();
    addrs.dedup();
    for (i, addr) in addrs.iter().enumerate() {
        b.alloc(1, *addr, 24, (i % 100) as u32);
        if i >= 10_000 && i % 50_000 == 0 {
            assert_under_64_bytes(&b.ledger);
        }
    }
    assert_eq!(b.ledger.outstanding(), addrs.len() as u64);
    assert_under_64_bytes(&b.ledger);
    for i in 0..addrs.len() {
        let at = random.below(addrs.len() as u64) as usize;
        b.free(1, addrs[at]);
        addrs[at] = 0x5500_0000_0000 + i as u64 * 48;
        b.alloc(1, addrs[at], 24, 3);
    }
    assert_eq!(b.ledger.outstanding(), addrs.len() as u64);
    assert_under_64_bytes(&b.ledger);
    for addr in addrs.drain(1000..) {
        b.free(1, addr);
    }
    assert_eq!(b.ledger.outstanding(), 1000);
    assert!(
        b.ledger.table_bytes() < 8 << 20,
        "{}",
        b.ledger.table_bytes()
    );
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn a_repeated_free_counts_only_for_a_live_block() {
    let mut b = Bench::new();
    let repeated = Action::Free {
        layer: HEAP,
        addr: 16,
        repeated: true,
    };
    b.alloc(1, 16, 100, 7);
    b.does(1, 1, repeated);
    assert_eq!(b.ledger.outstanding(), 0);
    b.does(1, 1, repeated);
    assert_eq!(b.ledger.counts().unknown_free, 0);
}
