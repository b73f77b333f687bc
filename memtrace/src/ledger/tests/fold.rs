//! Folding ended processes into a group.

use super::*;
use std::collections::BTreeMap;

const HEAP: Layer = Layer::Heap;

fn exit(b: &mut Bench, tgid: u32) {
    b.does(tgid, tgid, Action::Exit { status: 0 });
}

/// Figures that can be added.
fn sums(totals: &Totals) -> [u64; 8] {
    [
        totals.live_bytes,
        totals.live_count,
        totals.inherited_bytes,
        totals.inherited_count,
        totals.alloc_bytes,
        totals.alloc_count,
        totals.free_bytes,
        totals.free_count,
    ]
}

fn add<K: Ord>(to: &mut BTreeMap<K, ([u64; 8], u64)>, key: K, figures: [u64; 8], peak: u64) {
    let (sum, largest) = to.entry(key).or_default();
    for (sum, figure) in sum.iter_mut().zip(figures) {
        *sum += figure;
    }
    *largest = peak.max(*largest);
}

/// Over all processes: by layer and stack, and by layer, the sums and the largest peak.
fn over_all(b: &mut Bench) -> impl PartialEq + std::fmt::Debug + use<> {
    b.read_changes();
    let (mut sites, mut layers) = (BTreeMap::new(), BTreeMap::new());
    let mut lifetimes: BTreeMap<(Layer, StackId), Vec<u64>> = BTreeMap::new();
    for (key, site) in &b.sites {
        if site.totals == Totals::default() {
            continue;
        }
        let at = (key.layer, key.stack);
        add(&mut sites, at, sums(&site.totals), site.totals.peak_bytes);
        let counts = lifetimes.entry(at).or_default();
        counts.resize(counts.len().max(site.lifetimes.len()), 0);
        for (count, more) in counts.iter_mut().zip(&site.lifetimes) {
            *count += more;
        }
    }
    for ((_, layer), of) in &b.layers {
        add(&mut layers, *layer, sums(&of.totals), of.totals.peak_bytes);
    }
    (sites, layers, lifetimes)
}

#[test]
fn folding_changes_no_sum() {
    for seed in 1..=20 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut benches = [Bench::new(), Bench::new()];
        let groups = [1, 2].map(|_| benches[1].ledger.new_group());
        for child in 10..40 {
            for b in &mut benches {
                b.fork(1, child);
            }
            for mapping in 0..30 {
                let state = random.0;
                for b in &mut benches {
                    // The same step for both, which differ only in earlier folding.
                    random.0 = state;
                    let tgid = [1, child][random.below(2) as usize];
                    unmodelled(b, &mut random, tgid, mapping);
                }
            }
            // Some were reported before, some never.
            if child % 3 == 0 {
                benches.iter_mut().for_each(Bench::read_changes);
            }
            for b in &mut benches {
                exit(b, child);
            }
            let b = &mut benches[1];
            let id = b.id(child);
            assert!(b.ledger.fold(id, groups[child as usize % 2]));
            // The same as in the recording.
            b.sites.retain(|key, _| key.process != id);
            b.layers.retain(|(process, _), _| *process != id);
        }
        let [apart, folded] = &mut benches;
        assert_eq!(over_all(apart), over_all(folded), "seed {seed}");
        let processes = |b: &Bench| {
            let processes = b.layers.keys().map(|(process, _)| *process);
            processes.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((processes(apart), processes(folded)), (31, 3));
    }
}

fn unmodelled(b: &mut Bench, random: &mut Random, tgid: u32, mapping: u64) {
    let addr = 16 * (1 + random.below(60));
    match random.below(6) {
        0..=2 => b.alloc(tgid, addr, random.below(1000), random.below(4) as u32),
        3 => b.free(tgid, addr),
        4 => b.mmap(
            tgid,
            random.below(60),
            1 + mapping % 7,
            random.below(4) as u32,
        ),
        _ => b.munmap(tgid, random.below(60), 1 + mapping % 7),
    }
}

