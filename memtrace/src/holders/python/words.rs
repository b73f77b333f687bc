//! Reading words one after another without a call each.

use super::super::memory::Memory;
use crate::arch::ADDRESS_BITS;
use zerocopy::IntoBytes;

/// Words that are read at once.
const WINDOW: usize = 64;
/// Pages of some kernels are multiples of it.
const PAGE: u64 = 4096;

/// Words of a process's memory; a few after the last one read are cached.
pub(super) struct Words<'a> {
    memory: &'a dyn Memory,
    start: u64,
    count: usize,
    words: [u64; WINDOW],
}

impl<'a> Words<'a> {
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self {
            memory,
            start: 0,
            count: 0,
            words: [0; WINDOW],
        }
    }

    /// Another place to read at, at the same time.
    pub(super) fn again(&self) -> Words<'a> {
        Words::new(self.memory)
    }

    pub(super) fn memory(&self) -> &'a dyn Memory {
        self.memory
    }

    /// The word at an address, which must be a multiple of 8.
    pub(super) fn at(&mut self, address: u64) -> Option<u64> {
        let ahead = address.wrapping_sub(self.start);
        match self.words[..self.count].get((ahead / 8) as usize) {
            Some(&word) if ahead.is_multiple_of(8) => Some(word),
            _ => self.fill(address),
        }
    }

    /// Reads to the end of the page at most, behind which may be nothing.
    fn fill(&mut self, address: u64) -> Option<u64> {
        self.count = 0;
        if !address.is_multiple_of(8) {
            return None;
        }
        let count = (((PAGE - address % PAGE) / 8) as usize).min(WINDOW);
        if !self
            .memory
            .read(address, self.words[..count].as_mut_bytes())
        {
            return None;
        }
        self.start = address;
        self.count = count;
        Some(self.words[0])
    }
}

/// Whether a word may be the address of an object.
pub(super) fn is_pointer(word: u64) -> bool {
    word.is_multiple_of(8) && (0x1000..1 << ADDRESS_BITS).contains(&word)
}
