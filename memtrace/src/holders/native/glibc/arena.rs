//! The allocator's arenas (`malloc_state`). Stripped files have no symbol for the main one, but its bins cannot be
//! mistaken: an empty one points to itself.

use crate::holders::{memory::Memory, native::Modules};

/// Words of all bins: two each.
const BINS: u64 = 254;

/// Bytes from the bins to the list of arenas: the bins and the map of those in use.
const TO_NEXT: u64 = BINS * 8 + 16;

/// Bytes of the fields after that: next, next_free, attached_threads, system_mem, max_system_mem.
const AFTER: u64 = 40;

/// From the beginning of an arena to its bins: 2.27 and later, 2.26, and without fast bins.
const TO_BINS: [u64; 4] = [112, 104, 32, 24];

/// Empty bins that an arena has at least.
const EMPTY: usize = 16;

/// More arenas than any process has.
const MAX_ARENAS: usize = 4 << 10;

/// Most of a file's variables that is searched, bytes.
const MAX_VARIABLES: u64 = 4 << 20;

/// How this version of the library lays an arena out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    to_bins: u64,
}

impl Layout {
    /// Bytes of an arena.
    pub(super) fn size(self) -> u64 {
        self.to_bins + TO_NEXT + AFTER
    }

    /// Address of the fast bins, ten words; `None`: there are none.
    pub(super) fn fast_bins(self, arena: &Arena) -> Option<u64> {
        // Before the bins come the top and the last remainder.
        (self.to_bins >= 104).then(|| arena.start + self.to_bins - 96)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arena {
    pub(super) start: u64,
}

/// Bytes of `struct malloc_state`, which is as large or a little larger in all versions.
pub(super) const SIZE: u64 = 0x898;

/// The arenas of a process, the main one first. `None`: it does not use this allocator.
pub(super) fn find(
    memory: &(impl Memory + ?Sized),
    modules: &Modules,
) -> Option<(Layout, Vec<Arena>)> {
    let is_library = |name: &str| name.starts_with("libc.so") || name.starts_with("libc-2");
    // A static program contains the library.
    let has_library = modules.iter().any(|module| is_library(&module.name));
    let searched = modules
        .iter()
        .filter(|module| !has_library || is_library(&module.name));
    searched
        .flat_map(|module| &module.writable)
        .find_map(|range| {
            let len = (range.end - range.start).min(MAX_VARIABLES);
            let mut bytes = vec![0; len as usize];
            memory.read(range.start, &mut bytes).then_some(())?;
            search(memory, range.start, &bytes)
        })
}

/// Searches variables for the main arena.
pub(super) fn search(
    memory: &(impl Memory + ?Sized),
    start: u64,
    bytes: &[u8],
) -> Option<(Layout, Vec<Arena>)> {
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    // A bin is a pair of words in the place of a chunk's links, 16 bytes from where the chunk would begin.
    let is_empty = |index: usize| {
        let address = start + 8 * index as u64;
        words.get(index..index + 2) == Some(&[address.wrapping_sub(16); 2])
    };
    let first = (0..words.len()).find(|&index| is_empty(index))?;
    // The first empty one is among the bins, which begin at most as many words before.
    let earliest = first.saturating_sub(BINS as usize);
    (earliest..=first).find_map(|bins| {
        let empty = (0..BINS as usize / 2).filter(|bin| is_empty(bins + 2 * bin));
        if empty.count() < EMPTY {
            return None;
        }
        let bins = start + 8 * bins as u64;
        TO_BINS.iter().find_map(|&to_bins| {
            let layout = Layout { to_bins };
            let arenas = ring(memory, layout, bins.checked_sub(to_bins)?)?;
            Some((layout, arenas))
        })
    })
}

/// All arenas: their list leads back to the first.
fn ring(memory: &(impl Memory + ?Sized), layout: Layout, main: u64) -> Option<Vec<Arena>> {
    let mut arenas = Vec::new();
    let mut start = main;
    while arenas.len() < MAX_ARENAS {
        arenas.push(Arena { start });
        start = memory.word(start.checked_add(layout.to_bins + TO_NEXT)?)?;
        if start == main {
            return Some(arenas);
        }
        if start == 0 || !start.is_multiple_of(8) {
            return None;
        }
    }
    None
}
