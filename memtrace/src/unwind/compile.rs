//! Call frame information → [`Table`].

use super::{
    CompileError, Table,
    contexts::Contexts,
    image::{Cfi, Image, Slice},
    rules::{NO_ROW, STOP, UNSUPPORTED, rule},
    writer::Writer,
};
use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, FrameDescriptionEntry, UnwindContext,
    UnwindOffset, UnwindSection,
};
use memtrace_common::unwind::Rule;
use object::ReadRef;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, hash_map::Entry},
};

/// Longest code without call frame information that counts as the entry point's, bytes.
const MAX_ENTRY: u64 = 64;

/// Longest common information entry that is read, bytes: it is run again for each function.
const MAX_CIE: usize = 1 << 12;

/// Most entries that are kept parsed, functions of a file, and rows of functions that overlap: a file may be made to
/// take all memory. The largest programs have a million functions, and functions have at most some thousand rows.
const MAX_CIES: usize = 1 << 14;
const MAX_FUNCTIONS: usize = 1 << 21;
const MAX_ROWS: usize = 1 << 18;

impl Table {
    /// Compiles the `.eh_frame` of an ELF image, otherwise its `.debug_frame`. `None` if it has
    /// neither, or they describe no code.
    ///
    /// # Errors
    /// If it is not an ELF file for x86-64, or spans too much. Damaged call frame information is
    /// not an error: it describes less code.
    pub(crate) fn compile<'data>(data: impl ReadRef<'data>) -> Result<Option<Table>, CompileError> {
        let Some(image) = Image::parse(data)? else {
            return Ok(None);
        };
        let contexts = Contexts::of(data);
        match &image.cfi {
            Cfi::Eh(section) => Compiler::new(section, &image.bases).table(&image, &contexts),
            Cfi::Debug(section) => Compiler::new(section, &image.bases).table(&image, &contexts),
        }
    }
}

/// A range of code. Addresses as the file means them.
#[derive(Clone, Copy)]
struct Function {
    start: u64,
    end: u64,
    /// Offset in its section of the frame description entry (FDE); `None` at an undescribed end of
    /// a stack.
    fde: Option<usize>,
}

/// A range of code with one rule.
#[derive(Clone, Copy)]
struct RuleRange {
    start: u64,
    end: u64,
    rule: Rule,
    /// Offset of its FDE: if rows overlap, the lowest counts.
    order: usize,
}

struct Compiler<'a, 'data, S> {
    section: &'a S,
    bases: &'a BaseAddresses,
    /// Many FDEs share one common information entry. By offset.
    cies: HashMap<usize, CommonInformationEntry<Slice<'data>>>,
    context: UnwindContext<usize>,
}

impl<'a, 'data, S: UnwindSection<Slice<'data>>> Compiler<'a, 'data, S> {
    fn new(section: &'a S, bases: &'a BaseAddresses) -> Self {
        Compiler {
            section,
            bases,
            cies: HashMap::new(),
            context: UnwindContext::new(),
        }
    }

    fn table(
        mut self,
        image: &Image<'data>,
        contexts: &Contexts,
    ) -> Result<Option<Table>, CompileError> {
        let functions = self.functions(image, contexts);
        let (Some(first), Some(end)) = (
            functions.first().map(|function| function.start),
            functions.iter().map(|function| function.end).max(),
        ) else {
            return Ok(None);
        };
        let mut writer = Writer::new(first, end)?;
        let mut rows = Vec::new();
        let mut rest = functions.as_slice();
        while let Some(count) = overlapping(rest) {
            let (group, after) = rest.split_at(count);
            rows.clear();
            for function in group {
                self.rows(function, &mut rows);
            }
            if count > 1 {
                rows = first_of_each(rows);
            }
            for row in &rows {
                writer.row(row.start, row.rule);
            }
            rest = after;
            if let Some(last) = rows.last()
                && rest.first().is_none_or(|next| next.start > last.end)
            {
                writer.row(last.end, NO_ROW);
            }
        }
        Ok(Some(writer.finish()?))
    }

    /// The described code, by address, and undescribed ends of stacks.
    fn functions(&mut self, image: &Image<'data>, contexts: &Contexts) -> Vec<Function> {
        let mut functions = Vec::new();
        let mut entries = self.section.entries(self.bases);
        while functions.len() < MAX_FUNCTIONS {
            let partial = match entries.next() {
                Ok(Some(CieOrFde::Fde(partial))) => partial,
                Ok(Some(CieOrFde::Cie(_))) => continue,
                Ok(None) => break,
                // The beginning of the next entry cannot be trusted any more.
                Err(error) => {
                    tracing::debug!(%error, "call frame information ends early");
                    break;
                }
            };
            let offset = partial.offset();
            if let Ok(fde) = partial.parse(cached(&mut self.cies))
                && fde.cie().address_size() == 8
                && fde.cie().entry_len() <= MAX_CIE
                && fde.initial_address() < fde.end_address()
                && image.code_at(fde.initial_address()).is_some()
            {
                functions.push(Function {
                    start: fde.initial_address(),
                    end: fde.end_address(),
                    fde: Some(offset),
                });
            }
        }
        functions.sort_by_key(|function| (function.start, function.fde));
        if let Some((index, entry)) = entry_point(image, &functions) {
            functions.insert(index, entry);
        }
        for &end in &contexts.ends {
            if let Some((index, byte)) = context_end(image, &functions, end) {
                functions.insert(index, byte);
            }
        }
        if !functions.is_empty() {
            functions.extend(contexts.outermost.iter().map(|range| Function {
                start: range.start,
                end: range.end,
                fde: None,
            }));
            functions.sort_by_key(|function| (function.start, function.fde));
        }
        functions
    }

    /// Appends rows that cover `function`, by address.
    fn rows(&mut self, function: &Function, rows: &mut Vec<RuleRange>) {
        let mut row = RuleRange {
            start: function.start,
            end: function.end,
            rule: STOP,
            order: 0,
        };
        let Some(offset) = function.fde else {
            rows.push(row);
            return;
        };
        row.order = offset;
        if let Ok(fde) = self.fde(offset)
            && let Ok(mut table) = fde.rows(self.section, self.bases, &mut self.context)
        {
            while rows.len() < MAX_ROWS
                && let Ok(Some(next)) = table.next_row()
            {
                row.end = next.end_address().min(function.end);
                if row.start < row.end {
                    row.rule = rule(self.section, fde.cie(), next);
                    rows.push(row);
                    row.start = row.end;
                }
            }
        }
        if row.start < function.end {
            row.end = function.end;
            row.rule = UNSUPPORTED;
            rows.push(row);
        }
    }

    fn fde(&mut self, offset: usize) -> gimli::Result<FrameDescriptionEntry<Slice<'data>>> {
        self.section
            .fde_from_offset(self.bases, offset.into(), cached(&mut self.cies))
    }
}