#[test]
fn a_group_has_the_peak_of_its_largest_process() {
    let mut b = Bench::new();
    let group = b.ledger.new_group();
    // Stacks and sizes of each, all held at once.
    let processes: [&[(u32, u64)]; 4] = [
        &[(1, 100), (2, 50)],
        &[(2, 400), (3, 30)],
        &[(1, 300)],
        &[(4, 1)],
    ];
    for (tgid, blocks) in (2..).zip(processes) {
        b.fork(1, tgid);
        for (addr, (stack, size)) in (1..).zip(blocks) {
            b.alloc(tgid, 16 * addr, *size, *stack);
        }
        for (addr, _) in (1..).zip(blocks) {
            b.free(tgid, 16 * addr);
        }
        b.alloc(tgid, 16, 7, 9);
        exit(&mut b, tgid);
        assert!(b.ledger.fold(b.id(tgid), group));
        b.read_changes();
    }
    let layer = b.layers[&(group, HEAP)];
    assert_eq!((layer.totals.peak_bytes, layer.peak_epoch), (430, 0));
    assert_eq!((layer.totals.live_bytes, layer.totals.live_count), (28, 4));
    assert_eq!(layer.totals.alloc_bytes, 881 + 28);
    let at_peak: BTreeMap<u32, (u64, u64)> = b
        .sites
        .iter()
        .filter(|(key, _)| key.process == group)
        .map(|(key, site)| {
            assert_eq!(site.peak_epoch, 0);
            (key.stack.0, (site.at_peak_bytes, site.at_peak_count))
        })
        .collect();
    let expected = [
        (1, (0, 0)),
        (2, (400, 1)),
        (3, (30, 1)),
        (4, (0, 0)),
        (9, (0, 0)),
    ];
    assert_eq!(at_peak, BTreeMap::from(expected));
    let site = |stack| block_totals(&b, group, stack);
    assert_eq!(site(1).peak_bytes, 300);
    assert_eq!((site(9).live_bytes, site(9).live_count), (28, 4));
}

fn block_totals(b: &Bench, process: ProcessId, stack: u32) -> Totals {
    b.sites[&totals::block_site(process, HEAP, StackId(stack))].totals
}

#[test]
fn kept_state_follows_live_processes() {
    let mut b = Bench::new();
    let group = b.ledger.new_group();
    for tgid in 2..2000 {
        b.fork(1, tgid);
        for stack in 0..10 {
            b.alloc(tgid, 16 * u64::from(1 + stack), 8, stack);
        }
        // Its child continues for a while.
        b.fork(tgid, 10_000 + tgid);
        exit(&mut b, tgid);
        assert!(b.ledger.fold(b.id(tgid), group));
        if tgid > 5 {
            let child = 10_000 + tgid - 3;
            assert_eq!(b.inherited(child, HEAP), (80, 10));
            b.free(child, 16);
            assert_eq!(b.inherited(child, HEAP), (72, 9));
            exit(&mut b, child);
            assert!(b.ledger.fold(b.id(child), group));
        }
        b.read_changes();
    }
    assert!(b.ledger.book.slots() < 150, "{}", b.ledger.book.slots());
    assert!(b.ledger.book.accounts.len() < 10);
    assert_eq!(b.counts(), (0, 0, 0));
}

#[test]
fn an_exec_lets_go_of_the_ancestors_and_not_of_the_children() {
    let mut b = Bench::new();
    b.alloc(1, 16, 100, 7);
    b.fork(1, 2);
    b.does(1, 1, Action::Exec);
    exit(&mut b, 1);
    b.read_changes();
    // New sites would take the place of those that the child's blocks are of.
    b.ledger.start_process(3);
    for stack in 0..5 {
        b.alloc(3, 16 * u64::from(1 + stack), 1, stack);
    }
    assert_eq!(b.site(2, HEAP, 7).unwrap().totals.inherited_bytes, 100);
    b.free(2, 16);
    assert_eq!(b.site(2, HEAP, 7).unwrap().totals.inherited_bytes, 0);
    b.does(2, 2, Action::Exec);
    b.read_changes();
    let slots = b.ledger.book.slots();
    b.alloc(3, 16 * 99, 1, 99);
    assert_eq!(
        b.ledger.book.slots(),
        slots,
        "the place of the ended process's site"
    );
}

#[test]
fn one_that_used_a_device_stays_by_itself() {
    let mut b = Bench::new();
    b.does(
        1,
        1,
        Action::DeviceAlloc {
            layer: Layer::CudaRuntime,
            addr: 16,
            size: 10,
            stack: StackId(1),
            device: Some(0),
            source: crate::event::Source::default(),
        },
    );
    exit(&mut b, 1);
    let group = b.ledger.new_group();
    let id = b.id(1);
    assert!(!b.ledger.fold(id, group));
    b.fork(1, 2);
    exit(&mut b, 2);
    b.read_changes();
    assert!(
        !b.ledger.fold(b.id(2), group),
        "its last changes were taken"
    );
    assert!(b.sites.keys().all(|key| key.process == id) && !b.sites.is_empty());
}
