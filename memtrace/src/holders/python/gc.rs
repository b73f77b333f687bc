//! The objects that the collector tracks, reachable or not: its lists (Modules/gcmodule.c, Python/gc.c).

use super::{
    super::memory::{Circle, Memory},
    Python,
    roots::interpreters,
    words::{Words, is_pointer},
};

/// In `_gc_runtime_state`: heads of the lists of three generations; then the head of the objects
/// set aside by `gc.freeze`.
const GENERATIONS: [u64; 3] = [24, 48, 72];
const PERMANENT: u64 = 104;
const PERMANENT_3_14: u64 = 96;

/// Bytes of `PyGC_Head`, which is before the object.
const HEAD: u64 = 16;
/// The lowest bits of a link are marks of the collector.
const LINK: u64 = !3;

impl Python {
    /// Visits each tracked object. A list that changes meanwhile may end early, or lead to addresses without objects.
    pub(in super::super) fn tracked(&self, memory: &dyn Memory, visit: &mut dyn FnMut(u64)) {
        let words = &mut Words::new(memory);
        let permanent = if self.layout.minor >= 14 {
            PERMANENT_3_14
        } else {
            PERMANENT
        };
        for interpreter in interpreters(&self.at, words) {
            for head in GENERATIONS.into_iter().chain([permanent]) {
                self.list(words, interpreter + self.layout.gc + head, visit);
            }
        }
    }

    fn list(&self, words: &mut Words<'_>, head: u64, visit: &mut dyn FnMut(u64)) -> Option<()> {
        let mut link = words.at(head)? & LINK;
        let mut circle = Circle::default();
        while is_pointer(link) && link != head && !circle.closes(link) {
            visit(link + HEAD);
            link = words.at(link)? & LINK;
        }
        Some(())
    }
}
