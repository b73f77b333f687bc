//! Strings of Python and of C, read from memory.

use super::{super::memory::Memory, layout::Layout};
use memtrace_common::python::characters;

/// Marks a text that was cut.
pub(super) const CUT: char = '…';

/// `PyASCIIObject.length`, `.state`; the same in all versions.
const LENGTH: u64 = 16;
const STATE: u64 = 32;

/// The first characters of the `str` object at an address, and whether there are more.
pub(super) fn string(
    layout: &Layout,
    memory: &dyn Memory,
    object: u64,
    most: usize,
) -> Option<(String, bool)> {
    let (width, is_ascii) = characters(memory.half(object.checked_add(STATE)?)?);
    let length = usize::try_from(memory.word(object.checked_add(LENGTH)?)?).ok()?;
    let data = if is_ascii {
        layout.ascii_data
    } else {
        layout.compact_data
    };
    let width = match width {
        1 | 2 | 4 => width as usize,
        _ => return None,
    };
    let mut bytes = vec![0; length.min(most) * width];
    if !memory.read(object.checked_add(data)?, &mut bytes) {
        return None;
    }
    let text = bytes
        .chunks_exact(width)
        .map(|unit| {
            let code = unit
                .iter()
                .rev()
                .fold(0, |code, &byte| code << 8 | u32::from(byte));
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
        })
        .collect();
    Some((text, length > most))
}

/// A name, cut if it is long.
pub(super) fn name(layout: &Layout, memory: &dyn Memory, object: u64) -> Option<String> {
    /// As in `Text` of the kernel side.
    const MOST: usize = 256;
    let (mut text, is_cut) = string(layout, memory, object, MOST)?;
    if is_cut {
        text.push(CUT);
    }
    Some(text)
}

/// Whether the `str` object at an address is this ASCII text.
pub(super) fn is(layout: &Layout, memory: &dyn Memory, object: u64, text: &str) -> bool {
    let Some(length) = object.checked_add(LENGTH).and_then(|at| memory.word(at)) else {
        return false;
    };
    length == text.len() as u64
        && string(layout, memory, object, text.len()).is_some_and(|(got, _)| got == text)
}

/// A string of C that can be printed.
pub(super) fn c_string(memory: &dyn Memory, address: u64) -> Option<String> {
    const MOST: u64 = 200;
    let mut text = Vec::new();
    for at in 0..MOST {
        match memory.byte(address.checked_add(at)?)? {
            0 => break,
            byte => text.push(byte),
        }
    }
    String::from_utf8(text)
        .ok()
        .filter(|text| !text.is_empty() && !text.contains(char::is_control))
}

/// Whether Python takes it for a name behind a dot.
pub(super) fn is_identifier(text: &str) -> bool {
    let mut characters = text.chars();
    let is_first = |c: char| c == '_' || c.is_alphabetic();
    characters.next().is_some_and(is_first) && characters.all(|c| is_first(c) || c.is_numeric())
}
