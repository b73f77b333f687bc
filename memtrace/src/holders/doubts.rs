//! What a search tells the next one: holders that had changed when a path through them was read again, as queues, timers
//! and the calls of the moment do, so that it prefers other ways; and where the memory of containers was.

use crate::hash::FastMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    holders: FastMap<u64, ()>,
    /// Objects and blocks to which a root no longer referred.
    roots: FastMap<u64, ()>,
    pub(super) buffers: Buffers,
}

/// Long containers when they were first followed, by address. As they grow, they move to blocks that came after the
/// recording.
pub(super) type Buffers = FastMap<u64, Buffer>;

/// The memory that a container had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    /// Where the block begins.
    pub(super) block: u64,
    /// Elements of the container then.
    pub(super) length: u64,
}

impl Buffer {
    /// Whether it was that of the container that has this length now: one that has become shorter may be another one, which
    /// is at the same address.
    pub(super) fn is_of(&self, length: u64) -> bool {
        length >= self.length
    }
}

impl Doubts {
    /// `holder`, at this address, no longer referred to the next one of a path.
    pub(super) fn add_holder(&mut self, holder: u64) {
        self.holders.insert(holder, ());
    }

    /// No root referred to `target` as it had before.
    pub(super) fn add_root_of(&mut self, target: u64) {
        self.roots.insert(target, ());
    }

    pub(super) fn add(&mut self, others: Doubts) {
        self.holders.extend(others.holders);
        self.roots.extend(others.roots);
        self.buffers = others.buffers;
    }

    pub(super) fn has_holder(&self, address: u64) -> bool {
        !self.holders.is_empty() && self.holders.contains_key(&address)
    }

    pub(super) fn has_root_of(&self, target: u64) -> bool {
        !self.roots.is_empty() && self.roots.contains_key(&target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_container_is_another_one() {
        let buffer = Buffer {
            block: 0x1000,
            length: 100,
        };
        assert!(buffer.is_of(100) && buffer.is_of(300));
        assert!(!buffer.is_of(99));
    }

    #[test]
    fn doubts_of_all_searches_count() {
        let mut all = Doubts::default();
        assert!(!all.has_holder(0x10) && !all.has_root_of(0x20));
        for (holder, target) in [(0x10, 0x20), (0x30, 0x40)] {
            let mut doubts = Doubts::default();
            doubts.add_holder(holder);
            doubts.add_root_of(target);
            all.add(doubts);
        }
        assert!(all.has_holder(0x10) && all.has_holder(0x30));
        assert!(all.has_root_of(0x20) && !all.has_root_of(0x10));
    }
}
