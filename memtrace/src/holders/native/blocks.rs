//! The live heap blocks of a process, by address. Compact, because a process can have tens of millions.

use crate::hash::FastMap;
use std::ops::Range;

/// Where a block is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::holders) enum Origin {
    /// The recording saw it allocated: its size is the requested one.
    Recorded,
    /// The allocator's own structures; its size is the usable one.
    Older,
    /// As [`Origin::Older`], but these structures were torn nearby, so it may be free.
    Unclear,
}

/// A block of memory that the program has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::holders) struct Block {
    /// Absolute.
    pub(in crate::holders) start: u64,
    /// Bytes.
    pub(in crate::holders) size: u64,
}

/// A block while they are collected: the lower and the upper half of its start, and its state.
type Entry = [u32; 3];

/// A state is an origin and a size.
const ORIGIN_SHIFT: u32 = 30;
const SIZE: u32 = (1 << ORIGIN_SHIFT) - 1;
/// Instead of a size: it is in [`Blocks::large`].
const LARGE: u32 = SIZE;

fn start_of(entry: &Entry) -> u64 {
    u64::from(entry[1]) << 32 | u64::from(entry[0])
}

fn origin_of(state: u32) -> Origin {
    match state >> ORIGIN_SHIFT {
        0 => Origin::Recorded,
        1 => Origin::Older,
        _ => Origin::Unclear,
    }
}

fn size_of_block(start: u64, state: u32, large: &FastMap<u64, u64>) -> u64 {
    match state & SIZE {
        LARGE => large.get(&start).copied().unwrap_or(LARGE.into()),
        size => size.into(),
    }
}

/// Collects blocks in any order.
#[derive(Default)]
pub(in crate::holders) struct Builder {
    /// The words of [`Entry`]s, so that what they become takes their place.
    words: Vec<u32>,
    large: FastMap<u64, u64>,
    freed: Vec<u64>,
}

impl Builder {
    /// Adds a block. If two are in the same place, the recorded one counts.
    pub(in crate::holders) fn add(&mut self, block: Block, origin: Origin) {
        let size = match u32::try_from(block.size) {
            Ok(size) if size < LARGE => size,
            _ => {
                match origin {
                    Origin::Recorded => drop(self.large.insert(block.start, block.size)),
                    _ => drop(self.large.entry(block.start).or_insert(block.size)),
                }
                LARGE
            }
        };
        let state = (origin as u32) << ORIGIN_SHIFT | size;
        let [lower, upper] = [block.start as u32, (block.start >> 32) as u32];
        self.words.extend([lower, upper, state]);
    }

    /// A block at this address is free, unless it is recorded.
    pub(super) fn add_freed(&mut self, start: u64) {
        self.freed.push(start);
    }

    pub(in crate::holders) fn finish(self) -> Blocks {
        let Self {
            mut words,
            large,
            mut freed,
        } = self;
        let (entries, _) = words.as_chunks_mut();
        entries.sort_unstable_by_key(|entry| (start_of(entry), entry[2] >> ORIGIN_SHIFT));
        freed.sort_unstable();
        let kept = without_overlaps(entries, &large, &freed);
        Blocks::new(words, kept, large)
    }
}

/// Moves the entries that count to the front, and returns their number. A recorded block replaces whatever
/// else lies there; recorded blocks may lie in each other.
fn without_overlaps(entries: &mut [Entry], large: &FastMap<u64, u64>, freed: &[u64]) -> usize {
    let mut kept: usize = 0;
    for index in 0..entries.len() {
        let entry = entries[index];
        let start = start_of(&entry);
        let is_recorded = origin_of(entry[2]) == Origin::Recorded;
        // This includes recorded blocks, because the recording is older.
        if freed.binary_search(&start).is_ok() {
            continue;
        }
        if let Some(before) = kept.checked_sub(1) {
            let last = entries[before];
            let last_start = start_of(&last);
            let overlaps = start - last_start < size_of_block(last_start, last[2], large).max(1);
            if overlaps && (!is_recorded || last_start == start) {
                continue;
            }
            if overlaps && origin_of(last[2]) != Origin::Recorded {
                kept = before;
            }
        }
        entries[kept] = entry;
        kept += 1;
    }
    kept
}

