//! Numbers of objects by their addresses. Nearly all objects are in pools, which have a table with a place for each
//! piece: neighbours in the process are neighbours in the table, unlike in a hash.

use super::pools::{HEADER, Sizes};
use crate::hash::FastMap;
use std::{cell::Cell, ops::Range};

/// Numbers are below this.
pub(super) const MOST: u32 = (1 << DISTANCE) - 1;

/// An object begins this many bytes from the start of its piece, or up to three times as many: other things may come first.
const STEP: u32 = 16;
/// Bit from which on a place in the table has the distance, in steps.
const DISTANCE: u32 = 30;

/// See the module.
pub(super) struct Numbers<'a> {
    /// By address.
    pools: &'a [Range<u64>],
    sizes: Sizes,
    /// By range of pools: the number of its first pool.
    first: Vec<usize>,
    /// By pool: where in the table it begins.
    begins: Vec<usize>,
    /// By piece: the distance, and the number plus one; 0: no object.
    table: Vec<u32>,
    others: FastMap<u64, u32>,
    /// The range of pools looked up last: the next address is mostly in the same one.
    last: Cell<usize>,
}

impl<'a> Numbers<'a> {
    /// `pools` are by address, and do not overlap; `sizes` are of them.
    pub(super) fn new(pools: &'a [Range<u64>], sizes: Sizes) -> Self {
        let mut number = 0;
        let first = pools.iter().map(|range| {
            let first = number;
            number += (range.end - range.start).div_ceil(sizes.pool) as usize;
            first
        });
        let first = first.collect();
        let mut len = 0;
        let begins = sizes.pieces.iter().map(|piece| {
            let begin = len;
            len += (sizes.pool as usize).div_ceil(usize::from(*piece));
            begin
        });
        Self {
            begins: begins.collect(),
            pools,
            sizes,
            first,
            // The kernel gives memory to those parts alone that are written.
            table: vec![0; len],
            others: FastMap::default(),
            last: Cell::new(0),
        }
    }

    /// Index of the range of pools that an address lies in.
    fn range(&self, address: u64) -> Option<usize> {
        let has = |index: usize| {
            let pool = self.pools.get(index);
            pool.is_some_and(|pool| pool.contains(&address))
        };
        let last = self.last.get();
        if has(last) {
            return Some(last);
        }
        let index = self.pools.partition_point(|pool| pool.end <= address);
        has(index).then(|| {
            self.last.set(index);
            index
        })
    }

    /// Whether an address lies in a pool.
    pub(super) fn is_in_pool(&self, address: u64) -> bool {
        self.range(address).is_some()
    }

    /// The place of an address in the table, and its distance as it is there.
    fn place(&self, address: u64) -> Option<(usize, u32)> {
        let range = self.range(address)?;
        let offset = address - self.pools[range].start;
        let pool = self.first[range] + (offset / self.sizes.pool) as usize;
        let offset = (offset % self.sizes.pool).checked_sub(HEADER)? as u32;
        let piece = u32::from(*self.sizes.pieces.get(pool)?);
        let (index, distance) = (offset / piece, offset % piece);
        let is_usual = distance.is_multiple_of(STEP) && distance < 4 * STEP;
        is_usual.then(|| {
            (
                self.begins[pool] + index as usize,
                (distance / STEP) << DISTANCE,
            )
        })
    }

    pub(super) fn get(&self, address: u64) -> Option<u32> {
        let other = || self.others.get(&address).copied();
        match self.place(address) {
            Some((place, distance)) => match self.table[place] {
                0 => None,
                known if known & !MOST == distance => Some((known & MOST) - 1),
                _ => other(),
            },
            None => other(),
        }
    }

    /// `number` is below [`MOST`].
    pub(super) fn insert(&mut self, address: u64, number: u32) {
        match self.place(address) {
            // Where memory is misread, two objects may seem to be in one piece.
            Some((place, distance))
                if self.table[place] == 0 || self.table[place] & !MOST == distance =>
            {
                self.table[place] = distance | (number + 1);
            }
            _ => drop(self.others.insert(address, number)),
        }
    }
}

/// Pieces of pools: a bit for each.
#[derive(Default)]
pub(super) struct Pieces(Vec<u64>);

impl Pieces {
    /// Adds the piece that begins at an address; returns whether it is new. Nowhere else begins one.
    pub(super) fn add(&mut self, numbers: &Numbers<'_>, start: u64) -> bool {
        let Some((place, 0)) = numbers.place(start) else {
            return false;
        };
        if self.0.is_empty() {
            self.0 = vec![0; numbers.table.len().div_ceil(64)];
        }
        let bit = 1 << (place % 64);
        let word = &mut self.0[place / 64];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_the_number_that_it_was_given() {
        let pools = [0x1000..0x3000, 0x3000..0x4000, 0x1_0000..0x1_1000];
        let sizes = Sizes {
            pool: 0x1000,
            pieces: vec![16, 64, 512, 48],
        };
        let mut numbers = Numbers::new(&pools, sizes);
        let addresses = (0xff0..0x4010).chain(0xfff0..0x1_1020).step_by(8);
        let numbered: Vec<(u32, u64)> = (0..).zip(addresses).collect();
        for &(number, address) in &numbered {
            assert_eq!(numbers.get(address), None);
            numbers.insert(address, number);
        }
        // The other way round, so that the last pool is not the next one.
        for &(number, address) in numbered.iter().rev() {
            assert_eq!(numbers.get(address), Some(number));
            let is_in_pool = pools.iter().any(|pool| pool.contains(&address));
            assert_eq!(numbers.is_in_pool(address), is_in_pool);
        }
        numbers.insert(0x1030, MOST - 1);
        assert_eq!(numbers.get(0x1030), Some(MOST - 1));
    }

    #[test]
    fn objects_of_one_size_take_a_place_each() {
        let pool = 0x4000..0xc000;
        let pools = [pool];
        let sizes = Sizes {
            pool: 0x4000,
            pieces: vec![64, 64],
        };
        let mut numbers = Numbers::new(&pools, sizes);
        assert_eq!(numbers.table.len(), 2 * 0x4000 / 64);
        // Behind the words of the collector.
        let objects = (0x4000 + HEADER + 16..0x8000 - 64).step_by(64);
        for (number, object) in (0..).zip(objects) {
            numbers.insert(object, number);
        }
        assert!(numbers.others.is_empty());
    }

    #[test]
    fn without_pools_there_are_numbers_too() {
        let mut numbers = Numbers::new(&[], Sizes::default());
        numbers.insert(0x1000, 7);
        assert_eq!((numbers.get(0x1000), numbers.get(0x1010)), (Some(7), None));
        assert!(!numbers.is_in_pool(0x1000));
    }
}
