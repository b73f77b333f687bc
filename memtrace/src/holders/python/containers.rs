//! Lists, tuples, sets, deques and contexts.

use super::{
    super::{
        memory::Circle,
        reference::{Check, Label, Reference, Visit, cost},
    },
    layout::{Layout, OB_SIZE},
    words::{Words, is_pointer},
};

/// More items do not fit any machine.
pub(super) const MOST: u64 = 1 << 36;

/// `PyListObject`.
pub(super) fn list(words: &mut Words<'_>, list: u64, visit: &mut Visit<'_>) -> Option<()> {
    const ITEMS: u64 = 24;
    const ALLOCATED: u64 = 32;
    let size = words.at(list + OB_SIZE)?;
    let items = words.at(list + ITEMS)?;
    let allocated = words.at(list + ALLOCATED)?;
    if !is_pointer(items) || size > allocated || allocated > MOST {
        return None;
    }
    let of_list = Check::equal(list + ITEMS, items);
    visit(&Reference {
        target: items,
        label: Label::Buffer,
        cost: cost::TYPED,
        checks: &[of_list],
    });
    let mut checks = [of_list; 3];
    for index in 0..size {
        let slot = items + index * 8;
        let item = words.at(slot)?;
        if !is_pointer(item) {
            continue;
        }
        checks[1] = Check::at_least(list + OB_SIZE, index + 1);
        checks[2] = Check::equal(slot, item);
        visit(&Reference {
            target: item,
            label: Label::Item(index),
            cost: cost::TYPED,
            checks: &checks,
        });
    }
    Some(())
}

/// `PyTupleObject`.
pub(super) fn tuple(
    layout: &Layout,
    words: &mut Words<'_>,
    tuple: u64,
    visit: &mut Visit<'_>,
) -> Option<()> {
    let size = words.at(tuple + OB_SIZE)?.min(MOST);
    for index in 0..size {
        let slot = tuple + layout.tuple_items + index * 8;
        let item = words.at(slot)?;
        if is_pointer(item) {
            visit(&Reference {
                target: item,
                label: Label::Item(index),
                cost: cost::TYPED,
                checks: &[Check::equal(slot, item)],
            });
        }
    }
    Some(())
}

/// Where a `PySetObject` has the number of elements.
pub(super) const SET_USED: u64 = 24;

/// `PySetObject`.
pub(super) fn set(words: &mut Words<'_>, set: u64, visit: &mut Visit<'_>) -> Option<()> {
    const MASK: u64 = 32;
    const TABLE: u64 = 40;
    const SMALL_TABLE: u64 = 64;
    /// The mark left by a removed element.
    const REMOVED: u64 = u64::MAX;
    let mask = words.at(set + MASK)?;
    let table = words.at(set + TABLE)?;
    if !is_pointer(table) || mask >= MOST || !(mask + 1).is_power_of_two() {
        return None;
    }
    let of_set = Check::equal(set + TABLE, table);
    if table != set + SMALL_TABLE {
        visit(&Reference {
            target: table,
            label: Label::Buffer,
            cost: cost::TYPED,
            checks: &[of_set],
        });
    }
    let mut checks = [of_set; 2];
    for entry in 0..=mask {
        let slot = table + entry * 16;
        let element = words.at(slot)?;
        if is_pointer(element) && words.at(slot + 8)? != REMOVED {
            checks[1] = Check::equal(slot, element);
            visit(&Reference {
                target: element,
                label: Label::Element,
                cost: cost::TYPED,
                checks: &checks,
            });
        }
    }
    Some(())
}

/// `PyHamtNode_Bitmap` and `PyHamtNode_Collision` (Include/internal/pycore_hamt.h): pairs of a key and its value, or
/// of nothing and a node.
pub(super) fn context_node(words: &mut Words<'_>, node: u64, visit: &mut Visit<'_>) -> Option<()> {
    const PAIRS: u64 = 32;
    let size = words.at(node + OB_SIZE)?.min(MOST);
    for pair in 0..size / 2 {
        let at = node + PAIRS + pair * 16;
        let key = words.at(at)?;
        let value = words.at(at + 8)?;
        let checks = [Check::equal(at, key), Check::equal(at + 8, value)];
        let mut give = |target, label, checks| {
            if is_pointer(target) {
                visit(&Reference {
                    target,
                    label,
                    cost: cost::TYPED,
                    checks,
                });
            }
        };
        if key == 0 {
            give(value, Label::Internal("its variables"), &checks);
        } else if is_pointer(key) {
            give(value, Label::Value(key), &checks);
            give(key, Label::Key, &checks[..1]);
        }
    }
    Some(())
}

/// `dequeobject.maxlen`, and `lru_cache_object.maxsize` (Modules/_functoolsmodule.c): -1 without a limit.
pub(super) const DEQUE_LIMIT: u64 = 64;
pub(super) const LRU_LIMIT: u64 = 96;

/// `dequeobject` (Modules/_collectionsmodule.c): blocks of 64 items that are linked.
pub(super) fn deque(words: &mut Words<'_>, deque: u64, visit: &mut Visit<'_>) -> Option<()> {
    const LEFT_BLOCK: u64 = 24;
    const LEFT_INDEX: u64 = 40;
    /// In a block: after the link to the left.
    const DATA: u64 = 8;
    const ITEMS: u64 = 64;
    const RIGHT: u64 = DATA + ITEMS * 8;
    let size = words.at(deque + OB_SIZE)?.min(MOST);
    let mut link = deque + LEFT_BLOCK;
    let mut block = words.at(link)?;
    let mut place = words.at(deque + LEFT_INDEX)?;
    if place >= ITEMS {
        return None;
    }
    let mut index = 0;
    let mut circle = Circle::default();
    loop {
        if !is_pointer(block) || circle.closes(block) {
            return None;
        }
        let of_block = Check::equal(link, block);
        visit(&Reference {
            target: block,
            label: Label::Buffer,
            cost: cost::TYPED,
            checks: &[of_block],
        });
        let mut checks = [of_block; 3];
        while place < ITEMS && index < size {
            let slot = block + DATA + place * 8;
            let item = words.at(slot)?;
            checks[1] = Check::at_least(deque + OB_SIZE, index + 1);
            checks[2] = Check::equal(slot, item);
            if is_pointer(item) {
                visit(&Reference {
                    target: item,
                    label: Label::Item(index),
                    cost: cost::TYPED,
                    checks: &checks,
                });
            }
            place += 1;
            index += 1;
        }
        if index >= size {
            return Some(());
        }
        place = 0;
        link = block + RIGHT;
        block = words.at(link)?;
    }
}