/// Requests huge pages, which halve the time of a search among millions of blocks. Failure does no harm.
fn prefer_huge_pages<T>(values: &[T]) {
    /// Of a huge page.
    const SIZE: usize = 2 << 20;
    /// Of include/uapi/asm-generic/mman-common.h; the libc crate has it for glibc only.
    const MADV_COLLAPSE: libc::c_int = 25;
    let bytes = values.as_ptr_range();
    let start = bytes.start.addr().next_multiple_of(SIZE);
    let len = (bytes.end.addr() / SIZE * SIZE).saturating_sub(start);
    if len == 0 {
        return;
    }
    let pages = bytes.start.with_addr(start).cast_mut().cast();
    for advice in [libc::MADV_HUGEPAGE, MADV_COLLAPSE] {
        // SAFETY: the range lies within `values`, and its contents stay as they are.
        unsafe { libc::madvise(pages, len, advice) };
    }
}

/// Blocks under a key of the index.
const FAN_OUT: usize = 16;

/// Instead of a distance: the start is in [`Blocks::far`].
const FAR: u32 = u32::MAX;

/// See the module.
pub(in crate::holders) struct Blocks {
    /// By address, two words a block: its distance from the first one under its key, and its state.
    words: Vec<u32>,
    /// The starts of those that are too far away for that, by index.
    far: FastMap<usize, u64>,
    /// Sizes that a state has no room for, by start.
    large: FastMap<u64, u64>,
    /// The start of every 16th block, of every 16th of these, and so on: a search touches two or three
    /// cache lines that are not in the cache already.
    levels: Vec<Vec<u64>>,
    bounds: Range<u64>,
}

impl Blocks {
    /// `words` begins with as many entries, by address.
    fn new(mut words: Vec<u32>, len: usize, large: FastMap<u64, u64>) -> Self {
        let mut far = FastMap::default();
        let mut level: Vec<u64> = Vec::with_capacity(len.div_ceil(FAN_OUT));
        let mut end = 0;
        for index in 0..len {
            let [lower, upper, state] = [0, 1, 2].map(|word| words[3 * index + word]);
            let start = start_of(&[lower, upper, state]);
            if index % FAN_OUT == 0 {
                level.push(start);
            }
            let first = level.last().copied().unwrap_or(start);
            let distance = u32::try_from(start - first).unwrap_or(FAR);
            if distance == FAR {
                far.insert(index, start);
            }
            (words[2 * index], words[2 * index + 1]) = (distance, state);
            end = end.max(start.saturating_add(size_of_block(start, state, &large).max(1)));
        }
        words.truncate(2 * len);
        words.shrink_to_fit();
        let lowest = level.first().copied().unwrap_or(0);
        let mut levels: Vec<Vec<u64>> = Vec::new();
        while level.len() > FAN_OUT {
            let next = level.iter().step_by(FAN_OUT).copied().collect();
            levels.push(std::mem::replace(&mut level, next));
        }
        levels.push(level);
        prefer_huge_pages(&words);
        levels.iter().for_each(|level| prefer_huge_pages(level));
        Self {
            words,
            far,
            large,
            levels,
            bounds: lowest..end.max(lowest),
        }
    }

    pub(in crate::holders) fn len(&self) -> usize {
        self.words.len() / 2
    }

    /// From the lowest block to the end of the highest.
    pub(in crate::holders) fn bounds(&self) -> Range<u64> {
        self.bounds.clone()
    }

    /// The block at an index below [`Blocks::len`].
    pub(in crate::holders) fn block(&self, index: usize) -> Block {
        let start = self.start(index);
        Block {
            start,
            size: size_of_block(start, self.words[2 * index + 1], &self.large),
        }
    }

    fn start(&self, index: usize) -> u64 {
        match self.words[2 * index] {
            FAR => self.far.get(&index).copied().unwrap_or(u64::MAX),
            distance => self.levels[0][index / FAN_OUT] + u64::from(distance),
        }
    }

    #[cfg(test)]
    pub(super) fn origin(&self, index: usize) -> Origin {
        origin_of(self.words[2 * index + 1])
    }

