//! Numbers of objects by their addresses. Nearly all objects are in pools, which have a table: neighbours in the
//! process are neighbours in the table, unlike in a hash.

use crate::hash::FastMap;
use std::{cell::Cell, ops::Range};

/// Objects in pools begin at multiples of this, bytes.
const ALIGNMENT: u64 = 16;

/// See the module.
pub(super) struct Numbers<'a> {
    /// By address.
    pools: &'a [Range<u64>],
    /// Where in the table each of them begins.
    begins: Vec<usize>,
    /// Numbers plus one; 0: no object.
    table: Vec<u32>,
    others: FastMap<u64, u32>,
    /// The pool looked up last: the next address is mostly in the same one.
    last: Cell<usize>,
}

impl<'a> Numbers<'a> {
    /// `pools` are by address, and do not overlap.
    pub(super) fn new(pools: &'a [Range<u64>]) -> Self {
        let mut len = 0;
        let begins = pools.iter().map(|pool| {
            let begin = len;
            len += (pool.end - pool.start).div_ceil(ALIGNMENT) as usize;
            begin
        });
        let begins = begins.collect();
        Self {
            pools,
            begins,
            // The kernel gives memory to those parts alone that are written.
            table: vec![0; len],
            others: FastMap::default(),
            last: Cell::new(0),
        }
    }

    /// Index of the pool that an address lies in.
    fn pool(&self, address: u64) -> Option<usize> {
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
        self.pool(address).is_some()
    }

    /// Place of an address in the table.
    fn place(&self, address: u64) -> Option<usize> {
        let pool = self.pool(address)?;
        let offset = address - self.pools[pool].start;
        offset
            .is_multiple_of(ALIGNMENT)
            .then(|| self.begins[pool] + (offset / ALIGNMENT) as usize)
    }

    pub(super) fn get(&self, address: u64) -> Option<u32> {
        match self.place(address) {
            Some(place) => self.table[place].checked_sub(1),
            None => self.others.get(&address).copied(),
        }
    }

    /// `number` is below the largest one there is.
    pub(super) fn insert(&mut self, address: u64, number: u32) {
        match self.place(address) {
            Some(place) => self.table[place] = number + 1,
            None => drop(self.others.insert(address, number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_the_number_that_it_was_given() {
        let pools = [0x1000..0x3000, 0x3000..0x4000, 0x1_0000..0x1_0010];
        let mut numbers = Numbers::new(&pools);
        let addresses = (0xff0..0x4010).chain(0xfff0..0x1_0020).step_by(8);
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
    }

    #[test]
    fn without_pools_there_are_numbers_too() {
        let mut numbers = Numbers::new(&[]);
        numbers.insert(0x1000, 7);
        assert_eq!((numbers.get(0x1000), numbers.get(0x1010)), (Some(7), None));
        assert!(!numbers.is_in_pool(0x1000));
    }
}
