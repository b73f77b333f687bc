//! Blocks that a running process has allocated since its blocks were listed, such as those that it put at the head of a
//! list: they lead to older ones.

use super::{ASKING, Graph, NOBODY, NodeId, RootWord, bounds, word};
use crate::holders::{
    memory::{Cached, Live},
    native::{self, Block, Scanner},
    reference::cost,
};
use crate::process::maps::Mapping;
use std::ops::Range;

/// Bytes of blocks that are searched for words that lead to younger ones.
const MOST_BYTES: u64 = 256 << 20;

/// Most words that are kept: 48 MiB.
const MOST_WORDS: usize = 1 << 20;

/// Reached in an unknown way: less certain than any other way.
const BEHIND: u32 = 8 * cost::UNREACHED_STEP;

/// A word that leads to no known block, so perhaps to a younger one.
struct Source {
    of: Place,
    /// The cost of believing it.
    cost: u32,
    value: u64,
}

/// Where it is.
#[derive(Clone, Copy)]
enum Place {
    Root(RootWord),
    Block(NodeId),
}

impl Graph<'_> {
    /// Reaches the blocks behind younger ones, which `list` gives, and returns these. `mappings`: those of the process
    /// now.
    ///
    /// # Errors
    /// Those of `list`.
    pub(in crate::holders) fn search_younger<E>(
        &mut self,
        mappings: &[Mapping],
        list: impl FnOnce() -> Result<Vec<Block>, E>,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<Block>, E> {
        // Before the blocks are listed: each word's block is among them then.
        let mut sources = self.sources(mappings, memory);
        sources.sort_by_key(|source| source.cost);
        let mut younger = list()?;
        younger.sort_unstable_by_key(|block| block.start);
        let mut is_met = vec![false; younger.len()];
        for source in &sources {
            self.reach_through(source, &younger, &mut is_met, memory);
        }
        self.reach_from_native(memory);
        self.settle(memory, is_over);
        Ok(younger)
    }

    /// Reaches the rest, which only younger blocks lead to: in an unknown way.
    pub(in crate::holders) fn search_behind(
        &mut self,
        younger: &[Block],
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) {
        for block in younger {
            let range = block.start..block.start + block.size;
            self.scan(range, memory.now(), &mut |graph, _, value| {
                let reference = word(&[], 0, value, cost::UNREACHED + BEHIND);
                graph.reach_from(RootWord::Younger, &reference, memory);
            });
        }
        self.settle(memory, is_over);
    }

    /// Reaches the rest, to which blocks lead that have changed since they were read: in an unknown way, too. Whether there
    /// were some.
    pub(in crate::holders) fn search_changed(
        &mut self,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        let now = Cached::in_order(memory.now().clone());
        let roots = self.roots.len();
        let mut bytes = 0;
        for number in 0..self.blocks.len() {
            let block = self.blocks.block(number);
            if self.holders[number] == NOBODY {
                continue;
            }
            bytes += block.size;
            if bytes > MOST_BYTES || number.is_multiple_of(ASKING) && is_over() {
                break;
            }
            let range = block.start..block.start + block.size;
            self.scan(range, &now, &mut |graph, _, value| {
                let target = graph.blocks.containing(value);
                if target.is_some_and(|target| graph.holders[target] == NOBODY)
                    && native::is_allocated(&now, block)
                {
                    let reference = word(&[], 0, value, cost::UNREACHED + BEHIND);
                    graph.reach_from(RootWord::Younger, &reference, memory);
                }
            });
        }
        self.settle(memory, is_over);
        self.roots.len() > roots
    }

    fn sources(&self, mappings: &[Mapping], memory: &Cached<Live>) -> Vec<Source> {
        // Allocators take their memory from mappings like these.
        let heap = mappings
            .iter()
            .filter(|of| of.ino == 0 && of.permissions.write);
        let heap: Vec<&Mapping> = heap.collect();
        let (Some(first), Some(last)) = (heap.first(), heap.last()) else {
            return Vec::new();
        };
        let is_in_heap = |value: u64| {
            let after = heap.partition_point(|of| of.start <= value);
            after > 0 && heap[after - 1].contains(value)
        };
        let mut scanner = Scanner::new(first.start..last.end);
        let mut sources = Vec::new();
        let mut add = |of: Place, cost: u32, value: u64| {
            if sources.len() < MOST_WORDS
                && is_in_heap(value)
                && self.blocks.containing(value).is_none()
            {
                sources.push(Source { of, cost, value });
            }
        };
        for range in self.native_roots() {
            scanner.scan(memory.now(), range.start..range.end, |address, value| {
                let root = RootWord::Native(address, range.kind);
                add(Place::Root(root), range.kind.cost(), value);
            });
        }
        for register in self.native.roots.registers() {
            let root = RootWord::Register(register);
            add(Place::Root(root), cost::STACK, register.value);
        }
        let mut bytes = 0;
        for number in 0..self.blocks.len() {
            let cost = self.costs[number];
            if cost >= cost::UNREACHED {
                continue;
            }
            let block = self.blocks.block(number);
            bytes += block.size;
            if bytes > MOST_BYTES {
                break;
            }
            let range = block.start..block.start + block.size;
            scanner.scan(memory, range, |_, value| {
                add(
                    Place::Block(number as NodeId),
                    cost.saturating_add(cost::BLOCK),
                    value,
                );
            });
        }
        sources
    }

    /// Reaches the known nodes to which a word leads through younger blocks only.
    fn reach_through(
        &mut self,
        source: &Source,
        younger: &[Block],
        is_met: &mut [bool],
        memory: &Cached<Live>,
    ) {
        let mut next: Vec<usize> = containing(younger, source.value).into_iter().collect();
        while let Some(index) = next.pop() {
            if std::mem::replace(&mut is_met[index], true) {
                continue;
            }
            let Block { start, size } = younger[index];
            let mut scanner = Scanner::new(self.bounds_with(younger));
            let mut values = Vec::new();
            scanner.scan(memory.now(), start..start + size, |_, value| {
                values.push(value)
            });
            for value in values {
                match containing(younger, value) {
                    Some(other) => next.push(other),
                    None => self.reach_from_place(source, value, memory),
                }
            }
        }
    }

    fn reach_from_place(&mut self, source: &Source, value: u64, memory: &Cached<Live>) {
        let reference = word(&[], 0, value, source.cost.saturating_add(cost::BLOCK));
        match source.of {
            Place::Root(root) => self.reach_from(root, &reference, memory),
            Place::Block(holder) => {
                if let Some(node) = self.target(&reference, memory) {
                    self.offer(node, holder, reference.cost);
                }
            }
        }
    }

    fn bounds_with(&self, younger: &[Block]) -> Range<u64> {
        let known = bounds(self.blocks, self.pools);
        match (younger.first(), younger.last()) {
            (Some(first), Some(last)) => {
                known.start.min(first.start)..known.end.max(last.start + last.size)
            }
            _ => known,
        }
    }
}

/// The index of the block around an address.
fn containing(blocks: &[Block], address: u64) -> Option<usize> {
    let index = blocks
        .partition_point(|block| block.start <= address)
        .checked_sub(1)?;
    (address - blocks[index].start < blocks[index].size).then_some(index)
}
