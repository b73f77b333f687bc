//! Why objects that no root reaches are alive. Their references are counted as CPython's collector counts them
//! (`subtract_refs`, Python/gc.c): an object with no more references than unreached objects have to it is garbage.
//! Where it has more, all memory is searched for the words that the rest could be.

use super::{
    BEFORE_OBJECT, Graph, Holder, NodeId, RootWord,
    counted::{Counts, MOST_REFERENCES},
    word,
};
use crate::{
    hash::FastMap,
    holders::{
        memory::{Cached, Live, Memory},
        native::{self, Block, Scanner},
        pools::Piece,
        python::Python,
        reference::{Label, cost},
    },
};
use std::{collections::BTreeMap, ops::Range};

/// Most bytes that are searched for words that refer to an object: some seconds.
pub(super) const MOST_BYTES: u64 = 8 << 30;

/// Most words that are kept: a program may have any number.
const MOST_WORDS: usize = 1 << 20;

/// How often references are counted at most: each time with objects that were missed before.
const ROUNDS: usize = 3;

/// PyTorch's classes of C++ that have a Python object: `c10::TensorImpl`, and `torch::autograd::PyNode` of an
/// `autograd.Function`. Versions in which a node has no count of its own own that object.
const WITH_PYTHON: [&str; 2] = ["N3c1010TensorImplE", "N5torch8autograd6PyNodeE"];

/// Why CPython's collector does not free an object that no root reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::holders) enum Unreached {
    /// It has more references than there are words that point to it: native code took one and did not give it back.
    Surplus,
    /// Memory that the collector cannot see into refers to it: an object of a type without `tp_traverse`, or a block.
    Hidden,
    /// Words that may or may not be references point to it.
    Unclear,
    /// Garbage has all references to it: the collector frees it when it runs.
    Cycle,
    /// The same, but set aside by `gc.freeze`, so the collector never looks at it.
    Frozen,
}

/// A word that points to an object, besides those that the collector finds.
enum Place {
    /// In memory without a use.
    Free,
    /// In an object of a type that the collector sees into, which is not among those counted.
    Seen(u64),
    /// In an object or a block that it cannot see into.
    Hidden(u64),
    /// Elsewhere: a root may lead there.
    Elsewhere,
}

/// The words that point to one object.
#[derive(Default)]
pub(super) struct Words {
    seen: Vec<u64>,
    hidden: Vec<u64>,
    elsewhere: u64,
}

/// Memory that the process has now besides the blocks that the search knows.
pub(in crate::holders) struct Since {
    pub(in crate::holders) younger: Vec<Block>,
    /// Those of the interpreter's objects.
    pub(in crate::holders) pools: Vec<Range<u64>>,
}

/// That memory, a moment later; `None`: it cannot be read.
pub(in crate::holders) type Again<'a> = &'a dyn Fn() -> Option<Since>;

/// What the references are that the collector does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Surplus,
    /// In an object or a block of [`Words::hidden`].
    Hidden,
    Unclear,
}

impl Words {
    /// One of the objects that the collector sees into, if these have all `rest` references.
    pub(super) fn seen_holder(&self, rest: u64) -> Option<u64> {
        let is_all = self.hidden.is_empty() && self.elsewhere == 0;
        let holder = self.seen.first().copied();
        holder.filter(|_| is_all && self.seen.len() as u64 == rest)
    }

    /// What the `rest` of an object's references are.
    fn why(&self, rest: u64) -> Why {
        let others = self.seen.len() as u64 + self.elsewhere;
        match () {
            () if rest > others + self.hidden.len() as u64 => Why::Surplus,
            () if rest > others => Why::Hidden,
            () => Why::Unclear,
        }
    }
}

