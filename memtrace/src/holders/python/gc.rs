//! The objects that the collector tracks, reachable or not: its lists (Modules/gcmodule.c, Python/gc.c).

use super::{
    super::{
        memory::{Circle, Memory},
        reference::{Label, Visit, cost},
    },
    Python,
    dict::Keys,
    layout::{OB_TYPE, flag},
    roots::interpreters,
    words::{Words, is_pointer},
};

/// In `_gc_runtime_state`: whether the collector runs by itself.
const ENABLED: u64 = 12;

/// In `_gc_runtime_state`: the lists of three generations, 24 bytes each; then the head of the objects set aside by
/// `gc.freeze`.
const GENERATIONS: u64 = 24;
const GENERATION: u64 = 24;
const PERMANENT: u64 = 104;
const PERMANENT_3_14: u64 = 96;
/// Up to 3.13, `generation0`: the address of the first list. Debian 13 aligns the lists to 4 bytes only.
const FIRST: u64 = 96;
const LOWEST: u64 = 20;

/// Bytes of `PyGC_Head`, which is before the object.
const HEAD: u64 = 16;
/// The lowest bits of a link are marks of the collector.
const LINK: u64 = !3;

impl Python {
    /// Visits each tracked object, and whether `gc.freeze` has set it aside. A list that changes meanwhile may end early,
    /// or lead to addresses without objects.
    pub(in super::super) fn tracked(&self, memory: &dyn Memory, visit: &mut dyn FnMut(u64, bool)) {
        let words = &mut Words::new(memory);
        for interpreter in interpreters(&self.at, words) {
            let state = interpreter + self.layout.gc;
            let usual = state + GENERATIONS;
            let (first, permanent) = match self.layout.minor {
                14.. => (usual, PERMANENT_3_14),
                _ => {
                    let first = words.at(state + FIRST);
                    let first = first.filter(|first| (state + LOWEST..=usual).contains(first));
                    (first.unwrap_or(usual), PERMANENT)
                }
            };
            let generations = (0..3).map(|number| first + number * GENERATION);
            for head in generations {
                self.list(words, head, &mut |object| visit(object, false));
            }
            self.list(words, state + permanent, &mut |object| visit(object, true));
        }
    }

    /// Whether the collector runs by itself, in any of the interpreters.
    pub(in super::super) fn is_collecting(&self, memory: &dyn Memory) -> bool {
        let words = &mut Words::new(memory);
        let states = interpreters(&self.at, words).into_iter();
        let mut states = states.map(|interpreter| interpreter + self.layout.gc);
        states.any(|state| memory.half(state + ENABLED) != Some(0))
    }

    /// Whether the object at an address is of a type that the collector sees into.
    pub(in super::super) fn is_collected(&self, memory: &dyn Memory, address: u64) -> bool {
        let ty = self.types.of(memory, address);
        ty.is_some_and(|ty| ty.flags & flag::HAVE_GC != 0)
    }

    /// Whether the memory from `start` had an object that is freed. The interpreter keeps some as they were, for the next
    /// of their type.
    pub(in super::super) fn had_object(&self, memory: &dyn Memory, start: u64) -> bool {
        // It has no link of the collector's.
        if memory.word(start) != Some(0) {
            return false;
        }
        let object = start + HEAD;
        let of_type = memory.word(object + OB_TYPE);
        let of_type = of_type.and_then(|of_type| self.types.get(memory, of_type));
        of_type.is_some_and(|ty| ty.flags & flag::HAVE_GC != 0)
            && self.types.of(memory, object).is_none()
    }

    /// The same of the table of a dict. Only the smallest are kept.
    pub(in super::super) fn had_table(&self, memory: &dyn Memory, start: u64) -> bool {
        const SMALLEST: u64 = 8;
        let words = &mut Words::new(memory);
        let has_no_references = words.at(start) == Some(0);
        let table = Keys::read(&self.layout, words, start).filter(|_| has_no_references);
        table.is_some_and(|table| table.size == SMALLEST && table.count > 0)
    }

    /// Its reference count; `None` if it is immortal (since 3.12).
    pub(in super::super) fn reference_count(
        &self,
        memory: &dyn Memory,
        object: u64,
    ) -> Option<u64> {
        let word = memory.word(object)?;
        match self.layout.minor {
            ..12 => Some(word),
            _ if (word as u32).cast_signed() < 0 => None,
            _ => Some(word & 0xffff_ffff),
        }
    }

    /// The references of an object that the collector follows and counts: those that its type describes. There are none
    /// in a type that it cannot see into.
    pub(in super::super) fn references_seen(
        &self,
        memory: &dyn Memory,
        object: u64,
        visit: &mut Visit<'_>,
    ) {
        if !self.is_collected(memory, object) {
            return;
        }
        self.references(memory, object, &mut |reference| {
            let is_described = reference.cost <= cost::INCIDENTAL;
            // Since 3.14 a frame may borrow: the lowest bit says so.
            let is_borrowed = || {
                let slot = reference.checks.last();
                slot.is_some_and(|slot| {
                    slot.mask != !0 && memory.word(slot.address).is_some_and(|word| word & 1 != 0)
                })
            };
            if is_described && reference.label != Label::Buffer && !is_borrowed() {
                visit(reference);
            }
        });
    }

    fn list(&self, words: &mut Words<'_>, head: u64, visit: &mut dyn FnMut(u64)) -> Option<()> {
        // A head can be at any multiple of 4.
        let mut link = words.memory().word(head)? & LINK;
        let mut circle = Circle::default();
        while is_pointer(link) && link != head && !circle.closes(link) {
            visit(link + HEAD);
            link = words.at(link)? & LINK;
        }
        Some(())
    }
}