/// Parses common information entries, each once.
fn cached<'c, 'data, S: UnwindSection<Slice<'data>>>(
    cies: &'c mut HashMap<usize, CommonInformationEntry<Slice<'data>>>,
) -> impl FnMut(&S, &BaseAddresses, S::Offset) -> gimli::Result<CommonInformationEntry<Slice<'data>>>
+ use<'c, 'data, S> {
    |section, bases, offset| {
        if cies.len() >= MAX_CIES {
            cies.clear();
        }
        match cies.entry(UnwindOffset::into(offset)) {
            Entry::Occupied(cie) => Ok(cie.get().clone()),
            Entry::Vacant(vacant) => {
                let cie = section.cie_from_offset(bases, offset)?;
                Ok(vacant.insert(cie).clone())
            }
        }
    }
}

/// The entry point, if nothing describes it, and its place among `functions`. Nothing calls it, but
/// in some C libraries (musl) and dynamic loaders it is assembler without a description.
fn entry_point(image: &Image<'_>, functions: &[Function]) -> Option<(usize, Function)> {
    let start = image.entry?;
    let segment = image.code_at(start)?;
    let index = undescribed(functions, start)?;
    let next = functions
        .get(index)
        .map_or(segment.end, |function| function.start);
    let entry = Function {
        start,
        end: next.min(segment.end).min(start.saturating_add(MAX_ENTRY)),
        fde: None,
    };
    Some((index, entry))
}

/// The byte before `end`, by which that return address is looked up, and its place among
/// `functions`; `None` if it is described. So only walks that would end there anyway, for lack of a
/// row, count as complete.
fn context_end(image: &Image<'_>, functions: &[Function], end: u64) -> Option<(usize, Function)> {
    image.code_at(end)?;
    let start = end.checked_sub(1)?;
    let byte = Function {
        start,
        end,
        fde: None,
    };
    Some((undescribed(functions, start)?, byte))
}

/// The place among `functions` of one that begins at `addr`; `None` if something describes that
/// address, or nothing describes any.
fn undescribed(functions: &[Function], addr: u64) -> Option<usize> {
    let index = functions.partition_point(|function| function.start <= addr);
    let described = functions[..index]
        .iter()
        .any(|function| addr < function.end);
    (!functions.is_empty() && !described).then_some(index)
}

/// Number of leading functions that overlap, each with the one before; `None` if there are none.
fn overlapping(functions: &[Function]) -> Option<usize> {
    let mut end = functions.first()?.end;
    let count = functions
        .iter()
        .take_while(|function| {
            let overlaps = function.start < end;
            end = end.max(function.end);
            overlaps
        })
        .count();
    Some(count)
}

/// Cuts rows that cover a range without gaps so that none overlap.
fn first_of_each(mut rows: Vec<RuleRange>) -> Vec<RuleRange> {
    rows.sort_by_key(|row| (row.start, row.order));
    let mut cut: Vec<RuleRange> = Vec::with_capacity(rows.len());
    let mut open = BinaryHeap::new();
    let Some(mut at) = rows.first().map(|row| row.start) else {
        return rows;
    };
    let mut next = 0;
    loop {
        while let Some(row) = rows.get(next).filter(|row| row.start <= at) {
            open.push(Reverse((row.order, next)));
            next += 1;
        }
        let Some(row) = open.peek().map(|Reverse((_, index))| rows[*index]) else {
            return cut;
        };
        if row.end <= at {
            open.pop();
            continue;
        }
        let end = rows
            .get(next)
            .map_or(row.end, |next| next.start.min(row.end));
        cut.push(RuleRange {
            start: at,
            end,
            ..row
        });
        at = end;
    }
}
