//! Names of generated code from the map that its runtime writes (Linux,
//! tools/perf/Documentation/jit-interface.txt): `/tmp/perf-PID.map`, a line
//! `START SIZE NAME` for each function, both numbers hexadecimal.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, sync::Arc};

use super::demangle::bounded;
use crate::{
    file::BUDGET,
    frames::{Cause, Frame},
};

/// Most memory that the functions of a map may take, bytes.
const MOST_MEMORY: usize = BUDGET as usize / 2;

/// Most that is read of a map, bytes.
const MOST_READ: u64 = BUDGET;

/// Memory of a function beside its name, bytes: its place in the tree, and overhead of the allocator.
const ENTRY: usize = 96;

/// Bytes that are read at once; no line is longer.
const BLOCK: usize = 256 << 10;

/// The map of one process.
pub(crate) struct PerfMap {
    /// As the process sees it.
    path: String,
    file: File,
    /// Bytes of whole lines taken in so far.
    read: u64,
    /// In a line that is longer than a block.
    is_in_long_line: bool,
    functions: Functions,
}

impl PerfMap {
    /// Reads the map that its process sees as `path`.
    pub(crate) fn new(path: String, file: File) -> Self {
        let mut map = Self {
            path,
            file,
            read: 0,
            is_in_long_line: false,
            functions: Functions::default(),
        };
        map.read_on();
        map
    }

    /// Reads on in the map as it is now. True if something was new.
    pub(crate) fn update(&mut self, file: File, was_rewritten: bool) -> bool {
        self.file = file;
        if was_rewritten {
            self.functions = Functions::default();
            self.read = 0;
            self.is_in_long_line = false;
        }
        let before = self.read;
        self.read_on();
        self.read != before
    }

    /// The frame of generated code at an absolute address (of a return address, the address minus one).
    pub(crate) fn frame(&self, abs_addr: u64) -> Frame {
        match self.functions.find(abs_addr) {
            Some(name) => Frame {
                function: Some(bounded(&name).into_owned()),
                // As perf names it.
                module: Some(self.path.clone()),
                unresolved: None,
                ..Frame::unknown(abs_addr, Cause::NoPerfMap)
            },
            None if self.is_cut() => Frame::unknown(abs_addr, Cause::NamesBudget),
            None => Frame::unknown(abs_addr, Cause::NotInPerfMap(self.path.as_str().into())),
        }
    }

    /// Whether functions were left out because the map is too large.
    pub(crate) fn is_cut(&self) -> bool {
        self.functions.memory >= MOST_MEMORY || self.read >= MOST_READ
    }

    /// Takes in the whole lines that were not yet read.
    fn read_on(&mut self) {
        let mut block = vec![0; BLOCK];
        while !self.is_cut() {
            let bytes = match self.file.read_at(&mut block, self.read) {
                Ok(len) => block.get(..len).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let end = bytes.iter().rposition(|byte| *byte == b'\n');
            let whole = end.and_then(|end| bytes.get(..=end)).unwrap_or_default();
            if whole.is_empty() && bytes.len() < BLOCK {
                // The end, or the runtime is in the middle of a line.
                return;
            }
            let mut lines = whole.split(|byte| *byte == b'\n');
            if self.is_in_long_line {
                lines.next();
            }
            self.functions.add(lines);
            self.is_in_long_line = whole.is_empty();
            let taken = if whole.is_empty() { bytes } else { whole };
            self.read += taken.len() as u64;
        }
    }
}

/// Functions, which do not overlap.
#[derive(Default)]
struct Functions {
    /// By first address: (one past the last, name).
    by_start: BTreeMap<u64, (u64, Arc<str>)>,
    /// Bytes, at most.
    memory: usize,
}

impl Functions {
    fn find(&self, abs_addr: u64) -> Option<Arc<str>> {
        let (_, (end, name)) = self.by_start.range(..=abs_addr).next_back()?;
        (abs_addr < *end).then(|| Arc::clone(name))
    }

    /// Adds lines of a map, as long as there is room; malformed ones are skipped.
    fn add<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>) {
        for (start, end, name) in lines.filter_map(parse) {
            if self.memory >= MOST_MEMORY {
                return;
            }
            self.insert(start, end, name);
        }
    }

    /// Newer entries replace those they overlap: code memory is reused.
    fn insert(&mut self, start: u64, end: u64, name: Arc<str>) {
        let overlapped: Vec<u64> = self
            .by_start
            .range(..end)
            .rev()
            .take_while(|(_, (old_end, _))| *old_end > start)
            .map(|(old_start, _)| *old_start)
            .collect();
        for old_start in overlapped {
            let Some((old_end, old_name)) = self.by_start.remove(&old_start) else {
                continue;
            };
            self.memory -= ENTRY + old_name.len();
            if old_end > end {
                self.put(end, old_end, Arc::clone(&old_name));
            }
            if old_start < start {
                self.put(old_start, start, old_name);
            }
        }
        self.put(start, end, name);
    }

    fn put(&mut self, start: u64, end: u64, name: Arc<str>) {
        self.memory += ENTRY + name.len();
        self.by_start.insert(start, (end, name));
    }
}

/// First address, one past the last, name.
fn parse(line: &[u8]) -> Option<(u64, u64, Arc<str>)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(3, ' ');
    let start = hex(fields.next()?)?;
    let size = hex(fields.next()?)?;
    let name = fields.next()?.trim();
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then(|| (start, end, name.into()))
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests;
