//! Holders that had changed when a path through them was read again: queues, timers, the calls of the moment. The next
//! search prefers other ways.

use crate::hash::FastMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    holders: FastMap<u64, ()>,
    /// Objects and blocks to which a root no longer referred.
    roots: FastMap<u64, ()>,
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
