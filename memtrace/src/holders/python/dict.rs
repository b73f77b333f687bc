//! The table of a dict (Objects/dictobject.c, Include/internal/pycore_dict.h).

use super::{
    super::{
        memory::Memory,
        reference::{Check, Label, Reference, Visit, cost},
    },
    layout::Layout,
    text,
    words::{Words, is_pointer},
};

/// `PyDictObject.ma_keys`, `.ma_values`.
const KEYS: u64 = 32;
const VALUES: u64 = 40;
/// Bytes of a `PyDictObject`.
pub(super) const SIZE: u64 = 48;

/// Most entries of a table: more do not fit any machine.
const MAX_ENTRIES: u64 = 1 << 36;

/// `PyDictKeysObject`: entries in the order in which keys were added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) address: u64,
    /// Of slots: entries, and places for more.
    pub(super) size: u64,
    pub(super) count: u64,
    count_at: u64,
    entries: u64,
    stride: u64,
    /// Where in an entry the key is; the value follows.
    key: u64,
}

impl Keys {
    pub(super) fn read(layout: &Layout, words: &mut Words<'_>, address: u64) -> Option<Keys> {
        if !is_pointer(address) {
            return None;
        }
        if layout.minor < 11 {
            return Self::before_3_11(words, address);
        }
        let [log2_size, log2_index_bytes, kind, ..] = words.at(address + 8)?.to_le_bytes();
        let count = words.at(address + 24)?;
        if log2_size > 36 || log2_index_bytes > 40 || kind > 2 || count > 1 << log2_size {
            return None;
        }
        let is_general = kind == 0;
        Some(Keys {
            address,
            size: 1 << log2_size,
            count,
            count_at: address + 24,
            entries: address + 32 + (1 << log2_index_bytes),
            stride: if is_general { 24 } else { 16 },
            key: if is_general { 8 } else { 0 },
        })
    }

    fn before_3_11(words: &mut Words<'_>, address: u64) -> Option<Keys> {
        let size = words.at(address + 8)?;
        let count = words.at(address + 32)?;
        if !size.is_power_of_two() || size > MAX_ENTRIES || count > size {
            return None;
        }
        let index = match size {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        Some(Keys {
            address,
            size,
            count,
            count_at: address + 32,
            entries: address + 40 + size * index,
            stride: 24,
            key: 8,
        })
    }

    /// Where the key of an entry is.
    pub(super) fn key_at(&self, entry: u64) -> u64 {
        self.entries + entry * self.stride + self.key
    }

    fn has(&self, entry: u64) -> Check {
        Check::at_least(self.count_at, entry + 1)
    }
}

/// The values of a split table begin here, if there is one.
fn values(layout: &Layout, words: &mut Words<'_>, dict: u64) -> Option<u64> {
    let values = words.at(dict + VALUES)?;
    is_pointer(values).then(|| values + layout.values)
}

/// The references of the dict at an address.
pub(super) fn references(layout: &Layout, words: &mut Words<'_>, dict: u64, visit: &mut Visit<'_>) {
    let Some(address) = words.at(dict + KEYS) else {
        return;
    };
    let values = values(layout, words, dict);
    let Some(keys) = Keys::read(layout, words, address) else {
        return;
    };
    let of_dict = Check::equal(dict + KEYS, address);
    match values {
        None => combined(&keys, of_dict, words, visit),
        Some(values) => split(&keys, of_dict, dict, values, layout, words, visit),
    }
}

fn combined(keys: &Keys, of_dict: Check, words: &mut Words<'_>, visit: &mut Visit<'_>) {
    visit(&Reference {
        target: keys.address,
        label: Label::Buffer,
        cost: cost::TYPED,
        checks: &[of_dict],
    });
    let mut checks = [of_dict; 4];
    for entry in 0..keys.count {
        let at = keys.key_at(entry);
        let (Some(key), Some(value)) = (words.at(at), words.at(at + 8)) else {
            return;
        };
        if !is_pointer(key) || !is_pointer(value) {
            continue;
        }
        checks[1] = keys.has(entry);
        checks[2] = Check::equal(at, key);
        checks[3] = Check::equal(at + 8, value);
        visit(&Reference {
            target: value,
            label: Label::Value(key),
            cost: cost::TYPED,
            checks: &checks,
        });
        visit(&Reference {
            target: key,
            label: Label::Key,
            cost: cost::TYPED,
            checks: &checks[..3],
        });
    }
}

/// For instances that share their class's keys.
fn split(
    keys: &Keys,
    of_dict: Check,
    dict: u64,
    values: u64,
    layout: &Layout,
    words: &mut Words<'_>,
    visit: &mut Visit<'_>,
) {
    let of_values = Check::equal(dict + VALUES, values - layout.values);
    visit(&Reference {
        target: values - layout.values,
        label: Label::Buffer,
        cost: cost::TYPED,
        checks: &[of_values],
    });
    let mut checks = [of_dict, of_values, of_dict, of_dict];
    each_shared(keys, values, words, &mut |key, slot, value, key_at| {
        checks[2] = Check::equal(key_at, key);
        checks[3] = Check::equal(slot, value);
        visit(&Reference {
            target: value,
            label: Label::Value(key),
            cost: cost::TYPED,
            checks: &checks,
        });
    });
}

/// Calls `each` with a key, where its value is, the value, and where the key is.
pub(super) fn each_shared(
    keys: &Keys,
    values: u64,
    words: &mut Words<'_>,
    each: &mut dyn FnMut(u64, u64, u64, u64),
) {
    /// `SHARED_KEYS_MAX_SIZE` is 30 since 3.11; before, classes with more are rare.
    const MOST: u64 = 1 << 16;
    let mut slots = words.again();
    for entry in 0..keys.count.min(MOST) {
        let slot = values.wrapping_add(entry * 8);
        let at = keys.key_at(entry);
        let Some(value) = slots.at(slot) else {
            return;
        };
        if !is_pointer(value) {
            continue;
        }
        let Some(key) = words.at(at) else {
            return;
        };
        if is_pointer(key) {
            each(key, slot, value, at);
        }
    }
}

/// The value of a key that is this `str`.
pub(super) fn get(layout: &Layout, memory: &dyn Memory, dict: u64, name: &str) -> Option<u64> {
    /// Larger ones are not namespaces.
    const MOST: u64 = 1 << 16;
    let words = &mut Words::new(memory);
    let dict = Some(dict).filter(|&dict| is_pointer(dict))?;
    let keys = words.at(dict + KEYS)?;
    let values = values(layout, words, dict);
    let keys = Keys::read(layout, words, keys)?;
    for entry in 0..keys.count.min(MOST) {
        let at = keys.key_at(entry);
        let key = words.at(at)?;
        if is_pointer(key) && text::is(layout, memory, key, name) {
            let slot = values.map_or(at + 8, |values| values + entry * 8);
            return words.at(slot).filter(|&value| is_pointer(value));
        }
    }
    None
}

/// The entries of a dict with its own table: key, value, and the words that prove them.
pub(super) fn entries(
    layout: &Layout,
    words: &mut Words<'_>,
    dict: u64,
    each: &mut dyn FnMut(u64, u64, &[Check]),
) {
    references(layout, words, dict, &mut |reference| {
        if let Label::Value(key) = reference.label {
            each(key, reference.target, reference.checks);
        }
    });
}
