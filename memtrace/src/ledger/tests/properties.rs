//! Random histories of forking processes against a model that keeps a map of blocks and a map of
//! pages, and recomputes all sums after each step.

use super::*;
use std::collections::BTreeMap;

const STACKS: u64 = 4;
const TGIDS: u64 = 5;

#[derive(Clone, Copy)]
struct Held {
    /// The mapping that a page belongs to.
    mapping: u64,
    layer: Layer,
    bytes: u64,
    stack: u32,
    own: bool,
}

/// Bytes and count, by stack.
type Sum = BTreeMap<u32, (u64, u64)>;

/// One process: heap blocks by address, pages by number, and per layer the total ever allocated and
/// the sums at the peak.
#[derive(Clone, Default)]
struct Model {
    heap: BTreeMap<u64, Held>,
    pages: BTreeMap<u64, Held>,
    allocated: [(u64, u64); 3],
    peak: [u64; 3],
    at_peak: [Sum; 3],
}

/// The other layers behave like the heap, each separately.
const MODELLED: [Layer; 3] = [Layer::Vm, Layer::Heap, Layer::Python];

impl Model {
    fn sum(&self, layer: Layer, own: bool) -> Sum {
        let mut sum = Sum::new();
        let mut add = |held: &Held, starts: bool| {
            if held.own == own {
                let row = sum.entry(held.stack).or_default();
                row.0 += held.bytes;
                row.1 += u64::from(starts);
            }
        };
        match layer {
            Layer::Heap => self.heap.values().for_each(|held| add(held, true)),
            _ => {
                for (page, held) in self.pages.iter().filter(|(_, held)| held.layer == layer) {
                    let before = page.checked_sub(1).and_then(|p| self.pages.get(&p));
                    add(held, before.is_none_or(|b| b.mapping != held.mapping));
                }
            }
        }
        sum
    }

    /// Returns the layers that have a new peak.
    fn note_peaks(&mut self) -> Vec<Layer> {
        let before = self.peak;
        for layer in MODELLED {
            let own = self.sum(layer, true);
            let bytes = own.values().map(|row| row.0).sum();
            if bytes > self.peak[layer as usize] {
                self.peak[layer as usize] = bytes;
                self.at_peak[layer as usize] = own;
            }
        }
        let grew = |layer: &Layer| self.peak[*layer as usize] > before[*layer as usize];
        MODELLED.into_iter().filter(grew).collect()
    }

    fn alloc(&mut self, addr: u64, bytes: u64, stack: u32) {
        let held = Held {
            mapping: 0,
            layer: Layer::Heap,
            bytes,
            stack,
            own: true,
        };
        self.heap.insert(addr, held);
        self.allocated[Layer::Heap as usize].0 += bytes;
        self.allocated[Layer::Heap as usize].1 += 1;
    }

    fn map(&mut self, layer: Layer, (start, len): (u64, u64), mapping: u64, stack: u32) {
        for page in start..start + len {
            let held = Held {
                mapping,
                layer,
                bytes: PAGE,
                stack,
                own: true,
            };
            self.pages.insert(page, held);
        }
        self.allocated[layer as usize].0 += len * PAGE;
        self.allocated[layer as usize].1 += 1;
    }

    /// Unmaps a range, except the part in `kept`.
    fn unmap(&mut self, (start, len): (u64, u64), kept: (u64, u64)) {
        let kept = kept.0..kept.0 + kept.1;
        self.pages
            .retain(|page, _| !(start..start + len).contains(page) || kept.contains(page));
    }

    fn clear(&mut self) {
        self.heap.clear();
        self.pages.clear();
    }

    fn forked(&self) -> Model {
        let mut child = Model {
            heap: self.heap.clone(),
            pages: self.pages.clone(),
            ..Model::default()
        };
        for held in child.heap.values_mut().chain(child.pages.values_mut()) {
            held.own = false;
        }
        child
    }
}

fn total(sum: &Sum) -> (u64, u64) {
    sum.values()
        .fold((0, 0), |t, row| (t.0 + row.0, t.1 + row.1))
}