    /// All blocks, by address.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        (0..self.len()).map(|index| self.block(index))
    }

    /// Index of the block that an address lies in. The end of a block is not in it.
    pub(in crate::holders) fn containing(&self, address: u64) -> Option<usize> {
        let index = self.last_from(address)?;
        let block = self.block(index);
        (address - block.start < block.size.max(1)).then_some(index)
    }

    /// Index of the first block that begins at `address` or above it.
    pub(in crate::holders) fn first_from(&self, address: u64) -> usize {
        match address
            .checked_sub(1)
            .and_then(|below| self.last_from(below))
        {
            Some(index) => index + 1,
            None => 0,
        }
    }

    /// Index of the last block that begins at `address` or below it.
    fn last_from(&self, address: u64) -> Option<usize> {
        let mut from = 0;
        for level in self.levels.iter().rev() {
            let end = (from + FAN_OUT).min(level.len());
            let below = level.get(from..end)?.iter();
            let below = below.filter(|&&start| start <= address).count();
            from = (from + below.checked_sub(1)?) * FAN_OUT;
        }
        let end = (from + FAN_OUT).min(self.len());
        let first = *self.levels[0].get(from / FAN_OUT)?;
        let below = match u32::try_from(address - first) {
            Ok(distance) if distance < FAR => {
                let words = self.words.get(2 * from..2 * end)?.iter().step_by(2);
                words.filter(|word| **word <= distance).count()
            }
            _ => (from..end)
                .filter(|&index| self.start(index) <= address)
                .count(),
        };
        Some(from + below.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(blocks: &[(u64, u64, Origin)], freed: &[u64]) -> Blocks {
        let mut builder = Builder::default();
        for &(start, size, origin) in blocks {
            builder.add(Block { start, size }, origin);
        }
        for &start in freed {
            builder.add_freed(start);
        }
        builder.finish()
    }

    fn starts(blocks: &Blocks) -> Vec<u64> {
        blocks.iter().map(|block| block.start).collect()
    }

    #[test]
    fn an_address_belongs_to_the_block_around_it() {
        use Origin::Recorded;
        for count in [0_u64, 1, 2, 15, 16, 17, 255, 256, 257, 5000] {
            let list: Vec<_> = (0..count)
                .map(|i| (0x1000 + i * 32, 24, Recorded))
                .rev()
                .collect();
            let blocks = built(&list, &[]);
            assert_eq!(blocks.len() as u64, count);
            assert_eq!(blocks.containing(0xfff), None);
            for i in 0..count {
                let start = 0x1000 + i * 32;
                let index = Some(i as usize);
                assert_eq!(blocks.containing(start), index);
                assert_eq!(blocks.containing(start + 23), index);
                assert_eq!(blocks.containing(start + 24), None);
                assert_eq!(blocks.first_from(start), i as usize);
                assert_eq!(blocks.first_from(start + 1), i as usize + 1);
                assert_eq!(blocks.block(i as usize), Block { start, size: 24 });
            }
            assert_eq!(blocks.containing(u64::MAX), None);
        }
    }

    #[test]
    fn recorded_blocks_replace_those_of_the_allocator() {
        use Origin::{Older, Recorded, Unclear};
        let blocks = built(
            &[
                (0x1000, 0x100, Older),
                (0x1000, 0xf0, Recorded),
                // A recorded block inside of a chunk, and a chunk inside of a recorded block.
                (0x2000, 0x1000, Older),
                (0x2040, 0x100, Recorded),
                (0x2100, 0x10, Unclear),
                (0x4000, 0x20, Older),
                (0x4020, 0x20, Unclear),
                (0x4040, 0x20, Recorded),
            ],
            &[0x4000, 0x4040],
        );
        // The allocator has taken one back since it was recorded.
        assert_eq!(starts(&blocks), [0x1000, 0x2040, 0x4020]);
        assert_eq!(blocks.block(0).size, 0xf0);
        assert_eq!(blocks.origin(1), Recorded);
        assert_eq!(blocks.origin(2), Unclear);
        assert_eq!(blocks.bounds(), 0x1000..0x4040);
    }

    #[test]
    fn sizes_are_exact() {
        let sizes = [0, 1, u64::from(SIZE) - 1, SIZE.into(), 1 << 40];
        let list: Vec<_> = (1_u64..)
            .zip(sizes)
            .map(|(i, size)| (i << 44, size, Origin::Older))
            .collect();
        let blocks = built(&list, &[]);
        for (index, (i, size)) in (1_u64..).zip(sizes).enumerate() {
            assert_eq!(
                blocks.block(index),
                Block {
                    start: i << 44,
                    size
                }
            );
            assert_eq!(blocks.containing((i << 44) + size.max(1) - 1), Some(index));
        }
    }

    #[test]
    fn a_block_takes_eight_bytes_and_may_be_far_from_the_others() {
        let starts: Vec<u64> = (1..40)
            .map(|i| i << 33)
            .chain((1 << 40..).step_by(64).take(40))
            .collect();
        let list: Vec<_> = starts
            .iter()
            .map(|&start| (start, 48, Origin::Older))
            .collect();
        let blocks = built(&list, &[]);
        assert_eq!(blocks.words.len(), 2 * starts.len());
        for (index, &start) in starts.iter().enumerate() {
            assert_eq!(blocks.block(index), Block { start, size: 48 });
            assert_eq!(blocks.containing(start + 47), Some(index));
            assert_eq!(blocks.containing(start + 48), None);
            assert_eq!(blocks.first_from(start - 1), index);
        }
    }
}
