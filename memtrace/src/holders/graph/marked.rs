//! Pointers with marks in their upper bits: the counter of a lock-free list, the type of an interpreter's value (NaN
//! boxing). The search does not follow them, because numbers can look like them. But a block is not called lost if the
//! rest of such a word is exactly its address.

use super::{Graph, Since, unreached::MOST_BYTES};
use crate::{
    arch::ADDRESS_BITS,
    hash::FastMap,
    holders::{
        memory::{Cached, Live, Memory},
        native::Scanner,
    },
};
use std::ops::Range;

/// An address in user space. If all other bits are set, words are addresses of the kernel or small negative numbers.
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
const MARKED: Range<u64> = 1 << ADDRESS_BITS..!ADDRESS;

/// Bytes that are read at once; a multiple of a word.
const PIECE: u64 = 64 << 20;

/// Bytes between two blocks of glibc's in a row, at most: there is no room for a free one.
const GAP: u64 = 40;

impl Graph<'_> {
    /// Those of the addresses that a marked word has. A process is read up to a limit.
    pub(in crate::holders) fn marked(
        &self,
        addresses: &FastMap<u64, ()>,
        pid: u32,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) -> FastMap<u64, ()> {
        if addresses.is_empty() {
            return FastMap::default();
        }
        // The array that has the words may have moved meanwhile.
        let younger = self.native.younger(pid, memory.now(), self.pools);
        let since = Since {
            younger: younger.unwrap_or_default(),
            pools: self.pools.to_vec(),
        };
        let ranges = joined(self.all_memory(&since, memory));
        marked(addresses, ranges, memory.now(), is_over)
    }
}

/// Ranges by address, those without room between them as one. Most come by address, so few are kept of many.
fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let join = |before: &mut Range<u64>, next: &Range<u64>| {
        let is_near = (before.start..before.end.saturating_add(GAP)).contains(&next.start);
        if is_near {
            before.end = before.end.max(next.end);
        }
        is_near
    };
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        if !joined.last_mut().is_some_and(|last| join(last, &range)) {
            joined.push(range);
        }
    }
    joined.sort_unstable_by_key(|range| range.start);
    joined.dedup_by(|next, before| join(before, next));
    joined
}

fn marked(
    addresses: &FastMap<u64, ()>,
    ranges: Vec<Range<u64>>,
    memory: &(impl Memory + ?Sized),
    is_over: &dyn Fn() -> bool,
) -> FastMap<u64, ()> {
    let mut found = FastMap::default();
    let lowest = addresses.keys().min().copied().unwrap_or(0);
    let highest = addresses.keys().max().copied().unwrap_or(0);
    let mut scanner = Scanner::new(MARKED);
    let mut left = MOST_BYTES;
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            if is_over() || left == 0 {
                return found;
            }
            let end = range.end.min(start.saturating_add(left.min(PIECE)));
            left -= end - start;
            scanner.scan(memory, start..end, |_, value| {
                let address = value & ADDRESS;
                if (lowest..=highest).contains(&address) && addresses.contains_key(&address) {
                    found.insert(address, ());
                }
            });
            start = end;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These words, from this address on.
    struct Words(u64, Vec<u64>);

    impl Memory for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let bytes: Vec<u8> = self.1.iter().flat_map(|word| word.to_le_bytes()).collect();
            let from = address.checked_sub(self.0).map(|from| from as usize);
            let part = from.and_then(|from| bytes.get(from..from + buffer.len()));
            part.is_some_and(|part| {
                buffer.copy_from_slice(part);
                true
            })
        }
    }

    fn found(words: &[u64]) -> Vec<u64> {
        let addresses = [0x7f00_0000_1000, 0x7f00_0000_2000].map(|address| (address, ()));
        let memory = Words(0x10_0000, words.to_vec());
        let all = 0x10_0000..0x10_0000 + 8 * words.len() as u64;
        let ranges = vec![0x1000..0x2000, all];
        let found = marked(&addresses.into_iter().collect(), ranges, &memory, &|| false);
        let mut found: Vec<u64> = found.into_keys().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn words_that_are_addresses_but_for_their_upper_bits_are_found() {
        // A counter, and a boxed string.
        let (counter, boxed) = (0x0001_7f00_0000_1000, 0xfffc_7f00_0000_2000);
        assert_eq!(found(&[3, counter, 5]), [0x7f00_0000_1000]);
        assert_eq!(
            found(&[counter, boxed]),
            [0x7f00_0000_1000, 0x7f00_0000_2000]
        );
        // LuaJIT's type begins at bit 47.
        assert_eq!(found(&[0xfffd_ff00_0000_2000]), [0x7f00_0000_2000]);
    }

    #[test]
    fn other_words_are_not() {
        let others = [
            // An ordinary pointer: the search follows it.
            0x7f00_0000_1000,
            // Into the block, and beside it.
            0x0001_7f00_0000_1008,
            0x0001_7f00_0000_0ff8,
            // Of the kernel.
            0xffff_ff00_0000_1000,
            3.25_f64.to_bits(),
        ];
        assert!(found(&others).is_empty());
    }

    #[test]
    fn ranges_are_joined_unless_a_free_block_fits_between_them() {
        let ranges = vec![
            0x1000..0x1010,
            0x1020..0x1048,
            0x1000..0x1008,
            0x1070..0x1080,
        ];
        assert_eq!(joined(ranges.into_iter()), [0x1000..0x1048, 0x1070..0x1080]);
    }
}
