//! Source lines of instructions, by the tables of a code object. Any bytes are
//! accepted: of a damaged or cut table no lines are known.

use std::ops::{ControlFlow, Range};

/// First bytes of an instruction: since 3.10 instructions are counted in these.
const UNIT: i64 = 2;

/// Bits of an instruction's number that do not fit into a word of a stack, see
/// [`memtrace_common::unwind::Word::PythonAt`].
const UNUSED: u32 = 4;

/// The source line of an instruction. `None`: the compiler made the instruction for no line, or
/// the table ends before it.
///
/// `instruction` is `f_lasti` up to 3.10 (bytes in 3.9, units of two in 3.10); since 3.11 the
/// instruction pointer's distance from `co_code_adaptive`, bytes. Of its lowest 28 bits the highest
/// is the sign; below zero the frame has not begun, and is at its first line.
pub(super) fn line(minor: u32, first_line: u32, linetable: &[u8], instruction: u32) -> Option<u32> {
    let place = place(minor, instruction);
    if place < 0 {
        return Some(first_line);
    }
    let found = each(
        minor,
        first_line,
        linetable,
        &mut |range, line| match range.contains(&place) {
            true => ControlFlow::Break(line),
            false => ControlFlow::Continue(()),
        },
    );
    found.break_value()?
}

/// Whether an instruction of `line` comes first or is `instruction`, which is as in [`line()`].
pub(super) fn has_reached(
    minor: u32,
    first_line: u32,
    linetable: &[u8],
    line: u32,
    instruction: u32,
) -> bool {
    let place = place(minor, instruction);
    if place < 0 {
        return line == first_line;
    }
    let found = each(minor, first_line, linetable, &mut |range, of_range| {
        if range.start > place {
            return ControlFlow::Break(false);
        }
        match of_range == Some(line) && !range.is_empty() {
            true => ControlFlow::Break(true),
            false => ControlFlow::Continue(()),
        }
    });
    found.break_value().unwrap_or(false)
}

/// Where an instruction begins, bytes; below zero for a frame that has not begun.
fn place(minor: u32, instruction: u32) -> i64 {
    let instruction = i64::from((instruction << UNUSED).cast_signed() >> UNUSED);
    match minor {
        10 => instruction * UNIT,
        _ => instruction,
    }
}

/// Takes ranges of a code object's bytes in their order, and the line of each.
type Visit<'a, B> = dyn FnMut(Range<i64>, Option<u32>) -> ControlFlow<B> + 'a;

fn each<B>(
    minor: u32,
    first_line: u32,
    linetable: &[u8],
    visit: &mut Visit<'_, B>,
) -> ControlFlow<B> {
    let first = i64::from(first_line);
    match minor {
        ..10 => lnotab(first, linetable, visit),
        10 => pairs(first, linetable, visit),
        _ => locations(first, linetable, visit),
    }
}

/// 3.9 `co_lnotab` (Objects/lnotab_notes.txt): pairs of bytes, the distance to the next line's
/// address and, signed, to that line. The last line extends to the end.
fn lnotab<B>(first: i64, table: &[u8], visit: &mut Visit<'_, B>) -> ControlFlow<B> {
    let (mut address, mut line) = (0, first);
    for &[ahead, lines] in table.as_chunks().0 {
        let end = address + i64::from(ahead);
        visit(address..end, u32::try_from(line).ok())?;
        address = end;
        line += i64::from(lines.cast_signed());
    }
    visit(address..i64::MAX, u32::try_from(line).ok())
}

/// 3.10 `co_linetable` (Objects/lnotab_notes.txt): pairs of bytes, the length of a range of
/// instructions and, signed, its line's distance from the line before; -128: no line.
fn pairs<B>(first: i64, table: &[u8], visit: &mut Visit<'_, B>) -> ControlFlow<B> {
    const NO_LINE: i8 = -128;
    let (mut end, mut line) = (0_i64, first);
    for &[length, lines] in table.as_chunks().0 {
        let start = end;
        end += i64::from(length);
        let lines = lines.cast_signed();
        let known = lines != NO_LINE;
        if known {
            line += i64::from(lines);
        }
        visit(start..end, u32::try_from(line).ok().filter(|_| known))?;
    }
    ControlFlow::Continue(())
}

/// 3.11 `co_linetable` (Objects/locations.md, later InternalDocs/code_objects.md): entries of a
/// byte with bit 7 set, which has the form and the length, and bytes without it.
fn locations<B>(first: i64, table: &[u8], visit: &mut Visit<'_, B>) -> ControlFlow<B> {
    let (mut end, mut line) = (0_i64, first);
    let mut rest = table;
    while let Some((&head, after)) = rest.split_first() {
        if head & 0x80 == 0 {
            break;
        }
        let length = after.iter().take_while(|&&byte| byte & 0x80 == 0).count();
        let (body, next) = after.split_at(length);
        rest = next;
        let form = head >> 3 & 15;
        line = line.saturating_add(match form {
            13 | 14 => match signed(body) {
                Some(lines) => lines,
                None => break,
            },
            11 => 1,
            12 => 2,
            _ => 0,
        });
        let start = end;
        end += i64::from((head & 7) + 1) * UNIT;
        visit(start..end, u32::try_from(line).ok().filter(|_| form != 15))?;
    }
    ControlFlow::Continue(())
}

/// A signed number of bytes with six bits each, the lowest first; bit 6: another follows; of the
/// whole the lowest bit is the sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let mut value = 0_i64;
    for (index, &byte) in bytes.iter().enumerate().take(6) {
        value |= i64::from(byte & 63) << (6 * index);
        if byte & 64 == 0 {
            let magnitude = value >> 1;
            return Some(if value & 1 == 0 {
                magnitude
            } else {
                -magnitude
            });
        }
    }
    None
}