impl Graph<'_> {
    /// Whether a node is alive although no root reaches it.
    pub(in crate::holders) fn is_unreached(&self, node: NodeId) -> bool {
        let cost = self.costs.get(node as usize);
        cost.is_some_and(|&cost| (cost::UNREACHED..u32::MAX).contains(&cost))
    }

    /// Reaches everything that is alive although no root reaches it. `again`: the same as `since`, later; `None`: the process
    /// is stopped.
    pub(in crate::holders) fn search_unreached(
        &mut self,
        since: &Since,
        again: Option<Again<'_>>,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) {
        let Some(python) = self.python else { return };
        // What the search read before may be older than the objects.
        memory.forget();
        let (mut tracked, mut frozen) = (Vec::new(), Vec::new());
        python.tracked(memory, &mut |object, is_frozen| {
            if !self.is_reached(object) && python.is_object(memory, object) {
                match is_frozen {
                    true => frozen.push(object),
                    false => tracked.push(object),
                }
            }
        });
        let mut rounds = 0;
        let (counts, mut rests, mut words) = loop {
            let Some(counts) = self.count(python, &tracked, memory) else {
                self.follow_leftovers(memory, is_over);
                self.reach_unreached(Unreached::Unclear, tracked, memory, is_over);
                return;
            };
            let rests = self.rests(python, &counts, memory);
            let words = self.words_to(&rests, &counts.slots, since, memory, is_over);
            // The collector's lists may end early while they change.
            let seen = words.iter().flat_map(FastMap::values);
            let seen = seen.flat_map(|words| words.seen.iter().copied());
            let missed = seen.filter(|object| !counts.counts.contains_key(object));
            let missed: Vec<u64> = missed.collect();
            rounds += 1;
            if missed.is_empty() || rounds == ROUNDS {
                break (counts, rests, words);
            }
            tracked.extend(missed);
        };
        self.look_again(&mut words, &rests, &counts.slots, again, memory, is_over);
        let (changed, circular) =
            self.changed_and_circular(python, &counts.counts, &tracked, memory);
        tracked.retain(|object| circular.contains_key(object));
        rests.retain(|object, _| !changed.contains_key(object));
        self.explained = counts.counts;
        self.explained
            .retain(|object, _| !rests.contains_key(object) && !changed.contains_key(object));
        self.follow_leftovers(memory, is_over);
        let changed = changed.into_keys().collect();
        self.reach_unreached(Unreached::Unclear, changed, memory, is_over);
        let mut hiders = self.reach_rests(&rests, words.as_ref(), memory, is_over);
        // A cycle leads back to what hides it; anything else is memory that has not been cleared.
        hiders.retain(|hider| self.reached(*hider).is_some());
        self.reach_unreached(Unreached::Hidden, hiders, memory, is_over);
        self.reach_unreached(Unreached::Cycle, tracked, memory, is_over);
        self.reach_unreached(Unreached::Frozen, frozen, memory, is_over);
    }

    /// Whether a root leads to the object at an address.
    fn is_reached_from_root(&self, object: u64) -> bool {
        let node = self.numbers.get(object);
        self.is_reached(object) && !node.is_some_and(|node| self.is_unreached(node))
    }

    /// Whether the object at an address was reached.
    pub(super) fn is_reached(&self, object: u64) -> bool {
        let node = self.numbers.get(object);
        node.is_some_and(|node| self.holder(node).is_some())
    }

    /// Searches once more for the words that point to objects of which there were too few: a word that moved meanwhile may
    /// have been missed. By now it is in its place.
    pub(super) fn look_again(
        &self,
        words: &mut Option<FastMap<u64, Words>>,
        rests: &FastMap<u64, u64>,
        known: &FastMap<u64, ()>,
        again: Option<Again<'_>>,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) {
        let Some(first) = words else { return };
        let none = Words::default();
        let few = |object: &u64, rest| first.get(object).unwrap_or(&none).why(rest) == Why::Surplus;
        let too_few = rests.iter().filter(|&(object, &rest)| few(object, rest));
        let too_few: FastMap<u64, u64> = too_few.map(|(object, rest)| (*object, *rest)).collect();
        if too_few.is_empty() {
            return;
        }
        let Some(again) = again else { return };
        let memory = &Cached::new(memory.now().clone());
        let words_to = |since| self.words_to(&too_few, known, &since, memory, is_over);
        match again().and_then(words_to) {
            Some(again) => first.extend(again),
            None => *words = None,
        }
    }

    /// Reaches objects by why the `rests` of their references are not known, from the words that point to them. Returns
    /// what may hide cycles.
    pub(super) fn reach_rests(
        &mut self,
        rests: &FastMap<u64, u64>,
        words: Option<&FastMap<u64, Words>>,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) -> Vec<u64> {
        let none = Words::default();
        let mut roots: BTreeMap<Unreached, Vec<u64>> = BTreeMap::new();
        let mut hiders = Vec::new();
        for (&object, &rest) in rests {
            let to_object = words.map(|words| words.get(&object).unwrap_or(&none));
            let why = to_object.map_or(Why::Unclear, |words| words.why(rest));
            let group = match why {
                Why::Surplus => Unreached::Surplus,
                Why::Hidden | Why::Unclear => Unreached::Unclear,
            };
            roots.entry(group).or_default().push(object);
            if let (Why::Hidden, Some(words)) = (why, to_object) {
                hiders.extend(&words.hidden);
            }
        }
        for (why, objects) in roots {
            self.reach_unreached(why, objects, memory, is_over);
        }
        hiders
    }

    /// How many references of each object are not among those counted, if there are any.
    fn rests(
        &mut self,
        python: &Python,
        counts: &Counts,
        memory: &dyn Memory,
    ) -> FastMap<u64, u64> {
        let mut rests: FastMap<u64, u64> = FastMap::default();
        for (&object, &count) in &counts.counts {
            let all = python.reference_count(memory, object).unwrap_or(0);
            // Static objects are never freed.
            if all > count && self.may_have_object(object) {
                rests.insert(object, all - count);
                self.counted.insert(object, all);
            }
        }
        rests
    }

    /// Reaches what `objects` keep, as long as nothing more certain does.
    fn reach_unreached(
        &mut self,
        why: Unreached,
        mut objects: Vec<u64>,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) {
        // The same search gives the same answer.
        objects.sort_unstable();
        for address in objects {
            let cost = cost::UNREACHED + why as u32 * cost::UNREACHED_STEP;
            let reference = word(&[], 0, address, cost);
            self.reach_from(RootWord::Unreached(why), &reference, memory);
        }
        self.settle(memory, is_over);
    }

    /// All words of memory that point to `objects`, but for those at `known` addresses. `None`: there is too much memory,
    /// or there are too many words.
    pub(super) fn words_to(
        &self,
        objects: &FastMap<u64, u64>,
        known: &FastMap<u64, ()>,
        since: &Since,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) -> Option<FastMap<u64, Words>> {
        let mut found: FastMap<u64, Words> = FastMap::default();
        let (Some(first), Some(last)) = (objects.keys().min(), objects.keys().max()) else {
            return Some(found);
        };
        let bounds = *first..last + 1;
        let ranges: Vec<Range<u64>> = self.all_memory(since, memory).collect();
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if bytes > MOST_BYTES {
            return None;
        }
        // Variables and stacks may have blocks inside, so some words are met twice.
        let mut hits: Vec<(u64, u64)> = Vec::new();
        let mut scanner = Scanner::new(bounds);
        let now = Cached::in_order(memory.now().clone());
        for range in ranges {
            if is_over() {
                return None;
            }
            scanner.scan(&now, range, |at, value| {
                // One more than the limit shows that there are too many.
                // PyTorch marks some by the lowest bit.
                let value = value & !1;
                if hits.len() <= MOST_WORDS
                    && objects.contains_key(&value)
                    && !known.contains_key(&at)
                {
                    hits.push((at, value));
                }
            });
        }
        if hits.len() > MOST_WORDS {
            return None;
        }
        hits.sort_unstable();
        hits.dedup();
        let left = &mut { MOST_REFERENCES };
        for (at, value) in hits {
            let words = found.entry(value).or_default();
            match self.place(at, value, left, memory) {
                Place::Free => {}
                Place::Seen(object) => words.seen.push(object),
                Place::Hidden(hider) => words.hidden.push(hider),
                Place::Elsewhere => words.elsewhere += 1,
            }
        }
        for register in self.native.roots.registers() {
            if let Some(words) = found.get_mut(&register.value) {
                words.elsewhere += 1;
            }
        }
        Some(found)
    }

    /// All memory that may have references: what may be a root, blocks, objects, and stacks of Python.
    pub(super) fn all_memory(
        &self,
        since: &Since,
        memory: &Cached<Live>,
    ) -> impl Iterator<Item = Range<u64>> {
        let blocks = (0..self.blocks.len()).map(|number| self.blocks.block(number));
        let blocks = blocks.chain(since.younger.iter().copied());
        let ranges = self.native_roots();
        let stacks = self.python.map(|python| python.stacks(memory.now()));
        let stacks = stacks.into_iter().flatten();
        ranges
            .map(|range| range.start..range.end)
            .chain(blocks.map(|block| block.start..block.start + block.size))
            .chain(since.pools.iter().cloned())
            .chain(stacks.map(|(stack, top)| stack.start..top))
    }

    /// What the word at an address is part of, which has the address of an object. `left`: references that may be read
    /// for it.
    fn place(&self, at: u64, target: u64, left: &mut usize, memory: &Cached<Live>) -> Place {
        let Some(python) = self.python else {
            return Place::Elsewhere;
        };
        let start = match self.numbers.is_in_pool(at) {
            true => match Piece::at(python.minor(), memory, at) {
                Some(piece) if piece.is_free(memory) => return Place::Free,
                Some(piece) => piece.start,
                None => return Place::Elsewhere,
            },
            false => match self.blocks.containing(at) {
                Some(block) => self.blocks.block(block).start,
                None => return Place::Elsewhere,
            },
        };
        // Before an object are the collector's words and, since 3.11, those of the attributes.
        let is_object = |&object: &u64| python.is_object(memory, object) && object <= at;
        let object = BEFORE_OBJECT.map(|before| start + before).into_iter();
        if let Some(object) = object.filter(is_object).last() {
            // Not a reference by its type: the rest of something else, or borrowed.
            let mut is_reference = false;
            python.references(memory, object, &mut |reference| {
                let slot = reference.checks.last();
                is_reference |= slot.is_some_and(|slot| slot.address == at);
            });
            return match () {
                () if !is_reference => Place::Free,
                () if self.is_reached_from_root(object) => Place::Elsewhere,
                () if python.is_collected(memory, object) => Place::Seen(object),
                () => Place::Hidden(object),
            };
        }
        let is_table = || self.numbers.is_in_pool(at) && python.had_table(memory, start);
        if python.had_object(memory, start) || is_table() {
            return Place::Free;
        }
        match self.blocks.containing(at) {
            Some(block)
                if self.states.contains(&(block as NodeId))
                    || !native::is_allocated(memory.now(), self.blocks.block(block)) =>
            {
                Place::Free
            }
            Some(block) if self.has_python(start, memory.now()) => {
                let is_held = self.holder(block as NodeId).is_some();
                of_python(at, start, is_held, memory.now())
            }
            Some(block)
                if self.holder(block as NodeId).is_none() && !self.wraps(target, block, memory) =>
            {
                Place::Hidden(start)
            }
            Some(block) if self.is_spare(at, block, left, memory) => Place::Free,
            _ => Place::Elsewhere,
        }
    }

    /// Whether a block is the memory of a container, and the word at an address in it is none of its references: room
    /// for more, or the rest of earlier ones.
    fn is_spare(&self, at: u64, block: usize, left: &mut usize, memory: &Cached<Live>) -> bool {
        let Some(Holder::Node(owner)) = self.holder(block as NodeId) else {
            return false;
        };
        let (Some(python), Some(object)) = (self.python, self.object(owner)) else {
            return false;
        };
        if *left == 0 {
            return false;
        }
        let (mut is_owned, mut is_reference) = (false, false);
        python.references(memory.now(), object, &mut |reference| {
            *left = left.saturating_sub(1);
            let slot = reference.checks.last();
            is_reference |= slot.is_some_and(|slot| slot.address == at);
            is_owned |= reference.label == Label::Buffer
                && self.blocks.containing(reference.target) == Some(block);
        });
        is_owned && !is_reference
    }

    /// Whether an object refers to a block itself. What such a block knows of its object is mostly borrowed.
    fn wraps(&self, object: u64, block: usize, memory: &Cached<Live>) -> bool {
        let mut wraps = false;
        if let Some(python) = self.python {
            python.references(memory, object, &mut |reference| {
                wraps |= self.blocks.containing(reference.target) == Some(block);
            });
        }
        wraps
    }

    /// Whether a block is one of [`WITH_PYTHON`].
    fn has_python(&self, block: u64, memory: &Live) -> bool {
        let native = self.native;
        let class = native.types.class_of(memory, &native.modules, block);
        class.is_some_and(|class| WITH_PYTHON.contains(&&*class))
    }
}

