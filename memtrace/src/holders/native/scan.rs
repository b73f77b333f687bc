//! One pass over memory for words that may point to a block.

use super::super::memory::Memory;
use std::ops::Range;

/// Bytes that are read at once.
const CHUNK: u64 = 64 << 10;

/// Bytes read at a time if a chunk cannot be read: mappings begin and end at pages, of this size or a multiple.
const PAGE: u64 = 4 << 10;

/// Reads ranges of memory, one after the other.
pub(in crate::holders) struct Scanner {
    buffer: Vec<u8>,
    bounds: Range<u64>,
}

impl Scanner {
    /// Looks for words within `bounds`.
    pub(in crate::holders) fn new(bounds: Range<u64>) -> Self {
        Self {
            buffer: vec![0; CHUNK as usize],
            bounds,
        }
    }

    /// Gives the address and the value of each aligned word in `range` that lies within the bounds of the
    /// blocks, and returns how many bytes could not be read.
    pub(in crate::holders) fn scan(
        &mut self,
        memory: &(impl Memory + ?Sized),
        range: Range<u64>,
        mut visit: impl FnMut(u64, u64),
    ) -> u64 {
        let mut at = range.start.checked_next_multiple_of(8).unwrap_or(range.end);
        let mut unreadable = 0;
        let mut step = CHUNK;
        while at < range.end && range.end - at >= 8 {
            // Chunks begin at multiples of their size, as pages do.
            let end = (at & !(step - 1)).saturating_add(step).min(range.end & !7);
            let buffer = &mut self.buffer[..(end - at) as usize];
            if memory.read(at, buffer) {
                words(buffer, at, &self.bounds, &mut visit);
            } else if step > PAGE {
                step = PAGE;
                continue;
            } else {
                unreadable += end - at;
            }
            at = end;
            if at.is_multiple_of(CHUNK) {
                step = CHUNK;
            }
        }
        unreadable
    }
}

/// The loop over every word of the process: no more than a comparison each.
fn words(bytes: &[u8], start: u64, bounds: &Range<u64>, visit: &mut impl FnMut(u64, u64)) {
    let span = bounds.end - bounds.start;
    let (words, _) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let value = u64::from_le_bytes(*word);
        if value.wrapping_sub(bounds.start) < span {
            visit(start + 8 * index as u64, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::{Block, Builder, Origin};
    use super::super::tests::fixture::Made;
    use super::*;

    fn scanner() -> Scanner {
        let mut builder = Builder::default();
        for start in [0x10_0000, 0x20_0000] {
            builder.add(Block { start, size: 16 }, Origin::Recorded);
        }
        Scanner::new(builder.finish().bounds())
    }

    fn found(memory: &Made, range: Range<u64>) -> (Vec<(u64, u64)>, u64) {
        let mut found = Vec::new();
        let unreadable =
            scanner().scan(memory, range, |address, value| found.push((address, value)));
        (found, unreadable)
    }

    #[test]
    fn words_within_the_bounds_are_given() {
        let mut memory = Made::default();
        memory.map(0x5000, 0x100);
        memory.put(0x5000, 0xf_ffff);
        memory.put(0x5008, 0x10_0000);
        memory.put(0x5010, 0x20_000f);
        memory.put(0x5018, 0x20_0010);
        memory.put(0x50f8, 0x18_0000);
        let all = [
            (0x5008, 0x10_0000),
            (0x5010, 0x20_000f),
            (0x50f8, 0x18_0000),
        ];
        assert_eq!(found(&memory, 0x5000..0x5100), (all.to_vec(), 0));
        // Aligned words only, and only those that are in the range as a whole.
        assert_eq!(found(&memory, 0x5001..0x50ff), (all[..2].to_vec(), 0));
        assert_eq!(found(&memory, 0x5011..0x5018), (vec![], 0));
    }

    #[test]
    fn memory_that_cannot_be_read_is_left_out_by_the_page() {
        let mut memory = Made::default();
        memory.map(0x3_0000, 0x1000);
        memory.map(0x3_2000, 0x2_0000);
        memory.put(0x3_0ff8, 0x10_0000);
        memory.put(0x3_2000, 0x10_0001);
        memory.put(0x5_1ff8, 0x10_0002);
        let (found, unreadable) = found(&memory, 0x2_f000..0x5_3000);
        assert_eq!(
            found,
            [
                (0x3_0ff8, 0x10_0000),
                (0x3_2000, 0x10_0001),
                (0x5_1ff8, 0x10_0002)
            ]
        );
        assert_eq!(unreadable, 0x3000);
    }

    #[test]
    fn ranges_at_the_end_of_the_address_space_end() {
        let memory = Made::default();
        assert_eq!(found(&memory, u64::MAX - 100..u64::MAX).0, []);
        assert_eq!(found(&memory, Range { start: 100, end: 0 }).0, []);
    }
}
