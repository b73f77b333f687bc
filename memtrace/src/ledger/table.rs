//! Live blocks by address: an extendible hash table whose clone shares its segments until one side
//! writes, as the kernel does with a forked process's pages. Knows blocks, not the figures they
//! count for.
//!
//! The highest bits of an address's hash choose a segment by way of the
//! directory, the lowest a slot in it (linear probing, backward-shift
//! deletion). Neighbours in memory are neighbours here, because otherwise
//! nearly every access would miss the cache. A segment grows in small steps, so between 70 and 87 % of its
//! slots are in use, and splits when it has [`MAX_SLOTS`]; so no operation
//! ever touches more than one segment's worth of blocks, apart from the rare
//! doubling of the directory (four bytes per segment or so).

use crate::hash::mix;
use std::sync::Arc;

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Absolute address, never 0.
    pub(super) addr: u64,
    /// Bytes.
    pub(super) size: u64,
    /// CLOCK_MONOTONIC ns.
    pub(super) birth_ns: u64,
    /// Index of the site that allocated it.
    pub(super) site: u32,
}

const EMPTY: Block = Block {
    addr: 0,
    size: 0,
    birth_ns: 0,
    site: 0,
};

/// Slots of a segment: at least, at most, and the step between sizes.
const MIN_SLOTS: usize = 8;
const MAX_SLOTS: usize = 512;
const STEP: usize = 64;

/// From this depth on segments grow instead of splitting: addresses chosen to
/// collide cannot blow up the directory.
const MAX_DEPTH: u32 = 24;

#[derive(Clone)]
struct Segment {
    slots: Arc<[Block]>,
    len: u32,
    /// Number of hash bits that all its blocks share.
    depth: u32,
}

/// Live blocks of one layer of one process.
#[derive(Clone, Default)]
pub(super) struct Table {
    /// Highest `depth` bits of a hash → segment. Empty until the first insertion.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Segment>,
    len: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held. Parts shared by clones are divided equally between them.
    pub(super) fn bytes(&self) -> usize {
        let reference_counts = 2 * size_of::<usize>();
        let segments: usize = self
            .segments
            .iter()
            .map(|segment| {
                (size_of_val(&*segment.slots) + reference_counts)
                    / Arc::strong_count(&segment.slots)
            })
            .sum();
        segments
            + self.directory.capacity() * size_of::<u32>()
            + self.segments.capacity() * size_of::<Segment>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.segments
            .iter()
            .flat_map(|segment| segment.slots.iter())
            .filter(|block| block.addr != EMPTY.addr)
    }

    /// Adds `block`, whose address must not be 0; returns the block that was
    /// at its address.
    pub(super) fn insert(&mut self, block: Block) -> Option<Block> {
        if self.directory.is_empty() {
            self.directory.push(0);
            self.segments.push(Segment::with_blocks(&[], 0));
        }
        let hash = hash_of(block.addr);
        loop {
            let index = self.segment_of(hash);
            let segment = &mut self.segments[index];
            let slot = segment.probe(block.addr, hash);
            if segment.slots[slot].addr == block.addr {
                let slots = Arc::make_mut(&mut segment.slots);
                return Some(std::mem::replace(&mut slots[slot], block));
            }
            if segment.has_room() {
                Arc::make_mut(&mut segment.slots)[slot] = block;
                segment.len += 1;
                self.len += 1;
                return None;
            }
            self.make_room(index, hash);
        }
    }

    /// The block at `addr`.
    pub(super) fn get(&self, addr: u64) -> Option<Block> {
        if self.len == 0 || addr == EMPTY.addr {
            return None;
        }
        let hash = hash_of(addr);
        let segment = &self.segments[self.segment_of(hash)];
        let block = segment.slots[segment.probe(addr, hash)];
        (block.addr == addr).then_some(block)
    }

    /// Takes out the block at `addr`.
    pub(super) fn remove(&mut self, addr: u64) -> Option<Block> {
        if self.len == 0 || addr == EMPTY.addr {
            return None;
        }
        let hash = hash_of(addr);
        let index = self.segment_of(hash);
        let segment = &mut self.segments[index];
        let slot = segment.probe(addr, hash);
        let block = segment.slots[slot];
        if block.addr != addr {
            return None;
        }
        segment.remove(slot);
        self.len -= 1;
        if self.len == 0 && self.segments.len() > 1 {
            *self = Table::default();
        }
        Some(block)
    }

    fn segment_of(&self, hash: u64) -> usize {
        self.directory[prefix(hash, self.depth)] as usize
    }

