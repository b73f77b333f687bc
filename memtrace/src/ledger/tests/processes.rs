//! Fork, vfork, exec, exit, tgids that come back.

use super::*;

const HEAP: Layer = Layer::Heap;
const VM: Layer = Layer::Vm;

fn vfork(b: &mut Bench, parent: u32, child: u32) {
    let action = Action::Fork {
        child,
        shared_vm: true,
    };
    b.does(parent, parent, action);
}

#[test]
fn child_inherits_and_neither_touches_the_other() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.alloc(1, 32, 50, 8);
    b.fork(1, 2);
    assert_eq!(b.inherited(2, HEAP), (150, 2));
    assert_eq!(b.live(2, HEAP), (0, 0));
    assert_eq!(b.site(2, HEAP, 7).unwrap().totals.inherited_bytes, 100);
    b.free(2, 16);
    b.free(1, 32);
    b.alloc(2, 48, 9, 7);
    assert_eq!(b.inherited(2, HEAP), (50, 1));
    assert_eq!(b.live(2, HEAP), (9, 1));
    assert_eq!(b.live(1, HEAP), (100, 1));
    // An inherited block does not count as "released here".
    assert_eq!(b.heap(2).free_count, 0);
    assert_eq!(b.heap(2).peak_bytes, 9);
    b.free(1, 16);
    b.free(2, 32);
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn a_grandchild_inherits_owned_and_inherited_blocks() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.fork(1, 2);
    b.alloc(2, 32, 50, 7);
    b.fork(2, 3);
    assert_eq!(b.inherited(3, HEAP), (150, 2));
    b.free(3, 16);
    b.free(3, 32);
    assert_eq!(b.inherited(3, HEAP), (0, 0));
    assert_eq!(b.inherited(2, HEAP), (100, 1));
    assert_eq!(b.live(2, HEAP), (50, 1));
}

#[test]
fn inherited_blocks_outlive_the_parent() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.fork(1, 2);
    b.does(1, 1, Action::Exit { status: 0 });
    b.ledger.take_changes();
    b.fork(2, 3);
    b.free(2, 16);
    b.free(3, 16);
    assert_eq!(b.inherited(2, HEAP), (0, 0));
    assert_eq!(b.inherited(3, HEAP), (0, 0));
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn fork_shares_the_tables() {
    let mut b = Bench::new();
    for i in 1..=100_000 {
        b.alloc(1, i * 16, 10, 7);
    }
    let before = b.ledger.table_bytes();
    b.fork(1, 2);
    assert!(b.ledger.table_bytes() < before + before / 10);
    assert_eq!(b.inherited(2, HEAP), (1_000_000, 100_000));
}

#[test]
fn child_inherits_mappings() {
    let mut b = Bench::new();
    b.ledger.seed_regions(1, &[(100 * PAGE, PAGE)], None);
    b.mmap(1, 10, 10, 7);
    b.fork(1, 2);
    assert_eq!(b.layer(2, VM).before_attach_bytes, PAGE);
    b.munmap(2, 14, 2);
    assert_eq!(b.inherited(2, VM), (8 * PAGE, 2));
    b.munmap(2, 0, 50);
    assert_eq!(b.inherited(2, VM), (0, 0));
    assert_eq!(b.live(1, VM), (10 * PAGE, 1));
}

#[test]
fn blocks_in_flight_in_other_threads_are_inherited() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.mmap(1, 10, 10, 7);
    b.realloc_begin(5, 16);
    b.unmap_begin(6, 14, 2);
    b.fork(1, 2);
    assert_eq!(b.inherited(2, HEAP), (100, 1));
    assert_eq!(b.inherited(2, VM), (10 * PAGE, 1));
    b.free(2, 16);
    b.munmap(2, 10, 10);
    assert_eq!(b.inherited(2, HEAP), (0, 0));
    assert_eq!(b.inherited(2, VM), (0, 0));
    b.realloc_end(5, 32, 60, 7);
    b.unmap_end(6, false);
    assert_eq!(b.live(1, HEAP), (60, 1));
    assert_eq!(b.live(1, VM), (8 * PAGE, 2));
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn vfork_child_has_no_memory_of_its_own_until_exec() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    vfork(&mut b, 1, 2);
    assert_ne!(b.id(1), b.id(2));
    assert_eq!(b.inherited(2, HEAP), (0, 0));
    b.alloc(2, 32, 5, 7);
    assert_eq!(b.live(2, HEAP), (0, 0));
    b.does(2, 2, Action::Exec);
    b.alloc(2, 16, 5, 7);
    assert_eq!(b.live(2, HEAP), (5, 1));
    assert_eq!(b.layer(2, HEAP).cleared_by_exec_bytes, 0);
    assert_eq!(b.live(1, HEAP), (100, 1));
}

#[test]
fn a_fork_of_a_vfork_child_copies_borrowed_memory() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    vfork(&mut b, 1, 2);
    b.fork(2, 3);
    assert_eq!(b.inherited(3, HEAP), (100, 1));
}

