//! Frames: local variables, and the values that a frame is working with. Up to 3.10 a frame is an object; since then it
//! is a part of a thread's stack of frames, of a generator, or of an object that outlived the call.

use super::{
    super::reference::{Check, Label, Name, Reference, Visit, cost},
    layout::{Layout, OB_SIZE},
    words::{Words, is_pointer},
};

/// Most locals and values: more do not fit a frame.
const MOST: u64 = 1 << 16;

/// Bits of a word that are the address of an object: 3.14 has marks in the lowest.
const ADDRESS: u64 = !3;

/// The variables and values of a frame.
struct Slots {
    /// Tuple of the names of the first ones.
    names: Names,
    start: u64,
    locals: u64,
    /// Locals and values.
    end: u64,
    /// A running frame does not store its position, so the values may be left over.
    is_running: bool,
}

#[derive(Clone, Copy)]
enum Names {
    /// `co_localsplusnames`.
    All(u64),
    /// `co_varnames`, `co_cellvars`, `co_freevars`.
    Three([u64; 3]),
}

/// `PyCodeObject`.
mod code {
    pub(super) const NAMES: u64 = 96;
    /// Up to 3.10.
    pub(super) const VARIABLES: u64 = 72;
    pub(super) const CELLS: u64 = 88;
    pub(super) const FREE: u64 = 80;
}

/// The references of a frame. `prefix`: at most 2 checks that it is there.
pub(super) fn references(
    layout: &Layout,
    words: &mut Words<'_>,
    frame: u64,
    code: u64,
    prefix: &[Check],
    visit: &mut Visit<'_>,
) -> Option<()> {
    let first = *prefix.first()?;
    let mut checks = [first; 3];
    let count = prefix.len().min(2);
    checks[..count].copy_from_slice(&prefix[..count]);
    let mut give = |at: u64, target: u64, label, cost| {
        checks[count] = Check {
            mask: ADDRESS,
            ..Check::equal(at, target)
        };
        visit(&Reference {
            target,
            label,
            cost,
            checks: &checks[..=count],
        });
    };
    let own = [
        (layout.frame.function, "f_func"),
        (Some(layout.frame.locals_dict), "f_locals"),
    ];
    // Up to 3.10 those are the object's fields.
    for (offset, name) in own.into_iter().filter(|_| layout.minor >= 11) {
        let Some(offset) = offset else { continue };
        let word = words.at(frame + offset)? & ADDRESS;
        if is_pointer(word) {
            // In a module's frame, `f_locals` are its globals.
            let (label, price) = match name {
                "f_func" => (Label::Internal("its function"), cost::TYPED),
                name => (Label::Attribute(Name::Known(name)), cost::INCIDENTAL),
            };
            give(frame + offset, word, label, price);
        }
    }
    let slots = slots(layout, words, frame, code)?;
    let mut names = words.again();
    for index in 0..slots.end {
        let at = slots.start + index * 8;
        let word = words.at(at)?;
        // 3.14 tags small numbers, which are not objects.
        let is_number = layout.minor >= 14 && word & 3 == 3;
        let target = word & ADDRESS;
        if !is_pointer(target) || is_number {
            continue;
        }
        if index < slots.locals {
            let name = slots.names.get(layout, &mut names, index);
            let label = name.map_or(Label::Operand, |it| Label::Local(Name::Object(it)));
            give(at, target, label, cost::TYPED);
        } else if slots.is_running {
            give(at, target, Label::PerhapsOperand, cost::UNKNOWN);
        } else {
            give(at, target, Label::Operand, cost::TYPED);
        }
    }
    Some(())
}