fn assert_equal(b: &mut Bench, tgid: u32, model: &Model) {
    for layer in MODELLED {
        let (own, inherited) = (model.sum(layer, true), model.sum(layer, false));
        assert_eq!(b.live(tgid, layer), total(&own), "live {layer:?}");
        assert_eq!(
            b.inherited(tgid, layer),
            total(&inherited),
            "inherited {layer:?}"
        );
        let known = b.layer(tgid, layer);
        let totals = known.totals;
        assert_eq!(
            (totals.alloc_bytes, totals.alloc_count),
            model.allocated[layer as usize]
        );
        assert_eq!(
            totals.alloc_bytes,
            totals.live_bytes + totals.free_bytes + known.cleared_by_exec_bytes
        );
        assert_eq!(
            totals.peak_bytes, model.peak[layer as usize],
            "peak {layer:?}"
        );
        for stack in 0..STACKS as u32 {
            let site = b
                .site(tgid, layer, stack)
                .map(|s| s.totals)
                .unwrap_or_default();
            let of = |sum: &Sum| sum.get(&stack).copied().unwrap_or_default();
            assert_eq!((site.live_bytes, site.live_count), of(&own));
            assert_eq!((site.inherited_bytes, site.inherited_count), of(&inherited));
            let at_peak = of(&model.at_peak[layer as usize]);
            assert_eq!(b.at_peak(tgid, layer, stack), at_peak, "at peak {layer:?}");
        }
    }
}

/// One random step of `tgid`, in ledger and model.
fn step(b: &mut Bench, random: &mut Random, tgid: u32, model: &mut Model, mapping: u64) {
    let stack = random.below(STACKS) as u32;
    let addr = 16 * (1 + random.below(60));
    let size = random.below(1000);
    let range = (random.below(60), 1 + random.below(12));
    let heap = Layer::Heap;
    match random.below(10) {
        0..=2 => {
            b.alloc(tgid, addr, size, stack);
            model.alloc(addr, size, stack);
        }
        3 => {
            b.free(tgid, addr);
            model.heap.remove(&addr);
        }
        4 => {
            let new = [addr, 0, 16 * (1 + random.below(60))][random.below(3) as usize];
            b.does(tgid, 9, Action::ReallocBegin { layer: heap, addr });
            let own = total(&model.sum(heap, true));
            assert_eq!(b.live(tgid, heap), own, "a realloc in flight is live");
            let action = Action::ReallocEnd {
                layer: heap,
                addr: new,
                size,
                stack: StackId(stack),
            };
            b.does(tgid, 9, action);
            if new != 0 || size == 0 {
                model.heap.remove(&addr);
            }
            if new != 0 {
                model.alloc(new, size, stack);
            }
        }
        5 | 6 => {
            b.mmap(tgid, range.0, range.1, stack);
            model.map(Layer::Vm, range, mapping, stack);
        }
        7 => {
            b.mmap_arena(tgid, range.0, range.1, stack);
            model.map(Layer::Python, range, mapping, stack);
        }
        8 => {
            let failed = random.below(3) == 0;
            let action = Action::UnmapBegin {
                addr: range.0 * PAGE,
                len: range.1 * PAGE,
            };
            b.does(tgid, 9, action);
            // Another thread may map a part before the outcome is reported; the
            // rest is live until then, and so part of a peak.
            let other = (random.below(60), 1 + random.below(12));
            let reused = random.below(2) == 0;
            if reused {
                b.mmap(tgid, other.0, other.1, stack);
                model.map(Layer::Vm, other, mapping, stack);
                for layer in model.note_peaks() {
                    adopt_counts_at_peak(b, tgid, layer, model);
                }
            }
            b.does(tgid, 9, Action::UnmapEnd { failed });
            if !failed {
                let kept = if reused { other } else { (0, 0) };
                model.unmap(range, kept);
            }
        }
        _ => {
            let failed = random.below(3) == 0;
            let new = (random.below(60), 1 + random.below(12));
            let flags = [1, 5][random.below(2) as usize];
            // Moved memory continues to count for the same layer.
            let moved = model
                .pages
                .get(&range.0)
                .map_or(Layer::Vm, |held| held.layer);
            let action = Action::RemapBegin {
                addr: range.0 * PAGE,
                len: range.1 * PAGE,
            };
            b.does(tgid, 9, action);
            let action = Action::RemapEnd {
                failed,
                addr: new.0 * PAGE,
                len: new.1 * PAGE,
                flags,
                stack: StackId(stack),
                by_allocator: false,
            };
            b.does(tgid, 9, action);
            if !failed {
                if flags == 1 {
                    model.unmap(range, (0, 0));
                }
                model.map(moved, new, mapping, stack);
            }
        }
    }
}

