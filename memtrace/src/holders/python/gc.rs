//! The objects that the collector tracks, reachable or not: its lists (Modules/gcmodule.c, Python/gc.c).

use super::{
    super::memory::{Circle, Memory},
    Python,
    roots::interpreters,
    words::{Words, is_pointer},
};

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
    /// Visits each tracked object. A list that changes meanwhile may end early, or lead to addresses without objects.
    pub(in super::super) fn tracked(&self, memory: &dyn Memory, visit: &mut dyn FnMut(u64)) {
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
            for head in generations.chain([state + permanent]) {
                self.list(words, head, visit);
            }
        }
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
