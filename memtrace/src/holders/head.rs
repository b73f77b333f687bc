//! Lists that grow at their head: blocks that came since the search are before the first one that it found.

use super::{
    memory::Memory,
    reference::{Expected, Label, Link},
};

/// Most blocks that came since the search.
const FAR: usize = 1 << 17;

/// Most blocks that came within some milliseconds. Each takes a system call while the process is stopped.
const NEAR: usize = 256;

/// The head of a list, and one of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Address of the word that points to the first block.
    pub(super) word: u64,
    /// From a pointer to a block to where the pointer to the next one is, bytes, modulo 2^64.
    step: u64,
    /// A pointer to a block as the list has it.
    known: u64,
}

impl Head {
    /// The head at `word` of the list in which `block` refers to `next`, another block, by `link`.
    pub(super) fn new(word: u64, block: u64, next: u64, link: &Link) -> Option<Self> {
        let (Label::Word(offset), [check]) = (link.label, &link.checks[..]) else {
            return None;
        };
        let Expected::Exactly(pointer) = check.expected else {
            return None;
        };
        // Pointers may lead into the blocks of a list.
        let inside = pointer.wrapping_sub(next);
        Some(Self {
            word,
            step: offset.wrapping_sub(inside),
            known: block.wrapping_add(inside),
        })
    }

    /// The same list from the block on that is the first now; `None` if that does not lead to the known one.
    pub(super) fn advanced(self, memory: &dyn Memory) -> Option<Self> {
        let known = self.first(memory, FAR)?;
        Some(Self { known, ..self })
    }

    /// Whether the head leads to the known block, which was the first one just before.
    pub(super) fn holds(&self, memory: &dyn Memory) -> bool {
        self.first(memory, NEAR).is_some()
    }

    /// The pointer in the head, if it leads to the known block past no more than `most` others.
    fn first(&self, memory: &dyn Memory, most: usize) -> Option<u64> {
        let first = memory.word(self.word)?;
        let mut pointer = first;
        for _ in 0..=most {
            if pointer == self.known {
                return Some(first);
            }
            if pointer == 0 {
                break;
            }
            pointer = memory.word(pointer.wrapping_add(self.step))?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::reference::Check;
    use std::collections::HashMap;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let word = self.0.get(&address);
            word.is_some_and(|word| {
                buffer.copy_from_slice(&word.to_le_bytes()[..buffer.len()]);
                true
            })
        }
    }

    const HEAD: u64 = 0x1000;

    /// Blocks whose third word is a list node: the pointers lead to it.
    fn list(blocks: &[u64]) -> Words {
        let nodes = blocks.iter().map(|block| block + 16);
        let from = std::iter::once(HEAD).chain(nodes.clone());
        Words(from.zip(nodes.chain([0])).collect())
    }

    fn of(block: u64, next: u64) -> Option<Head> {
        let link = Link {
            label: Label::Word(16),
            checks: vec![Check::equal(block + 16, next + 16)],
        };
        Head::new(HEAD, block, next, &link)
    }

    #[test]
    fn a_head_that_moved_on_leads_to_the_old_one() {
        let head = of(0x300, 0x200).unwrap();
        let memory = list(&[0x500, 0x400, 0x300, 0x200]);
        let advanced = head.advanced(&memory).unwrap();
        assert!(advanced.holds(&list(&[0x600, 0x500, 0x400, 0x300, 0x200])));
        assert!(advanced.holds(&memory));
    }

    #[test]
    fn a_list_that_lost_the_block_does_not_hold_it() {
        let head = of(0x300, 0x200).unwrap();
        assert_eq!(head.advanced(&list(&[0x500, 0x400, 0x200])), None);
        let advanced = head.advanced(&list(&[0x500, 0x300, 0x200])).unwrap();
        assert!(!advanced.holds(&list(&[0x300, 0x200])));
    }

    #[test]
    fn a_circle_ends() {
        let mut memory = list(&[0x500, 0x400]);
        memory.0.insert(0x410, 0x510);
        assert_eq!(of(0x300, 0x200).unwrap().advanced(&memory), None);
    }

    #[test]
    fn references_that_are_no_words_of_a_block_are_no_list() {
        let link = Link {
            label: Label::Buffer,
            checks: vec![Check::equal(0x310, 0x210)],
        };
        assert_eq!(Head::new(HEAD, 0x300, 0x200, &link), None);
    }
}