#[test]
fn fork_of_an_unknown_parent_starts_an_empty_process() {
    let mut b = Bench::new();
    b.fork(77, 2);
    assert_eq!(b.ledger.process_of(77), None);
    b.alloc(2, 16, 5, 7);
    assert_eq!(b.live(2, HEAP), (5, 1));
}

#[test]
fn exec_clears_and_reports_the_cleared_memory() {
    let mut b = Bench::new();
    b.ledger.seed_regions(1, &[(100 * PAGE, PAGE)], None);
    b.alloc(1, 16, 100, 7);
    b.mmap(1, 10, 10, 7);
    b.fork(1, 2);
    b.alloc(2, 32, 9, 7);
    b.does(2, 2, Action::Exec);
    let heap = b.layer(2, HEAP);
    assert_eq!(
        (heap.cleared_by_exec_bytes, heap.cleared_by_exec_count),
        (9, 1)
    );
    let expected = Totals {
        alloc_bytes: 9,
        alloc_count: 1,
        peak_bytes: 9,
        peak_ns: heap.totals.peak_ns,
        ..Totals::default()
    };
    assert_eq!(heap.totals, expected);
    assert_eq!(b.site(2, HEAP, 7).unwrap().totals, expected);
    assert_eq!(b.at_peak(2, HEAP, 7), (9, 1));
    let vm = b.layer(2, VM);
    assert_eq!((vm.totals, vm.before_attach_bytes), (Totals::default(), 0));
    assert_eq!(b.live(1, HEAP), (100, 1));
    b.free(2, 16);
    assert_eq!(b.counts(), (1, 0, 0));
}

#[test]
fn exec_forgets_the_break() {
    let mut b = Bench::new();
    for (now, stack) in [(100, 7), (110, 7)] {
        let now = now * PAGE;
        let action = Action::Brk {
            requested: 0,
            now,
            stack: StackId(stack),
            by_allocator: false,
        };
        b.does(1, 1, action);
        b.does(1, 1, Action::Exec);
    }
    assert_eq!(b.vm(1), Totals::default());
}

#[test]
fn exec_and_exit_lose_outcomes() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.realloc_begin(5, 16);
    b.does(1, 1, Action::Exec);
    assert_eq!(b.counts(), (0, 0, 1));
    assert_eq!(b.layer(1, HEAP).cleared_by_exec_bytes, 0);
    assert_eq!(b.heap(1).free_bytes, 100);
    b.mmap(1, 10, 10, 7);
    b.unmap_begin(5, 10, 10);
    b.does(1, 1, Action::Exit { status: 9 });
    assert_eq!(b.counts(), (0, 0, 2));
    assert_eq!(b.live(1, VM), (0, 0));
}

#[test]
fn exit_keeps_live_memory() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.does(1, 1, Action::Exit { status: 0 });
    assert_eq!(b.live(1, HEAP), (100, 1));
    assert_eq!((b.ledger.outstanding(), b.ledger.table_bytes()), (0, 0));
    assert_eq!(b.ledger.births(0).len(), 1);
    assert_eq!(b.ledger.births(0).len(), 0);
}

#[test]
fn births_leave_out_inherited_blocks() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.fork(1, 2);
    b.alloc(2, 32, 9, 8);
    let births = b.ledger.births(0);
    let stacks: Vec<_> = births
        .iter()
        .map(|(key, _)| (key.process.0, key.stack.0))
        .collect();
    assert_eq!(stacks, [(1, 7), (2, 8)]);
}

#[test]
fn tgid_that_comes_back_is_another_process() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    let first = b.id(1);
    let second = b.ledger.start_process(1);
    assert_ne!(first, second);
    b.free(1, 16);
    assert_eq!(b.counts(), (1, 0, 0));
    b.does(1, 1, Action::Exit { status: 0 });
    b.fork(9, 1);
    assert!(b.id(1) > second);
    b.does(1, 1, Action::Exit { status: 0 });
    let ended = b.id(1);
    b.does(1, 1, Action::Exit { status: 0 });
    assert_eq!(b.id(1), ended);
    b.alloc(1, 16, 3, 7);
    assert!(b.id(1) > ended);
    assert_eq!(b.live(1, HEAP), (3, 1));
}

#[test]
fn event_of_an_unknown_process_starts_it() {
    let mut b = Bench::new();
    assert_eq!(b.ledger.process_of(5), None);
    b.alloc(5, 16, 3, 7);
    assert_eq!(b.live(5, HEAP), (3, 1));
}

#[test]
fn exec_does_not_report_empty_layers() {
    let mut b = Bench::new();
    b.alloc(1, 16, 8, 7);
    b.does(1, 1, Action::Exec);
    b.heap(1);
    let layers: Vec<_> = b.layers.keys().map(|(_, layer)| *layer).collect();
    assert_eq!(layers, [Layer::Heap]);
}
