//! The references of an object or a block, and its size.

use super::{Graph, NodeId, RootWord, word};
use crate::holders::{
    doubts::Buffer,
    memory::{Cached, Live, Memory},
    native::{Block, RootKind},
    pools::Piece,
    python::Object,
    reference::{Label, Reference, cost},
};

/// PyTorch's owner of the data of tensors: numbers, which are not searched for references.
const WITH_DATA: &str = "N3c1011StorageImplE";

/// Bytes of the largest object in a pool (`SMALL_REQUEST_THRESHOLD`, Objects/obmalloc.c), and of one that no
/// allocator gave: a static one, or one from before the recording of another allocator than glibc's.
const MOST_IN_POOL: u64 = 512;
const MOST_ELSEWHERE: u64 = 64 << 20;

/// Long containers whose memory is kept: those near the roots, which are followed first.
const MOST_BUFFERS: usize = 1 << 16;

/// Elements of a container that is read at once.
const LONG: u64 = 64;

impl Graph<'_> {
    pub(super) fn follow(&mut self, node: NodeId, cost: u32, memory: &Cached<Live>) {
        if let Some(met) = &mut self.met {
            met.begin(node);
        }
        let cost = self.cost_from(node, cost);
        let Some(object) = self.object(node) else {
            return self.follow_block(node, cost, memory);
        };
        if !self.reach_own_block(node, object, cost) {
            self.add_size(node, |graph| graph.size_outside(object, memory));
        }
        let Some(python) = self.python else { return };
        let Some(it) = python.object(memory, object) else {
            return;
        };
        if it.is_leaf() || !self.fits(&it, memory) {
            return;
        }
        let is_young = self.young.contains_key(&node);
        let long = it.length(memory).map(|length| length.value);
        let long = long.filter(|length| *length >= LONG);
        let mut visit = |reference: &Reference<'_>| {
            if let Some(length) = long.filter(|_| reference.is_to_elements()) {
                self.keep_buffer(object, length, reference.target, memory);
            }
            if !self.follow_reference(node, reference, cost, memory)
                && reference.cost >= cost::UNTYPED
            {
                self.meet_structure(node, reference, memory);
            }
        };
        // The longer a container is, the sooner its memory is another's: it is read as it is now.
        match long.is_some() || is_young {
            true => python.references(memory.now(), object, &mut visit),
            false => it.references(memory, &mut visit),
        }
    }

    /// The cost of a path to a node for the references from it.
    pub(super) fn cost_from(&self, node: NodeId, cost: u32) -> u32 {
        match self.doubts.has_holder(self.address(node)) {
            true => cost::with(cost, cost::DOUBTED),
            false => cost,
        }
    }

    /// Offers what a reference of an object leads to; returns whether that is an object or a block.
    pub(super) fn follow_reference(
        &mut self,
        node: NodeId,
        reference: &Reference<'_>,
        cost: u32,
        memory: &Cached<Live>,
    ) -> bool {
        let is_untyped = reference.cost >= cost::UNTYPED;
        if is_untyped && self.explained.contains_key(&reference.target) {
            return true;
        }
        let Some(target) = self.target(reference, memory) else {
            let is_buffer = reference.label == Label::Buffer;
            if is_buffer {
                self.add_size(node, |graph| graph.size_in_pool(reference.target, memory));
            }
            return is_buffer;
        };
        let cost = cost::with(cost, self.price(reference, target, memory));
        match reference.label {
            // Its holder knows its contents.
            Label::Buffer => drop(self.reach(target, node, cost)),
            _ => self.offer(target, node, cost),
        }
        true
    }

    /// Keeps where the memory of a container is, unless its block is another's by now.
    fn keep_buffer(&mut self, container: u64, length: u64, at: u64, memory: &Cached<Live>) {
        let block = self.blocks.containing(at);
        let Some(block) = block.filter(|_| self.buffers.len() < MOST_BUFFERS) else {
            return;
        };
        let Block { start, size } = self.blocks.block(block);
        if self.native.is_current(memory, Block { start, size }) {
            let buffer = Buffer {
                block: start,
                length,
            };
            self.buffers.entry(container).or_insert(buffer);
        }
    }

    /// The cost of believing a reference of an object. A word that the type does not describe is certain enough if it
    /// points to the start of a C++ object: the wrapped one.
    fn price(&self, reference: &Reference<'_>, target: NodeId, memory: &Cached<Live>) -> u32 {
        let is_untyped = reference.cost >= cost::UNTYPED;
        let is_block = self.object(target).is_none() && self.address(target) == reference.target;
        let wraps = |start| {
            let types = &self.native.types;
            types
                .class_of(memory, &self.native.modules, start)
                .is_some()
        };
        match is_untyped && is_block && wraps(reference.target) {
            true => cost::KNOWN_BLOCK,
            false => reference.cost,
        }
    }

    /// Reaches the block that contains only this object; returns whether there is one.
    pub(super) fn reach_own_block(&mut self, node: NodeId, object: u64, cost: u32) -> bool {
        let block = self.blocks.containing(object);
        if let Some(block) = block {
            self.reach(block as NodeId, node, cost);
        }
        block.is_some()
    }

    /// Whether an object fits its memory. One that does not is the rest of a freed object.
    fn fits(&self, object: &Object<'_>, memory: &dyn Memory) -> bool {
        let Some(size) = object.least_size(memory) else {
            return false;
        };
        let address = object.address();
        let most = match self.blocks.containing(address) {
            Some(block) => {
                let block = self.blocks.block(block);
                block.start + block.size - address
            }
            None if self.numbers.is_in_pool(address) => MOST_IN_POOL,
            None => MOST_ELSEWHERE,
        };
        size <= most
    }

    /// Adds to the bytes of an object, if they are wanted.
    fn add_size(&mut self, node: NodeId, size: impl FnOnce(&Self) -> u64) {
        if self.met.is_none() {
            return;
        }
        let bytes = size(self);
        if let (Some(number), Some(met)) = (self.number(node), &mut self.met) {
            met.add_size(number, bytes);
        }
    }

    /// Bytes of an object that lies in no block. Those that lie in a file take nothing from any allocator.
    fn size_outside(&self, object: u64, memory: &dyn Memory) -> u64 {
        if self.numbers.is_in_pool(object) {
            return self.size_in_pool(object, memory);
        }
        if self.native.modules.name_at(object).is_some() {
            return 0;
        }
        let size = self.python.and_then(|python| python.size(memory, object));
        size.unwrap_or(0)
    }

    /// Bytes of the piece of a pool around an address; 0 outside pools.
    fn size_in_pool(&self, address: u64, memory: &dyn Memory) -> u64 {
        let python = self.python.filter(|_| self.numbers.is_in_pool(address));
        let piece = python.and_then(|python| Piece::at(python.minor(), memory, address));
        piece.map_or(0, |piece| piece.size)
    }

    /// What a word of a root costs more that leads into `target`, and not to its start. On a stack and in a register,
    /// what is left over may be any number.
    pub(super) fn interior_from(&self, root: RootWord, target: NodeId, value: u64) -> u32 {
        let behind_header = match root {
            RootWord::Native(_, RootKind::Global | RootKind::ThreadLocal) => cost::BEHIND_HEADER,
            RootWord::Native(..) | RootWord::Register(_) => cost::INTERIOR,
            RootWord::Python | RootWord::Younger | RootWord::Unreached(_) => return 0,
        };
        interior(value.wrapping_sub(self.address(target)), behind_header)
    }

    /// The same of a word of a block.
    fn interior(&self, target: NodeId, value: u64) -> u32 {
        interior(
            value.wrapping_sub(self.address(target)),
            cost::BEHIND_HEADER,
        )
    }

    fn follow_block(&mut self, node: NodeId, cost: u32, memory: &Cached<Live>) {
        if self.states.contains(&node) {
            return;
        }
        // Its words are followed as those of the object.
        if self.object_in(node as usize, memory).is_some() {
            return;
        }
        let block = self.blocks.block(node as usize);
        if self
            .python
            .is_some_and(|python| python.had_object(memory, block.start))
        {
            return;
        }
        let range = block.start..block.start + block.size;
        let class = self
            .native
            .types
            .class_of(memory, &self.native.modules, block.start);
        let has_data = class.as_deref() == Some(WITH_DATA);
        let price = cost_in(class.is_some());
        self.scan(range, memory, &mut |graph, _, value| {
            if graph.explained.contains_key(&value) {
                return;
            }
            let Some(target) = graph.target(&word(&[], 0, value, 0), memory) else {
                // A table of an object of C, whose other parts are small.
                if cost >= cost::UNTYPED {
                    graph.meet_structure(node, &word(&[], 0, value, 0), memory);
                }
                return;
            };
            let cost = cost::with(cost, price + graph.interior(target, value));
            if has_data && graph.object(target).is_none() {
                graph.reach(target, node, cost);
            } else {
                graph.offer(target, node, cost);
            }
        });
    }
}

/// The cost of a word by its distance from the start of what it leads into.
fn interior(distance: u64, behind_header: u32) -> u32 {
    match distance {
        0 => 0,
        8 | 16 => behind_header,
        _ => cost::INTERIOR,
    }
}

/// The cost of a word of a block, depending on whether its class is known.
fn cost_in(has_class: bool) -> u32 {
    match has_class {
        true => cost::KNOWN_BLOCK,
        false => cost::BLOCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_behind_headers_are_reached_from_a_variable_rather_than_from_a_stack() {
        let hop = |distance| cost::BLOCK + interior(distance, cost::BEHIND_HEADER);
        let from = |root, hops, distance| root + hops * hop(distance);
        let (variable, stack) = (cost::KNOWN_BLOCK, cost::STACK);
        for distance in [0, 8, 16] {
            assert!(from(variable, 2, distance) < from(stack, 1, distance));
        }
        // A word that leads anywhere else into a block is believed last.
        assert!(from(variable, 1, 24) > from(stack, 0, 0));
        assert!(from(variable, 3, 8) < from(variable, 1, 24) + cost::BLOCK);
    }
}
