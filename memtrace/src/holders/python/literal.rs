//! Literals: the keys of dicts as Python would write them.

use super::{
    super::memory::Memory,
    known::CONTEXT_VARIABLE_NAME,
    layout::{Layout, OB_SIZE, flag},
    text::{CUT, string},
    types::Types,
};
use std::fmt::Write as _;

/// Most characters of a key that are shown.
const MOST_SHOWN: usize = 40;

/// `PyBytesObject.ob_sval`.
const BYTES: u64 = 32;

/// A key as `repr` would write it, and whether Python reads that as the same key again.
pub(super) fn key(
    layout: &Layout,
    memory: &dyn Memory,
    types: &Types,
    object: u64,
) -> (String, bool) {
    literal(layout, memory, types, object, 0).unwrap_or_else(|| {
        let name = types.name(memory, object);
        (format!("<{}>", name.as_deref().unwrap_or("object")), false)
    })
}

fn literal(
    layout: &Layout,
    memory: &dyn Memory,
    types: &Types,
    object: u64,
    depth: u32,
) -> Option<(String, bool)> {
    let ty = types.of(memory, object)?;
    // A subclass may have any `repr`.
    if ty.is_heap {
        return None;
    }
    if ty.flags & flag::STR != 0 {
        let (text, is_cut) = string(layout, memory, object, MOST_SHOWN)?;
        return Some((quoted(&text, is_cut), !is_cut));
    }
    if ty.flags & flag::BYTES != 0 {
        return bytes(memory, object);
    }
    if ty.flags & flag::LONG != 0 {
        let value = integer(layout, memory, object)?;
        return Some(match &*ty.tp_name {
            "bool" => ((if value == 0 { "False" } else { "True" }).to_owned(), true),
            _ => (value.to_string(), true),
        });
    }
    if ty.flags & flag::TUPLE != 0 {
        return tuple(layout, memory, types, object, depth);
    }
    match &*ty.tp_name {
        "NoneType" => Some(("None".to_owned(), true)),
        "ContextVar" | "_contextvars.ContextVar" => {
            let variable = memory.word(object.checked_add(CONTEXT_VARIABLE_NAME)?)?;
            let (text, is_cut) = string(layout, memory, variable, MOST_SHOWN)?;
            Some((format!("<ContextVar {}>", quoted(&text, is_cut)), false))
        }
        "float" => {
            let value = f64::from_bits(memory.word(object + OB_SIZE)?);
            value.is_finite().then(|| (format!("{value:?}"), true))
        }
        _ => None,
    }
}

fn tuple(
    layout: &Layout,
    memory: &dyn Memory,
    types: &Types,
    object: u64,
    depth: u32,
) -> Option<(String, bool)> {
    const DEEPEST: u32 = 2;
    const MOST: u64 = 8;
    let length = memory.word(object.checked_add(OB_SIZE)?)?;
    if depth > DEEPEST || length > MOST {
        return None;
    }
    let (mut text, mut is_literal) = ("(".to_owned(), true);
    for item in 0..length {
        let at = (object + layout.tuple_items).checked_add(item * 8)?;
        let (item, is_exact) = literal(layout, memory, types, memory.word(at)?, depth + 1)
            .unwrap_or_else(|| (CUT.into(), false));
        text += &item;
        text += ", ";
        is_literal &= is_exact;
        if text.chars().count() > MOST_SHOWN {
            text.push(CUT);
            return Some((text + ")", false));
        }
    }
    if length > 1 {
        text.truncate(text.len() - 2);
    } else if length == 1 {
        text.truncate(text.len() - 1);
    }
    Some((text + ")", is_literal))
}

fn quoted(text: &str, is_cut: bool) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut quoted = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => quoted += "\\\\",
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            it if it == quote => quoted.extend(['\\', it]),
            it if it.is_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(it));
            }
            it => quoted.push(it),
        }
    }
    if is_cut {
        quoted.push(CUT);
    }
    quoted.push(quote);
    quoted
}

fn bytes(memory: &dyn Memory, object: u64) -> Option<(String, bool)> {
    let length = memory.word(object.checked_add(OB_SIZE)?)?;
    let shown = length.min(MOST_SHOWN as u64);
    let mut bytes = vec![0; shown as usize];
    if !memory.read(object.checked_add(BYTES)?, &mut bytes) {
        return None;
    }
    let mut text = "b'".to_owned();
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', byte.into()]),
            b' '..=b'~' => text.push(byte.into()),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    if shown < length {
        text.push(CUT);
    }
    text.push('\'');
    Some((text, shown == length))
}

/// An `int` of at most 4 digits of 30 bits.
fn integer(layout: &Layout, memory: &dyn Memory, object: u64) -> Option<i128> {
    const DIGITS: u64 = 24;
    let head = memory.word(object.checked_add(OB_SIZE)?)?;
    // `lv_tag` since 3.12; before, the sign of `ob_size` is the number's.
    let (count, is_negative) = if layout.minor >= 12 {
        (head >> 3, head & 3 == 2)
    } else {
        (head.cast_signed().unsigned_abs(), head.cast_signed() < 0)
    };
    if count > 4 {
        return None;
    }
    let mut value = 0_i128;
    for digit in (0..count).rev() {
        let digit = memory.half(object.checked_add(DIGITS + digit * 4)?)?;
        value = value << 30 | i128::from(digit & ((1 << 30) - 1));
    }
    Some(if is_negative { -value } else { value })
}
