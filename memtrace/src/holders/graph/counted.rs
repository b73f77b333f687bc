//! Counts references as CPython's collector does (`subtract_refs`, Python/gc.c).

use super::Graph;
use crate::{
    hash::FastMap,
    holders::{
        memory::{Cached, Live, Memory},
        python::Python,
        reference::Reference,
    },
};

/// Most references that are counted: a program may have any number. Some 400 MiB.
pub(super) const MOST_REFERENCES: usize = 1 << 24;

/// Unreached objects by address: how many references the collector finds to each.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) counts: FastMap<u64, u64>,
    /// Addresses of the words that have them.
    pub(super) slots: FastMap<u64, ()>,
}

impl Graph<'_> {
    /// Counts the references between `objects`, and from what only they refer to. `None`: there are too many.
    pub(super) fn count(
        &self,
        python: &Python,
        objects: &[u64],
        memory: &dyn Memory,
    ) -> Option<Counts> {
        let mut found = Counts {
            counts: objects.iter().map(|&object| (object, 0)).collect(),
            slots: FastMap::default(),
        };
        let mut rest = objects.to_vec();
        while let Some(object) = rest.pop() {
            if found.slots.len() > MOST_REFERENCES {
                return None;
            }
            // It was freed meanwhile.
            if python.reference_count(memory, object) == Some(0) {
                continue;
            }
            python.references_seen(memory, object, &mut |reference: &Reference<'_>| {
                let target = reference.target;
                let Some(slot) = reference.checks.last().map(|check| check.address) else {
                    return;
                };
                if found.slots.len() > MOST_REFERENCES
                    || self.is_reached(target)
                    || !python.is_collected(memory, target)
                    || found.slots.insert(slot, ()).is_some()
                {
                    return;
                }
                *found.counts.entry(target).or_insert_with(|| {
                    rest.push(target);
                    0
                }) += 1;
            });
        }
        Some(found)
    }

    /// Two groups of the objects that were counted:
    /// - those that the program uses, or has freed: their references, or the number of them, have changed since;
    /// - those in a circle of references, or to which one leads: only a circle keeps itself alive.
    pub(super) fn changed_and_circular(
        &self,
        python: &Python,
        counts: &FastMap<u64, u64>,
        tracked: &[u64],
        memory: &Cached<Live>,
    ) -> (FastMap<u64, ()>, FastMap<u64, ()>) {
        // The rest of the search goes on with what was read first.
        let memory = &Cached::new(memory.now().clone());
        let again = self.count(python, tracked, memory);
        let again = again.unwrap_or_default();
        let is_same = |&(&object, &count): &(&u64, &u64)| {
            let all = python.reference_count(memory, object).unwrap_or(0);
            let known = self.counted.get(&object).copied().unwrap_or(count);
            again.counts.get(&object) == Some(&count) && all == known && all > 0
        };
        let changed = counts.iter().filter(|of| !is_same(of));
        let changed = changed.map(|(object, _)| (*object, ())).collect();
        (changed, self.circular(python, again, memory))
    }

    /// What is left when objects without references are taken away, then those whose references were only from them, and so
    /// on.
    fn circular(&self, python: &Python, from: Counts, memory: &dyn Memory) -> FastMap<u64, ()> {
        let Counts {
            mut counts,
            mut slots,
        } = from;
        let unreferenced = counts.iter().filter(|(_, count)| **count == 0);
        let mut rest: Vec<u64> = unreferenced.map(|(object, _)| *object).collect();
        while let Some(object) = rest.pop() {
            counts.remove(&object);
            python.references_seen(memory, object, &mut |reference: &Reference<'_>| {
                let slot = reference.checks.last().map(|check| check.address);
                let is_counted = slot.is_some_and(|slot| slots.remove(&slot).is_some());
                let count = counts.get_mut(&reference.target).filter(|_| is_counted);
                // It may refer to another object by now.
                if let Some(count) = count.filter(|count| **count > 0) {
                    *count -= 1;
                    if *count == 0 {
                        rest.push(reference.target);
                    }
                }
            });
        }
        counts.into_keys().map(|object| (object, ())).collect()
    }
}
