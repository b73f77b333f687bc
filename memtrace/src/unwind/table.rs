//! The table of one file, laid out as the kernel side reads it.

use memtrace_common::{
    unwind::{Rule, cfa, fp},
    unwind_table::{BLOCK, Exec, RULES},
};

/// Pages that a table may span: 4 GiB of code.
pub(super) const MAX_PAGES: u64 = 1 << 16;

/// Rules for the addresses of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub exec: Exec,
    /// By the ids in the rows; at most 65,536.
    pub rules: Vec<Rule>,
    /// Directory and rows as described at [`Exec`], padded with zeros to whole blocks.
    /// The directory's indices are those of words.
    pub words: Vec<u32>,
}

impl Table {
    /// A table of parts that come from elsewhere; `None` unless every lookup in it will end
    /// within its words and rules.
    pub(super) fn checked(exec: Exec, rules: Vec<Rule>, words: Vec<u32>) -> Option<Table> {
        let pages = usize::try_from(exec.pages).ok()?;
        let known = rules.iter().all(|rule| {
            (rule.cfa <= cfa::UNSUPPORTED || rule.cfa == cfa::EXTRA)
                && rule.fp & fp::MASK <= fp::AT_FP
        });
        if exec.pages == 0
            || u64::from(exec.pages) > MAX_PAGES
            || exec.first_page.checked_add(exec.pages).is_none()
            || rules.len() > RULES as usize
            || !known
            || !words.len().is_multiple_of(BLOCK)
        {
            return None;
        }
        let directory = words.get(..=pages)?;
        let mut at = pages + 1;
        for page in directory.windows(2) {
            let &[start, end] = page else { return None };
            let rows = words.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
            let sorted = rows.is_sorted_by(|a, b| a >> 16 < b >> 16);
            let in_range = |row: &u32| ((row & 0xffff) as usize) < rules.len();
            if start as usize != at
                || rows.first()? >> 16 != 0
                || !sorted
                || !rows.iter().all(in_range)
            {
                return None;
            }
            at = end as usize;
        }
        (words.len() - at < BLOCK).then_some(Table { exec, rules, words })
    }
}
