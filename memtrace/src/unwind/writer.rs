//! Lays rows out as a [`Table`].

use super::{
    CompileError, Table,
    rules::{NO_ROW, UNSUPPORTED},
    table::MAX_PAGES,
};
use memtrace_common::{
    unwind::Rule,
    unwind_table::{BLOCK, Exec, exec_state},
};
use std::collections::HashMap;

/// Most words of a table: the largest programs have some million rows.
const MAX_WORDS: usize = 1 << 25;

/// A table in the making.
pub(super) struct Writer {
    /// First address, and one past the last.
    start: u64,
    end: u64,
    first_page: u64,
    pages: u64,
    /// Pages whose first row is written.
    open: u64,
    /// Rule and number of the last row.
    current: (Rule, u16),
    rules: Vec<Rule>,
    ids: HashMap<Rule, u16>,
    words: Vec<u32>,
}

impl Writer {
    /// For code from `start` to before `end`; `start < end`.
    pub(super) fn new(start: u64, end: u64) -> Result<Writer, CompileError> {
        let first_page = start >> 16;
        let pages = ((end - 1) >> 16) - first_page + 1;
        if pages > MAX_PAGES || first_page + pages > u64::from(u32::MAX) {
            return Err(CompileError::TooLarge { start, end });
        }
        let mut writer = Writer {
            start,
            end,
            first_page,
            pages,
            open: 0,
            current: (NO_ROW, 0),
            rules: Vec::new(),
            ids: HashMap::new(),
            words: vec![0; pages as usize + 1],
        };
        // These two always have ids.
        writer.current.1 = writer.id(NO_ROW);
        writer.id(UNSUPPORTED);
        Ok(writer)
    }

    /// Sets the rule from `addr` on. Addresses increase.
    pub(super) fn row(&mut self, addr: u64, rule: Rule) {
        if rule == self.current.0 || self.words.len() >= MAX_WORDS {
            return;
        }
        let page = (addr >> 16) - self.first_page;
        if page >= self.pages {
            // The end of the last function and of its page.
            return;
        }
        self.open_pages(page + 1);
        let id = self.id(rule);
        self.current = (rule, id);
        let word = (addr as u32) << 16 | u32::from(id);
        match self.words.last_mut() {
            Some(first) if addr & 0xffff == 0 => *first = word,
            _ => self.words.push(word),
        }
    }

    fn open_pages(&mut self, count: u64) {
        while self.open < count {
            self.words[self.open as usize] = self.words.len() as u32;
            self.words.push(self.current.1.into());
            self.open += 1;
        }
    }

    /// Beyond the limit: the number of UNSUPPORTED.
    fn id(&mut self, rule: Rule) -> u16 {
        if let Some(id) = self.ids.get(&rule) {
            return *id;
        }
        match u16::try_from(self.rules.len()) {
            Ok(id) => {
                self.rules.push(rule);
                self.ids.insert(rule, id);
                id
            }
            Err(_) => self.ids.get(&UNSUPPORTED).copied().unwrap_or_default(),
        }
    }

    pub(super) fn finish(mut self) -> Result<Table, CompileError> {
        self.open_pages(self.pages);
        let too_large = || CompileError::TooLarge {
            start: self.start,
            end: self.end,
        };
        if self.words.len() >= MAX_WORDS {
            return Err(too_large());
        }
        let rows_end = u32::try_from(self.words.len()).map_err(|_| too_large())?;
        self.words[self.pages as usize] = rows_end;
        self.words
            .resize(self.words.len().next_multiple_of(BLOCK), 0);
        Ok(Table {
            exec: Exec {
                state: exec_state::ROWS,
                pad: 0,
                first_page: self.first_page as u32,
                pages: self.pages as u32,
            },
            rules: self.rules,
            words: self.words,
        })
    }
}
