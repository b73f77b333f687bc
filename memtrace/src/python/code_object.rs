//! Code objects as the kernel side copied them.

use super::{Read, lines};
use crate::frames::{Frame, FrameKind};
use memtrace_common::python::{
    Code, FILENAME, Identity, Interpreter, LINETABLE, NAME, STR_HASH, Text, fingerprint,
};

/// Longest text that is fetched, characters, and longest line table, bytes.
const MAX_TEXT: usize = 1 << 16;
const MAX_LINETABLE: usize = 1 << 24;

/// In place of a text that could not be read.
const STALE: &str = "<stale>";
/// After a text that could be read in part.
const CUT: char = '…';

/// The parts of a code object that describe its frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeObject {
    pub filename: String,
    /// Qualified since 3.11.
    pub name: String,
    pub first_line: u32,
    /// As in the interpreter; only its beginning if the rest could not be read.
    pub linetable: Vec<u8>,
    /// The line table is only the beginning.
    pub is_cut: bool,
    /// 11 for Python 3.11.
    pub minor: u32,
}

impl CodeObject {
    /// Decodes a record: `areas` are the bytes that follow it. Parts that did not fit there are
    /// read from the process, and used only if the code object is unchanged afterwards; otherwise a
    /// text is its copied part and `…` (`<stale>` if nothing was copied), and the lines after that
    /// are unknown.
    pub(crate) fn decode(
        code: &Code,
        areas: &[u8],
        interpreter: &Interpreter,
        read: &Read<'_>,
    ) -> CodeObject {
        let parts = Parts::of(areas);
        let mut filename = text(&code.filename, parts.filename);
        let mut name = text(&code.name, parts.name);
        let wanted = code.linetable_len as usize;
        let mut linetable = parts.linetable[..wanted.min(parts.linetable.len())].to_vec();

        let rest = Rest { interpreter, read };
        let long_filename = filename.is_none().then(|| rest.text(&code.filename));
        let long_name = name.is_none().then(|| rest.text(&code.name));
        let long_linetable = (linetable.len() < wanted).then(|| rest.linetable(code));
        let fetched = long_filename.is_some() || long_name.is_some() || long_linetable.is_some();
        if fetched && rest.is_same(code) {
            filename = filename.or(long_filename.flatten());
            name = name.or(long_name.flatten());
            linetable = long_linetable.flatten().unwrap_or(linetable);
        }
        CodeObject {
            filename: filename.unwrap_or_else(|| cut(&code.filename, parts.filename)),
            name: name.unwrap_or_else(|| cut(&code.name, parts.name)),
            first_line: code.first_line,
            is_cut: linetable.len() < wanted,
            linetable,
            minor: interpreter.minor,
        }
    }

    /// The source line of an instruction, see [`lines::line`].
    pub(crate) fn line(&self, instruction: u32) -> Option<u32> {
        // The table of 3.9 has only the beginnings of lines: in a truncated one, the last line
        // would never end.
        let covered: u32 = self
            .linetable
            .chunks(2)
            .map(|pair| u32::from(pair[0]))
            .sum();
        if self.is_cut && self.minor == 9 && instruction >= covered {
            return None;
        }
        lines::line(self.minor, self.first_line, &self.linetable, instruction)
    }

    /// Whether a call that is at `instruction` is at this line or past it: an instruction of the line comes first.
    pub(crate) fn has_reached(&self, line: u32, instruction: u32) -> bool {
        lines::has_reached(
            self.minor,
            self.first_line,
            &self.linetable,
            line,
            instruction,
        )
    }

    #[cfg(test)]
    pub(crate) fn of(name: &str, filename: &str) -> CodeObject {
        CodeObject {
            filename: filename.into(),
            name: name.into(),
            first_line: 1,
            linetable: vec![],
            is_cut: false,
            minor: 11,
        }
    }

    /// A frame at a line of it.
    pub(crate) fn frame(&self, line: Option<u32>) -> Frame {
        Frame {
            kind: FrameKind::Python,
            function: Some(self.name.clone()),
            module: None,
            build_id: None,
            file_offset: None,
            file: Some(self.filename.clone()),
            line,
            inlined: false,
            is_packaged: false,
            unresolved: None,
        }
    }
}

