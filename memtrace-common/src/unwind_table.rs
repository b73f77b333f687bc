//! The table of a file as the kernel side walks with it, and the search in it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Words of one block of rows: the value of a file's inner map.
pub const BLOCK: usize = 256;

/// Value of the EXECS map: how to find the callers of a file's code.
///
/// Its rows are an array of blocks of words: a directory (for each 64 KiB page of the file's addresses from
/// `first_page` on, the index of its first row, and one past the last page's),
/// then the rows: `address & 0xffff` in the upper half, the rule's index in
/// RULES in the lower. Each page's first row is at 0, so every address has one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Exec {
    /// An [`exec_state`].
    pub state: u32,
    pub first_page: u32,
    pub pages: u32,
    pub pad: u32,
}

/// Values of [`Exec::state`].
pub mod exec_state {
    /// Its tables are not loaded (yet).
    pub const NOT_LOADED: u32 = 0;
    /// Its rows are in the ROWS map.
    pub const ROWS: u32 = 1;
    /// It has no tables: frame pointers.
    pub const NO_TABLES: u32 = 2;
}

/// The search for a row of a page: the last one at or below an address. Both sides
/// step it, each with its own way to a word, until [`RowSearch::narrow`] says so.
#[derive(Clone, Copy, Debug)]
pub struct RowSearch {
    first: u32,
    count: u32,
    wanted: u32,
    /// The last row known to be at or below.
    found: u32,
}

impl RowSearch {
    /// Steps at most: there can be 65,536 rows in a page.
    pub const STEPS: usize = 17;

    /// Among the rows from index `first` to before `end`, of the page that holds `vaddr`.
    #[inline(always)]
    pub fn new(first: u32, end: u32, vaddr: u64) -> Self {
        Self {
            first,
            count: end.wrapping_sub(first),
            wanted: vaddr as u32 & 0xffff,
            found: 0,
        }
    }

    /// Index of the row that [`RowSearch::narrow`] needs next.
    #[inline(always)]
    pub fn probe(&self) -> u32 {
        self.first.wrapping_add(self.count >> 1)
    }

    /// Halves the search range by the row at [`RowSearch::probe`]; true: that was the last.
    #[inline(always)]
    pub fn narrow(&mut self, row: u32) -> bool {
        let probe = self.probe();
        let half = self.count >> 1;
        // VERIFIER: masks instead of branches, which would double the states at each step.
        let before = ((i64::from(self.wanted) - i64::from(row >> 16)) >> 63) as u32;
        self.first = self.first & before | probe & !before;
        self.found = self.found & before | row & !before;
        self.count -= half;
        half == 0
    }

    /// Index of the rule, once the search is over.
    #[inline(always)]
    pub fn rule(&self) -> u32 {
        self.found & 0xffff
    }
}

/// Rules that all files together may have, limited by a row's 16 bits.
pub const RULES: u32 = 1 << 16;

const _: () = assert!(BLOCK.is_power_of_two());
