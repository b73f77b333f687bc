//! Lists that grow at their head: blocks or objects that came since the search are before the first one that it found.

use super::{
    memory::Memory,
    reference::{Check, Expected, Label, Link},
};

/// Most blocks that came since the search.
const FAR: usize = 1 << 17;

/// Most blocks that came within some milliseconds. Each takes a system call or more while the process is stopped.
const NEAR: usize = 256;

/// Most words from one node of a list to the next: the dict of its attributes, the table of the dict, the value there.
const MOST_WORDS: usize = 3;

/// From a node of a list to the next one, word by word. Each offset is from the value of the word before, the first one
/// from a pointer to the node; bytes, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    offsets: [u64; MOST_WORDS],
    len: usize,
    /// Where pointers lead in a node.
    inside: u64,
}

impl Steps {
    /// Those by which `node` refers to `next` by `link`.
    pub(super) fn of(node: u64, next: u64, link: &Link) -> Option<Self> {
        let (last, before) = link.checks.split_last()?;
        let pointer = exactly(last).filter(|_| link.label != Label::Buffer)?;
        // Pointers may lead into the blocks of a list.
        let inside = pointer.wrapping_sub(next);
        let start = node.wrapping_add(inside);
        let distance = |from: u64| last.address.wrapping_sub(from).cast_signed().unsigned_abs();
        let own = before.iter().filter(|check| is_of(node, check));
        let own = own.filter_map(|check| Some((check.address, exactly(check)?)));
        // The values of attributes may have memory of their own.
        let table = own.min_by_key(|&(_, value)| distance(value));
        let mut steps = Self {
            offsets: [0; MOST_WORDS],
            len: 0,
            inside,
        };
        let mut from = start;
        if let Some((address, value)) =
            table.filter(|&(_, value)| distance(value) < distance(start))
        {
            steps.add(address.wrapping_sub(from))?;
            from = value;
        }
        steps.add(last.address.wrapping_sub(from))?;
        Some(steps)
    }

    fn add(&mut self, offset: u64) -> Option<()> {
        *self.offsets.get_mut(self.len)? = offset;
        self.len += 1;
        Some(())
    }

    /// These, and then `others`.
    pub(super) fn then(mut self, others: &Self) -> Option<Self> {
        let others = others.offsets.iter().take(others.len);
        others.copied().try_for_each(|offset| self.add(offset))?;
        Some(self)
    }

    /// The pointer to the node after the one that `pointer` leads to.
    fn next(&self, memory: &dyn Memory, pointer: u64) -> Option<u64> {
        let mut offsets = self.offsets.iter().take(self.len);
        offsets.try_fold(pointer, |at, &offset| memory.word(at.wrapping_add(offset)))
    }
}

/// The value of a word that has no other.
fn exactly(check: &Check) -> Option<u64> {
    match check.expected {
        Expected::Exactly(value) if check.mask == !0 => Some(value),
        _ => None,
    }
}

/// Whether a word is one of an object, or just before it.
fn is_of(object: u64, check: &Check) -> bool {
    /// Bytes of the fields of an object that lead to its references.
    const FIELDS: u64 = 256;
    /// Of those before it.
    const BEFORE: u64 = 32;
    check.address.wrapping_sub(object).wrapping_add(BEFORE) < FIELDS + BEFORE
}

/// The head of a list, and one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Address of the word that points to the first node.
    pub(super) word: u64,
    steps: Steps,
    /// A pointer to a node as the list has it.
    known: u64,
}

impl Head {
    /// The head at `word` of the list with `node` in it.
    pub(super) fn new(word: u64, node: u64, steps: Steps) -> Self {
        Self {
            word,
            steps,
            known: node.wrapping_add(steps.inside),
        }
    }

    /// The same list from the node on that is the first now; `None` if that does not lead to the known one.
    pub(super) fn advanced(self, memory: &dyn Memory) -> Option<Self> {
        let known = self.first(memory, FAR)?;
        Some(Self { known, ..self })
    }

    /// Whether the head leads to the known node, which was the first one just before.
    pub(super) fn holds(&self, memory: &dyn Memory) -> bool {
        self.first(memory, NEAR).is_some()
    }

    /// The pointer in the head, if it leads to the known node past no more than `most` others.
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
            pointer = self.steps.next(memory, pointer)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        Some(Head::new(HEAD, block, Steps::of(block, next, &link)?))
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
        assert_eq!(Steps::of(0x300, 0x200, &link), None);
    }

    /// An object refers to a dict by its third word, and the dict to a table by its fifth, which has the next object.
    #[test]
    fn objects_that_refer_to_one_another_by_attributes_are_a_list() {
        let objects = [0x500, 0x400, 0x300, 0x200];
        let mut memory = Words(HashMap::from([(HEAD, 0x500)]));
        for pair in objects.windows(2) {
            let (dict, table) = (pair[0] + 0x1000, pair[0] * 0x1000);
            memory.0.insert(pair[0] + 16, dict);
            memory.0.insert(dict + 32, table);
            memory.0.insert(table + 72, pair[1]);
        }
        let to_dict = Link {
            label: Label::Namespace,
            checks: vec![Check::equal(0x310, 0x1300)],
        };
        let to_next = Link {
            label: Label::Value(0),
            checks: vec![
                Check::equal(0x1320, 0x30_0000),
                Check::at_least(0x30_0010, 1),
                // The key, which is far away.
                Check::equal(0x30_0040, 0x7000_0000),
                Check::equal(0x30_0048, 0x200),
            ],
        };
        let to_next = Steps::of(0x1300, 0x200, &to_next).unwrap();
        let steps = Steps::of(0x300, 0x1300, &to_dict).unwrap();
        let head = Head::new(HEAD, 0x300, steps.then(&to_next).unwrap());
        assert!(
            head.advanced(&memory)
                .is_some_and(|head| head.holds(&memory))
        );
        memory.0.insert(0x40_0048, 0x200);
        assert_eq!(head.advanced(&memory), None);
    }
}