/// The areas of a record; of a record that is too short, the part that exists.
struct Parts<'a> {
    filename: &'a [u8],
    name: &'a [u8],
    linetable: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(areas: &'a [u8]) -> Parts<'a> {
        let (filename, rest) = areas.split_at(FILENAME.min(areas.len()));
        let (name, rest) = rest.split_at(NAME.min(rest.len()));
        Parts {
            filename,
            name,
            linetable: &rest[..LINETABLE.min(rest.len())],
        }
    }
}

/// Bytes of a text; `None`: it could not be read.
fn size(text: &Text) -> Option<usize> {
    let width = usize::from(text.width);
    matches!(width, 1 | 2 | 4).then(|| (text.length as usize).saturating_mul(width))
}

/// A text that its area holds all of.
fn text(text: &Text, area: &[u8]) -> Option<String> {
    Some(characters(text.width, area.get(..size(text)?)?))
}

/// A text known only by its area.
fn cut(text: &Text, area: &[u8]) -> String {
    let Some(size) = size(text).filter(|_| !area.is_empty()) else {
        return STALE.into();
    };
    let mut known = characters(text.width, &area[..size.min(area.len())]);
    known.push(CUT);
    known
}

/// Characters of 1 byte (Latin-1), 2 or 4, in the machine's order. Halves of surrogate pairs, with
/// which Python keeps undecodable bytes of file names, become U+FFFD.
fn characters(width: u16, bytes: &[u8]) -> String {
    let character = |code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match width {
        1 => bytes.iter().copied().map(char::from).collect(),
        2 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&unit| character(u16::from_ne_bytes(unit).into()))
            .collect(),
        _ => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&unit| character(u32::from_ne_bytes(unit)))
            .collect(),
    }
}

/// Reads the rest from the process afterwards.
struct Rest<'a> {
    interpreter: &'a Interpreter,
    read: &'a Read<'a>,
}

impl Rest<'_> {
    fn text(&self, text: &Text) -> Option<String> {
        let data = if text.ascii == 1 {
            self.interpreter.str_ascii_data
        } else {
            self.interpreter.str_compact_data
        };
        let size = size(text).filter(|_| text.length as usize <= MAX_TEXT)?;
        let bytes = self.bytes(text.object, data, size)?;
        // Another string may have taken its place, while the freed code object is still readable.
        let length = self.bytes(text.object, self.interpreter.str_length, 4)?;
        let is_same = length == text.length.to_ne_bytes() && self.is_alive(text.object)?;
        is_same.then(|| characters(text.width, &bytes))
    }

    /// Whether an object has not been freed: allocators keep a pointer in the first word of free
    /// blocks, which is an object's reference count, and since 3.14 flags above bit 48.
    fn is_alive(&self, object: u64) -> Option<bool> {
        let count = self.word(object, 0)?;
        Some(count as u32 != 0 && count >> 32 & 0xffff == 0)
    }

    fn linetable(&self, code: &Code) -> Option<Vec<u8>> {
        let size = Some(code.linetable_len as usize).filter(|&size| size <= MAX_LINETABLE)?;
        self.bytes(code.linetable, self.interpreter.bytes_data, size)
    }

    /// Whether the code object is still the one of the record.
    fn is_same(&self, code: &Code) -> bool {
        let at = self.interpreter;
        let again = || {
            let line = self.bytes(code.code, at.code_first_line, 4)?;
            let name = self.word(code.code, at.code_name)?;
            let linetable = self.word(code.code, at.code_linetable)?;
            Some(fingerprint(&Identity {
                filename: self.word(code.code, at.code_filename)?,
                name,
                linetable,
                first_line: u32::from_ne_bytes(*line.first_chunk()?),
                name_hash: self.word(name, STR_HASH)?,
                linetable_size: self.word(linetable, at.bytes_size)?,
                linetable_start: self.word(linetable, at.bytes_data)?,
            }))
        };
        again() == Some(code.fingerprint)
    }

    fn word(&self, object: u64, offset: u32) -> Option<u64> {
        Some(u64::from_ne_bytes(
            *self.bytes(object, offset, 8)?.first_chunk()?,
        ))
    }

    fn bytes(&self, object: u64, offset: u32, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let address = object.checked_add(offset.into())?;
        (self.read)(address, &mut bytes).ok()?;
        Some(bytes)
    }
}
