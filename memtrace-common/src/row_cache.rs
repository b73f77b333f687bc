//! Results of earlier walks by address, kept by the kernel side.
//!
//! Programs allocate at the same places again and again, and each frame takes the searches for a mapping and a row of
//! its table. Their results are kept in tables of places, chosen by list of mappings
//! ([`crate::code_map::Snapshot::list`]) and address; a newer find takes an older one's place. Any CPU reads and writes
//! it at any time without a lock: an entry has a check over its contents, so a half-written entry, or that of another
//! address, is not found.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    hash::{SEED, mix},
    unwind::Rule,
};

/// The known facts about an address of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct FoundRow {
    /// The frame: see [`crate::unwind::Word`].
    pub word: u64,
    /// How to find its caller.
    pub rule: Rule,
}

/// Places; a power of two.
pub const PLACES: u32 = 1 << 16;

/// Places of a CPU's own table, which is searched first; a power of two. A value of a map per CPU has 32 KiB at most
/// (PCPU_MIN_UNIT_SIZE, include/linux/percpu.h).
pub const HOT_PLACES: usize = 1 << 10;

/// Value of the KNOWN_ROWS and HOT_ROWS maps. Of eight-byte words only, each read and written by itself.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct CachedRow {
    pub check: u64,
    pub word: u64,
    pub rule: u64,
}

/// Stands for an address in a list of mappings.
#[derive(Clone, Copy, Debug)]
pub struct Key(u64);

impl Key {
    #[inline(always)]
    pub const fn new(list: u64, pc: u64) -> Self {
        Self(mix(mix(SEED, list), pc))
    }

    /// Where it is kept, below [`PLACES`].
    #[inline(always)]
    pub const fn place(self) -> u32 {
        self.0 as u32 & (PLACES - 1)
    }

    /// Where it is kept below [`HOT_PLACES`].
    #[inline(always)]
    pub const fn hot_place(self) -> usize {
        self.0 as usize & (HOT_PLACES - 1)
    }

    #[inline(always)]
    const fn check(self, word: u64, rule: u64) -> u64 {
        // Odd, unlike an entry that was never written.
        mix(mix(self.0, word), rule) | 1
    }
}

impl CachedRow {
    #[inline(always)]
    pub const fn new(key: Key, row: FoundRow) -> Self {
        // SAFETY: eight bytes of integers without padding.
        let rule = unsafe { core::mem::transmute::<Rule, u64>(row.rule) };
        Self {
            check: key.check(row.word, rule),
            word: row.word,
            rule,
        }
    }

    /// The row, if it is that of `key`.
    #[inline(always)]
    pub fn row(self, key: Key) -> Option<FoundRow> {
        (self.check == key.check(self.word, self.rule)).then(|| FoundRow {
            word: self.word,
            // SAFETY: integers without padding; all values are valid.
            rule: unsafe { core::mem::transmute::<u64, Rule>(self.rule) },
        })
    }
}

const _: () = assert!(PLACES.is_power_of_two());
const _: () = assert!(HOT_PLACES.is_power_of_two());
const _: () = assert!(HOT_PLACES * size_of::<CachedRow>() <= 32 << 10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::{Word, cfa, fp};

    fn row(vaddr: u64, cfa_offset: i32) -> FoundRow {
        FoundRow {
            word: Word::file(3, vaddr),
            rule: Rule {
                cfa: cfa::SP,
                fp: fp::AT_CFA,
                fp_offset: -16,
                cfa_offset,
            },
        }
    }

    #[test]
    fn a_row_is_found_by_its_own_list_and_address_only() {
        let known = CachedRow::new(Key::new(7, 0x7f00_1000), row(0x1000, 32));
        assert_eq!(known.row(Key::new(7, 0x7f00_1000)), Some(row(0x1000, 32)));
        for (list, pc) in [(6, 0x7f00_1000), (7, 0x7f00_1001), (6, 0x7f00_1001)] {
            assert_eq!(known.row(Key::new(list, pc)), None);
        }
    }

    #[test]
    fn unwritten_places_have_no_rows() {
        assert_eq!(CachedRow::default().row(Key::new(0, 0)), None);
        assert_eq!(CachedRow::default().row(Key::new(7, 0x7f00_1000)), None);
    }

    /// Two CPUs that write one place may leave words of both.
    #[test]
    fn rows_mixed_by_two_writers_are_not_found() {
        let (a, b) = (Key::new(7, 0x7f00_1000), Key::new(9, 0x7f00_2040));
        let (of_a, of_b) = (
            CachedRow::new(a, row(0x1000, 32)),
            CachedRow::new(b, row(0x2040, 48)),
        );
        let choose = |bit: u32, from_a: u64, from_b: u64| if bit == 0 { from_a } else { from_b };
        let mut mixtures = 0;
        for bits in 0..8u32 {
            let mixed = CachedRow {
                check: choose(bits & 1, of_a.check, of_b.check),
                word: choose(bits & 2, of_a.word, of_b.word),
                rule: choose(bits & 4, of_a.rule, of_b.rule),
            };
            if mixed != of_a && mixed != of_b {
                mixtures += 1;
                assert_eq!((mixed.row(a), mixed.row(b)), (None, None), "{mixed:?}");
            }
        }
        assert_eq!(mixtures, 6);
    }
}
