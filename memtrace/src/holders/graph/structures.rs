//! Structures of C code in the pools of the interpreter: pieces that are not objects, as `PyMem_Malloc` gives them. Nothing
//! describes them, so they are not nodes: what they refer to belongs to the object that leads to them. Some of their words
//! are left over from what the memory was before (`leftovers.rs`).

use super::{Graph, NodeId, Piece};
use crate::holders::{
    memory::{Cached, Live, Memory},
    reference::{Check, Label, Reference, Visit, Word, cost},
};

/// Most pieces from an object to what it refers to, and most pieces that are read for one word.
const DEEPEST: usize = 64;
const MOST: usize = 1 << 17;

/// A piece of a structure.
struct Part {
    piece: Piece,
    /// The part with the word that leads to it, and that word; `None`: it is the first part.
    from: Option<(usize, Check)>,
}

impl Graph<'_> {
    /// Offers what the structure refers to that a word of a node leads to, if it leads to one.
    pub(super) fn follow_structure(
        &mut self,
        node: NodeId,
        reference: &Reference<'_>,
        memory: &Cached<Live>,
    ) {
        // Taken out so that the graph can be changed meanwhile.
        let mut pieces = std::mem::take(&mut self.followed);
        let mut is_new = |piece| pieces.add(&self.numbers, piece);
        let mut words = Vec::new();
        self.structure(reference, memory, &mut is_new, &mut |reference| {
            words.push(Word::of(reference));
        });
        self.followed = pieces;
        let cost = self.cost_from(node, self.costs[node as usize]);
        let cost = cost::with(cost, cost::LEFT_OVER);
        for word in words {
            self.follow_reference(node, &word.reference(), cost, memory);
        }
    }

    /// Visits the words of the structure that a reference leads to, and of those that hang in it, as far as `is_new` says
    /// of their addresses that they are.
    pub(super) fn structure(
        &self,
        reference: &Reference<'_>,
        memory: &dyn Memory,
        is_new: &mut dyn FnMut(u64) -> bool,
        visit: &mut Visit<'_>,
    ) {
        let Some(piece) = self.structure_at(reference.target, memory) else {
            return;
        };
        let label = match reference.label {
            Label::Word(offset) => Label::Structure(offset),
            _ => Label::Structure(0),
        };
        let mut parts = Vec::new();
        if is_new(piece.start) {
            parts.push(Part { piece, from: None });
        }
        let mut next = 0;
        while let Some(&Part { piece, .. }) = parts.get(next) {
            let mut checks = path(&parts, next, reference.checks);
            let depth = checks.len() - reference.checks.len();
            for at in (piece.start..piece.start + piece.size).step_by(8) {
                let Some(target) = memory.word(at).filter(|word| *word != 0) else {
                    continue;
                };
                let check = Check::equal(at, target);
                match self.structure_at(target, memory) {
                    Some(piece) if depth < DEEPEST && parts.len() < MOST && is_new(target) => {
                        let from = Some((next, check));
                        parts.push(Part { piece, from });
                    }
                    Some(_) => {}
                    None if !self.is_in_memory(target) => {}
                    None => {
                        checks.push(check);
                        visit(&Reference {
                            target,
                            label,
                            cost: cost::UNTYPED + (1 + depth as u32) * cost::BLOCK,
                            checks: &checks,
                        });
                        checks.pop();
                    }
                }
            }
            next += 1;
        }
    }

    /// Whether an address lies in a pool or a block.
    fn is_in_memory(&self, address: u64) -> bool {
        self.numbers.is_in_pool(address) || self.blocks.containing(address).is_some()
    }

    /// The piece that begins at an address, if it is in use and not for an object.
    fn structure_at(&self, address: u64, memory: &dyn Memory) -> Option<Piece> {
        let python = self.python.filter(|_| self.numbers.is_in_pool(address))?;
        if self.numbers.get(address).is_some() {
            return None;
        }
        let piece = Piece::at(python.minor(), memory, address)?;
        let is_structure = piece.start == address
            && self.object_from(address, piece.size, memory).is_none()
            && !python.had_object(memory, address)
            && !piece.is_free(memory);
        is_structure.then_some(piece)
    }
}

/// The words that lead to a part, after those that lead to the first one.
fn path(parts: &[Part], mut part: usize, first: &[Check]) -> Vec<Check> {
    let mut checks = Vec::new();
    while let Some((from, check)) = parts[part].from {
        checks.push(check);
        part = from;
    }
    checks.extend(first.iter().rev());
    checks.reverse();
    checks
}