/// At a peak during a munmap the number of pieces depends on the coming split; the bytes do not.
fn adopt_counts_at_peak(b: &mut Bench, tgid: u32, layer: Layer, model: &mut Model) {
    for stack in 0..STACKS as u32 {
        let (bytes, count) = b.at_peak(tgid, layer, stack);
        let row = model.at_peak[layer as usize].entry(stack).or_default();
        assert_eq!(bytes, row.0, "bytes at a peak during a munmap");
        row.1 = count;
    }
}

#[test]
fn random_histories_equal_the_model() {
    for seed in 1..=60 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut b = Bench::new();
        let mut models = BTreeMap::from([(1, Model::default())]);
        // Blocks inherited from a process must survive its folding.
        let group = (seed % 2 == 0).then(|| b.ledger.new_group());
        for mapping in 1..400 {
            let tgids: Vec<u32> = models.keys().copied().collect();
            let tgid = tgids[random.below(tgids.len() as u64) as usize];
            match random.below(40) {
                0 => {
                    let child = 1 + random.below(TGIDS) as u32;
                    if child != tgid {
                        b.fork(tgid, child);
                        let forked = models[&tgid].forked();
                        models.insert(child, forked);
                    }
                }
                1 => {
                    b.does(tgid, tgid, Action::Exec);
                    models.entry(tgid).and_modify(Model::clear);
                }
                2 if models.len() > 1 => {
                    b.does(tgid, tgid, Action::Exit { status: 0 });
                    let model = models.remove(&tgid).unwrap();
                    match group {
                        Some(group) => assert!(b.ledger.fold(b.id(tgid), group)),
                        None => assert_equal(&mut b, tgid, &model),
                    }
                }
                _ => {
                    let model = models.get_mut(&tgid).unwrap();
                    step(&mut b, &mut random, tgid, model, mapping);
                    model.note_peaks();
                }
            }
            for (tgid, model) in &models {
                assert_equal(&mut b, *tgid, model);
            }
        }
        assert_eq!(b.counts().2, 0);
    }
}

#[test]
fn table_equals_a_map_and_a_clone_keeps_its_own() {
    use table::{Block, Table};
    let mut random = Random(7);
    let block = |addr, size| Block {
        addr,
        size,
        birth_ns: 0,
        site: 0,
    };
    let mut pairs = vec![(Table::default(), BTreeMap::new())];
    for i in 0..200_000 {
        if i % 40_000 == 39_999 {
            let copy = (pairs[0].0.clone(), pairs[0].1.clone());
            pairs.push(copy);
        }
        let at = random.below(pairs.len() as u64) as usize;
        let (table, map) = &mut pairs[at];
        let addr = 16 * (1 + random.below(20_000));
        // Growing and shrinking by turns.
        if random.below(10) < if i / 30_000 % 2 == 0 { 7 } else { 2 } {
            let old = map.insert(addr, i);
            assert_eq!(table.insert(block(addr, i)).map(|b| b.size), old);
        } else {
            assert_eq!(table.remove(addr).map(|b| b.size), map.remove(&addr));
        }
        assert_eq!(table.len(), map.len());
    }
    for (table, map) in &pairs {
        let found: BTreeMap<u64, u64> = table.iter().map(|b| (b.addr, b.size)).collect();
        assert_eq!(&found, map);
    }
}