impl Names {
    fn get(&self, layout: &Layout, words: &mut Words<'_>, index: u64) -> Option<u64> {
        let item = |words: &mut Words<'_>, tuple: u64, index: u64| {
            words
                .at(tuple + layout.tuple_items + index * 8)
                .filter(|&name| is_pointer(name))
        };
        match *self {
            Names::All(tuple) => item(words, tuple, index),
            Names::Three(tuples) => {
                let mut rest = index;
                for tuple in tuples {
                    let length = words.at(tuple + OB_SIZE)?;
                    if rest < length {
                        return item(words, tuple, rest);
                    }
                    rest -= length;
                }
                None
            }
        }
    }

    fn of(layout: &Layout, words: &mut Words<'_>, code: u64) -> Option<(Names, u64)> {
        let mut tuple = |offset: u64| {
            let tuple = words.at(code + offset).filter(|&it| is_pointer(it))?;
            Some((tuple, words.at(tuple + OB_SIZE)?))
        };
        if layout.minor >= 11 {
            let (names, count) = tuple(code::NAMES)?;
            return Some((Names::All(names), count));
        }
        let (variables, first) = tuple(code::VARIABLES)?;
        let (cells, second) = tuple(code::CELLS)?;
        let (free, third) = tuple(code::FREE)?;
        let count = first.checked_add(second)?.checked_add(third)?;
        Some((Names::Three([variables, cells, free]), count))
    }
}

fn slots(layout: &Layout, words: &mut Words<'_>, frame: u64, code: u64) -> Option<Slots> {
    if !is_pointer(code) {
        return None;
    }
    let (names, locals) = Names::of(layout, words, code)?;
    let start = frame + layout.frame.locals;
    let stack = words.at((code + layout.code_stack_size) & !7)?;
    let stack = if layout.code_stack_size % 8 == 4 {
        stack >> 32
    } else {
        stack & 0xffff_ffff
    };
    let top = words.at(frame + layout.frame.stack_top)?;
    // How many are in use; `None` while it runs.
    let used = match layout.minor {
        // A pointer to the first free one.
        9 if top == 0 && !is_executing(words, frame)? => Some(locals),
        9 | 14 => {
            let distance = top.wrapping_sub(start);
            (top != 0 && distance % 8 == 0).then_some(distance / 8)
        }
        // Values above the locals.
        10 => u64::try_from(top as i32)
            .ok()
            .map(|depth| locals.saturating_add(depth)),
        // Locals and values.
        _ => u64::try_from(top as i32).ok(),
    };
    let most = locals.checked_add(stack).filter(|&most| most <= MOST)?;
    Some(Slots {
        names,
        start,
        // Cleared ones are not in use either.
        locals: if layout.minor < 11 {
            locals
        } else {
            used.map_or(locals, |used| used.min(locals))
        },
        end: used.unwrap_or(most).min(most),
        is_running: used.is_none(),
    })
}

/// `f_executing` of 3.9: a frame that has ended has no stack top either, and its values are stale.
fn is_executing(words: &mut Words<'_>, frame: u64) -> Option<bool> {
    Some(words.at(frame + 112)? >> 32 & 0xff != 0)
}

/// The code object of a frame, and the words that prove it.
pub(super) fn code_of(words: &mut Words<'_>, frame: u64, offset: u64) -> Option<(u64, Check)> {
    let at = frame.checked_add(offset)?;
    let code = words.at(at)? & ADDRESS;
    let check = Check {
        mask: ADDRESS,
        ..Check::equal(at, code)
    };
    is_pointer(code).then_some((code, check))
}

/// Whether a generator still has a frame.
pub(super) fn is_alive(layout: &Layout, words: &mut Words<'_>, generator: u64) -> Option<Check> {
    // `gi_frame_state` is the fourth byte of the word before the frame.
    let (at, shift) = (generator + layout.generator_frame - 8, 24);
    let state = (words.at(at)? >> shift) as i8;
    (state <= 0).then_some(Check {
        mask: 0xff << shift,
        ..Check::equal(at, words.at(at)? & 0xff << shift)
    })
}

/// Where the names of a function's `count` free variables are.
pub(super) fn free_variables(
    layout: &Layout,
    words: &mut Words<'_>,
    code: u64,
    count: u64,
) -> Option<u64> {
    let (offset, are_last) = if layout.minor >= 11 {
        (code::NAMES, true)
    } else {
        (code::FREE, false)
    };
    let names = words.at(code + offset).filter(|&it| is_pointer(it))?;
    let length = words.at(names + OB_SIZE).filter(|&it| it <= MOST)?;
    let first = if are_last {
        length.checked_sub(count)?
    } else {
        0
    };
    Some(names + layout.tuple_items + first * 8)
}