    /// Makes the full segment `index`, to which `hash` belongs, larger or two.
    fn make_room(&mut self, index: usize, hash: u64) {
        let segment = &self.segments[index];
        let (slots, depth) = (Arc::clone(&segment.slots), segment.depth);
        let blocks = slots.iter().filter(|block| block.addr != EMPTY.addr);
        if slots.len() < MAX_SLOTS || depth == MAX_DEPTH {
            let blocks: Vec<Block> = blocks.copied().collect();
            self.segments[index] = Segment::with_blocks(&blocks, depth);
            return;
        }
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&i| [i, i]).collect();
            self.depth += 1;
        }
        let (zeros, ones): (Vec<Block>, Vec<Block>) =
            blocks.partition(|block| prefix(hash_of(block.addr), depth + 1) & 1 == 0);
        let new = self.segments.len();
        self.segments[index] = Segment::with_blocks(&zeros, depth + 1);
        self.segments.push(Segment::with_blocks(&ones, depth + 1));
        let aliases = 1 << (self.depth - depth);
        let first = prefix(hash, depth) * aliases;
        // A u32 holds the number: memory ends long before 2^32 segments.
        self.directory[first + aliases / 2..first + aliases].fill(new as u32);
    }
}

impl Segment {
    fn with_blocks(blocks: &[Block], depth: u32) -> Segment {
        let mut slots: Arc<[Block]> = std::iter::repeat_n(EMPTY, slots_for(blocks.len())).collect();
        let filling = Arc::make_mut(&mut slots);
        for block in blocks {
            let slot = probe(filling, block.addr, hash_of(block.addr));
            filling[slot] = *block;
        }
        Segment {
            slots,
            len: blocks.len() as u32,
            depth,
        }
    }

    fn has_room(&self) -> bool {
        (self.len as usize + 1) * 8 <= self.slots.len() * 7
    }

    fn probe(&self, addr: u64, hash: u64) -> usize {
        probe(&self.slots, addr, hash)
    }

    /// Empties `hole` and moves later blocks of its run up, so that no look-up
    /// meets a gap before its block.
    fn remove(&mut self, mut hole: usize) {
        let slots = Arc::make_mut(&mut self.slots);
        let n = slots.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + n - from };
        let mut next = hole;
        loop {
            next = if next + 1 == n { 0 } else { next + 1 };
            let block = slots[next];
            if block.addr == EMPTY.addr {
                break;
            }
            if distance(home(hash_of(block.addr), n), next) >= distance(hole, next) {
                slots[hole] = block;
                hole = next;
            }
        }
        slots[hole] = EMPTY;
        self.len -= 1;
        if (self.len as usize) < n / 4 && n > MIN_SLOTS {
            let left: Vec<Block> = slots
                .iter()
                .filter(|block| block.addr != EMPTY.addr)
                .copied()
                .collect();
            *self = Segment::with_blocks(&left, self.depth);
        }
    }
}

/// Bytes of address space whose blocks share a segment, a power of two. No more: allocators have blocks of 8 bytes, and a
/// segment that is full of one region's could not be split.
const REGION: u64 = 2048;

/// The hash of an address. Blocks that an allocator gives one after the other lie close together in memory, and so they
/// do here: in the segment of their region, around its circle of slots, from a place of the region's own.
fn hash_of(addr: u64) -> u64 {
    let region = mix(addr / REGION);
    let place = ((addr % REGION) / 8) << 24;
    let low = (region as u32).wrapping_add(place as u32);
    region >> 32 << 32 | u64::from(low)
}

/// The highest `bits` bits of `hash`.
fn prefix(hash: u64, bits: u32) -> usize {
    // In two steps, because a shift by all 64 bits is none.
    (hash >> 1 >> (63 - bits)) as usize
}

/// Slot of a block with this hash among `n` slots.
fn home(hash: u64, n: usize) -> usize {
    (((hash & 0xffff_ffff) * n as u64) >> 32) as usize
}

/// The slot of `addr`, or the empty one in which it would be put. A segment
/// always has an empty slot.
fn probe(slots: &[Block], addr: u64, hash: u64) -> usize {
    let mut slot = home(hash, slots.len());
    while slots[slot].addr != addr && slots[slot].addr != EMPTY.addr {
        slot = if slot + 1 == slots.len() { 0 } else { slot + 1 };
    }
    slot
}

/// The smallest segment that is at most four fifths full with `blocks`.
fn slots_for(blocks: usize) -> usize {
    let wanted = (blocks * 5).div_ceil(4);
    if wanted <= STEP {
        wanted.next_power_of_two().max(MIN_SLOTS)
    } else {
        wanted.next_multiple_of(STEP)
    }
}

const _: () = assert!(size_of::<Block>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots that a search for each block passes, on average.
    fn passed(table: &Table) -> f64 {
        let of_segment = |segment: &Segment| -> usize {
            let n = segment.slots.len();
            let slots = segment.slots.iter().enumerate();
            let used = slots.filter(|(_, block)| block.addr != EMPTY.addr);
            used.map(|(slot, block)| (slot + n - home(hash_of(block.addr), n)) % n)
                .sum()
        };
        let all: usize = table.segments.iter().map(of_segment).sum();
        all as f64 / table.len as f64
    }

    #[test]
    fn regular_addresses_are_found_as_fast_as_random_ones() {
        for stride in [8, 16, 32, 48, 80, 112, 1008, 4096, 1 << 21] {
            let mut table = Table::default();
            for number in 0..100_000 {
                table.insert(Block {
                    addr: 0x5555_0000_0010 + number * stride,
                    ..EMPTY
                });
            }
            let passed = passed(&table);
            assert!(passed < 4.0, "stride {stride}: {passed} slots");
        }
    }
}
