//! Why objects are alive that no root reaches and that CPython's collector does not track, such as strings.

use super::{
    Graph, Holder, NodeId,
    unreached::{Again, Since},
};
use crate::{
    hash::FastMap,
    holders::{
        memory::{Cached, Live},
        native,
        pools::Piece,
        reference::cost,
    },
};

impl Graph<'_> {
    /// Reaches those of the `sought` addresses that are of live objects to which nothing leads, or only a word that may be
    /// left over in memory below unreached objects: the collector does not track them. The arguments
    /// are those of [`Graph::search_unreached`].
    pub(in crate::holders) fn search_untracked(
        &mut self,
        sought: &[u64],
        since: &Since,
        again: Option<Again<'_>>,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) {
        let Some(python) = self.python else { return };
        let mut rests: FastMap<u64, u64> = FastMap::default();
        for &address in sought {
            let object = self.object_at(address, memory.now());
            let object = object.filter(|&object| {
                let mut nodes = [address, object]
                    .into_iter()
                    .filter_map(|at| self.reached(at));
                nodes.all(|node| self.is_behind_words(node))
                    && self.is_in_use(address, memory.now())
            });
            let rest = object.and_then(|object| python.reference_count(memory.now(), object));
            rests.extend(object.zip(rest));
            self.counted.extend(object.zip(rest));
        }
        let none = FastMap::default();
        let mut words = self.words_to(&rests, &none, since, memory, is_over);
        self.look_again(&mut words, &rests, &none, again, memory, is_over);
        if let Some(words) = &words {
            rests.retain(|object, rest| {
                let holder = words.get(object).and_then(|words| words.seen_holder(*rest));
                !holder.is_some_and(|holder| self.set_holder(*object, holder))
            });
        }
        self.reach_rests(&rests, words.as_ref(), memory, is_over);
    }

    /// Makes an object's only holder the one that is kept for it; whether that was reached.
    fn set_holder(&mut self, object: u64, holder: u64) -> bool {
        let (Some(node), Some(holder)) = (self.reached(object), self.reached(holder)) else {
            return false;
        };
        self.holders[node as usize] = holder;
        self.costs[node as usize] = cost::with(self.costs[holder as usize], cost::TYPED);
        true
    }

    /// Whether the only path to a node is from an unreached object, and ends with a word whose meaning is not known.
    fn is_behind_words(&self, node: NodeId) -> bool {
        let Some(Holder::Node(holder)) = self.holder(node) else {
            return false;
        };
        let price = self.costs[node as usize].saturating_sub(self.costs[holder as usize]);
        self.is_unreached(node) && (self.object(holder).is_none() || price >= cost::UNTYPED)
    }

    /// Whether the memory at an address was not given back to its allocator.
    fn is_in_use(&self, address: u64, memory: &Live) -> bool {
        let piece = || Piece::at(self.python?.minor(), memory, address);
        match self.blocks.containing(address) {
            _ if self.is_in_pool(address) => piece().is_some_and(|piece| !piece.is_free(memory)),
            // Another allocator may have freed it since, unseen.
            Some(_) if self.native.note.is_some() => false,
            Some(block) => native::is_allocated(memory, self.blocks.block(block)),
            None => false,
        }
    }
}
