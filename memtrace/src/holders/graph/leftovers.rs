//! Words that may be left over from what their memory was before: on stacks, and in structures of C. They are followed
//! after everything else, and never lead to an object whose references are all known.

use super::{Graph, NodeId, RootWord};
use crate::holders::{
    memory::{Cached, Live},
    native::RootKind,
    reference::{Reference, Word, cost},
};

/// Most words of nodes that are put off.
const MOST: usize = 1 << 20;

impl Graph<'_> {
    /// Whether a reference of a root is put off: it may be left over, and leads to the object `target`.
    pub(super) fn puts_off(
        &mut self,
        root: RootWord,
        reference: &Reference<'_>,
        target: NodeId,
    ) -> bool {
        let may_be_left_over = match root {
            RootWord::Native(_, kind) => kind == RootKind::Stack,
            RootWord::Register(_) => true,
            RootWord::Python => reference.cost >= cost::UNKNOWN,
            RootWord::Younger | RootWord::Unreached(_) => false,
        };
        if !may_be_left_over || self.object(target).is_none() {
            return false;
        }
        match self.follows_leftovers {
            true => self.explained.contains_key(&reference.target),
            false => {
                let cost = cost::with(reference.cost, cost::LEFT_OVER);
                let word = Word::of(&Reference { cost, ..*reference });
                self.left_over.push((root, word));
                true
            }
        }
    }

    /// A word of a node without a type that may lead to a structure.
    pub(super) fn meet_structure(
        &mut self,
        node: NodeId,
        reference: &Reference<'_>,
        memory: &Cached<Live>,
    ) {
        // References that are kept are those of one node after another: these would come too late.
        let is_left_out = self.met.is_some() || self.structures.len() >= MOST;
        if is_left_out || !self.numbers.is_in_pool(reference.target) {
            return;
        }
        match self.follows_leftovers {
            true => self.follow_structure(node, reference, memory),
            false => self.structures.push((node, Word::of(reference))),
        }
    }

    /// Follows what was put off, and from now on everything at once.
    pub(in crate::holders) fn follow_leftovers(
        &mut self,
        memory: &Cached<Live>,
        is_over: &dyn Fn() -> bool,
    ) {
        self.follows_leftovers = true;
        for (root, word) in std::mem::take(&mut self.left_over) {
            self.reach_from(root, &word.reference(), memory);
        }
        self.settle(memory, is_over);
        let structures = std::mem::take(&mut self.structures);
        for (node, word) in structures.into_iter().take_while(|_| !is_over()) {
            self.follow_structure(node, &word.reference(), memory);
        }
        self.settle(memory, is_over);
    }
}
