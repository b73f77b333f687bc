//! Unwind rows: those that were found before (see `memtrace_common::row_cache`), and the search for one.

use memtrace_common::{
    row_cache::{CachedRow, FoundRow, Key},
    unwind::{End, Rule, Word, cfa, fp},
    unwind_table::{BLOCK, RowSearch, exec_state},
};

use crate::{
    arch::keep_order_of_reads,
    maps::{EXECS, HOT_ROWS, KNOWN_ROWS, ROWS, RULES},
};

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

/// The row of an address in the list of mappings number `list`, if it is kept.
#[inline(always)]
pub(crate) fn known(list: u64, pc: u64) -> Option<FoundRow> {
    let key = Key::new(list, pc);
    let own = HOT_ROWS.get_ptr_mut(0)?;
    // SAFETY: live map values.
    unsafe {
        let hot = &raw mut (*own)[key.hot_place()];
        if let Some(row) = read(hot).row(key) {
            return Some(row);
        }
        let known = read(KNOWN_ROWS.get_ptr(key.place())?);
        let row = known.row(key)?;
        write(hot, known);
        Some(row)
    }
}

/// Keeps a row.
#[inline(always)]
pub(crate) fn remember(list: u64, pc: u64, row: FoundRow) {
    let key = Key::new(list, pc);
    if let Some(place) = KNOWN_ROWS.get_ptr_mut(key.place()) {
        // SAFETY: a live map value.
        unsafe { write(place, CachedRow::new(key, row)) };
    }
}

/// # Safety
/// `place` is that of a live map value.
#[inline(always)]
unsafe fn read(place: *const CachedRow) -> CachedRow {
    // SAFETY: the caller's promise; volatile, because another CPU may be writing it.
    unsafe {
        CachedRow {
            check: core::ptr::read_volatile(&raw const (*place).check),
            word: core::ptr::read_volatile(&raw const (*place).word),
            rule: core::ptr::read_volatile(&raw const (*place).rule),
        }
    }
}

/// # Safety
/// `place` is that of a live map value.
#[inline(always)]
unsafe fn write(place: *mut CachedRow, known: CachedRow) {
    // SAFETY: the caller's promise; readers check the contents.
    unsafe {
        core::ptr::write_volatile(&raw mut (*place).check, known.check);
        core::ptr::write_volatile(&raw mut (*place).word, known.word);
        core::ptr::write_volatile(&raw mut (*place).rule, known.rule);
    }
}

/// The rule of an address in a file; see `memtrace_common::unwind_table::Exec` for the format.
///
/// # Errors
/// The file's table is not loaded (yet).
#[inline(always)]
pub(crate) fn find(word: u64) -> Result<Rule, End> {
    let (number, vaddr) = Word::in_file(word);
    let exec = EXECS.get(number).ok_or(End::NoTable)?;
    // In this order: the collector writes the state last.
    // SAFETY: references are valid to read.
    let state = unsafe { core::ptr::read_volatile(&raw const exec.state) };
    keep_order_of_reads();
    // SAFETY: as above.
    let [first_page, pages] = unsafe {
        [
            core::ptr::read_volatile(&raw const exec.first_page),
            core::ptr::read_volatile(&raw const exec.pages),
        ]
    };
    match state {
        exec_state::NOT_LOADED => return Err(End::NoTable),
        exec_state::NO_TABLES => return Ok(FRAME_POINTER),
        _ => {}
    }
    let page = ((vaddr >> 16) as u32).wrapping_sub(first_page);
    if page >= pages {
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
