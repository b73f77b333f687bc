//! Unwind rows of files' code: the search for one, and those that were found before.
//!
//! Programs allocate at the same places again and again, and the searches for a mapping and a row
//! are most of what a frame takes. What they found is kept in a table by address, in which a newer
//! find takes an older one's place. Any CPU reads and writes it at any time without a lock: a row
//! carries a check over all it says, and one that was half written by another is not found.

use memtrace_common::{
    code::{BLOCK, RowSearch, exec_state},
    hash::{SEED, mix},
    unwind::{End, Rule, Word, cfa, fp},
};

use crate::maps::{EXECS, KNOWN_ROWS, KNOWN_ROWS_COUNT, ROWS, RULES};

/// What is known of an address of code in a file.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// As a frame: `memtrace_common::unwind::Word::File`.
    pub(crate) word: u64,
    pub(crate) rule: Rule,
}

/// Value of the KNOWN_ROWS map: a [`Row`] and its check.
#[repr(C)]
pub(crate) struct Known {
    check: u64,
    word: u64,
    rule: u64,
}

/// Of code without tables.
pub(crate) const FRAME_POINTER: Rule = of(cfa::FRAME_POINTER);

/// Stands for one that is yet to be searched.
pub(crate) const SEARCH: Rule = of(u8::MAX);

const fn of(cfa: u8) -> Rule {
    Rule {
        cfa,
        fp: fp::SAME,
        fp_offset: 0,
        cfa_offset: 0,
    }
}

/// Of the address `pc` in the list of mappings number `list`.
#[inline(always)]
fn key(list: u64, pc: u64) -> u64 {
    mix(mix(SEED, list), pc)
}

#[inline(always)]
fn check(key: u64, word: u64, rule: u64) -> u64 {
    // Never that of an entry nobody has written.
    mix(mix(key, word), rule) | 1
}

#[inline(always)]
fn place(key: u64) -> Option<*mut Known> {
    KNOWN_ROWS.get_ptr_mut(key as u32 & (KNOWN_ROWS_COUNT - 1))
}

/// The row of an address, if it is kept.
#[inline(always)]
pub(crate) fn known(list: u64, pc: u64) -> Option<Row> {
    let key = key(list, pc);
    let known = place(key)?;
    // SAFETY: a live map value; volatile, for another CPU may be writing it.
    let [found, word, rule] = unsafe {
        [
            core::ptr::read_volatile(&raw const (*known).check),
            core::ptr::read_volatile(&raw const (*known).word),
            core::ptr::read_volatile(&raw const (*known).rule),
        ]
    };
    // SAFETY: eight bytes, of which all values are valid.
    let row = |rule| unsafe { core::mem::transmute::<u64, Rule>(rule) };
    (found == check(key, word, rule)).then(|| Row {
        word,
        rule: row(rule),
    })
}

/// Keeps a row.
#[inline(always)]
pub(crate) fn remember(list: u64, pc: u64, Row { word, rule }: Row) {
    let key = key(list, pc);
    // SAFETY: as above.
    let rule = unsafe { core::mem::transmute::<Rule, u64>(rule) };
    let Some(known) = place(key) else { return };
    // SAFETY: a live map value, of which readers check what they got.
    unsafe {
        core::ptr::write_volatile(&raw mut (*known).check, check(key, word, rule));
        core::ptr::write_volatile(&raw mut (*known).word, word);
        core::ptr::write_volatile(&raw mut (*known).rule, rule);
    }
}

/// The rule of an address in a file; see `memtrace_common::code::Exec` for the format.
///
/// # Errors
/// The file's table is not loaded (yet).
#[inline(always)]
pub(crate) fn find(word: u64) -> Result<Rule, End> {
    let (number, vaddr) = Word::in_file(word);
    let exec = EXECS.get(number).ok_or(End::NoTable)?;
    match exec.state {
        exec_state::NOT_LOADED => return Err(End::NoTable),
        exec_state::NO_TABLES => return Ok(FRAME_POINTER),
        _ => {}
    }
    let page = ((vaddr >> 16) as u32).wrapping_sub(exec.first_page);
    if vaddr >> 48 != 0 || page >= exec.pages {
        return Ok(Rule::default());
    }
    let rows = ROWS.get(number).ok_or(End::NoTable)?;
    let word = |index: u32| {
        let block = rows.get(index / BLOCK as u32)?;
        Some(block[index as usize & (BLOCK - 1)])
    };
    let first = word(page).ok_or(End::NoTable)?;
    let end = word(page + 1).ok_or(End::NoTable)?;
    let mut search = RowSearch::new(first, end, vaddr);
    for _ in 0..RowSearch::STEPS {
        let row = word(search.probe()).ok_or(End::NoTable)?;
        if search.narrow(row) {
            break;
        }
    }
    RULES.get(search.rule()).copied().ok_or(End::NoTable)
}