/// The word in a block of PyTorch's C++ side that points to its Python object. Either side may own the other
/// (c10/util/intrusive_ptr.h, c10/core/impl/PyObjectSlot.h).
fn of_python(at: u64, block: u64, is_held: bool, memory: &Live) -> Place {
    /// `c10::intrusive_ptr_target`: a vtable, then the number of references in 32 bits.
    const REFERENCES: u64 = 8;
    /// Set in the count by versions in which all references but the Python object's own count as one to that object.
    const COUNTS_FOR_PYTHON: u64 = 1 << 63;
    /// Most weak references, in the other 32 bits. A pointer has more there.
    const MOST_WEAK: u64 = 0x1000;
    let count = memory.word(block + REFERENCES).unwrap_or(0);
    // Versions before mark a word that owns its object.
    let is_marked = memory.word(at).is_none_or(|word| word & 1 != 0);
    let has_count = (count & !COUNTS_FOR_PYTHON) >> 32 <= MOST_WEAK;
    let has_others = count as u32 > 1;
    match () {
        () if is_marked || !has_count || has_others && count & COUNTS_FOR_PYTHON != 0 => {
            match is_held {
                true => Place::Elsewhere,
                false => Place::Hidden(block),
            }
        }
        () if has_others => Place::Elsewhere,
        () => Place::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_given_only_if_no_other_is_possible() {
        let why = |seen, hidden: &[u64], elsewhere, rest| {
            let hidden = hidden.to_vec();
            let words = Words {
                seen: vec![0x10; seen],
                hidden,
                elsewhere,
            };
            words.why(rest)
        };
        assert_eq!(why(0, &[], 0, 1), Why::Surplus);
        assert_eq!(why(1, &[0x20], 1, 4), Why::Surplus);
        assert_eq!(why(0, &[0x20], 0, 1), Why::Hidden);
        assert_eq!(why(1, &[0x20, 0x30], 0, 2), Why::Hidden);
        for (seen, hidden, elsewhere) in [(1, &[][..], 0), (0, &[], 1), (1, &[0x20], 0)] {
            assert_eq!(why(seen, hidden, elsewhere, 1), Why::Unclear);
        }
    }
}
