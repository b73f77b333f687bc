//! A base of a type: its name and its sizes, without the fields of its objects.

use super::{
    super::memory::Memory,
    layout::{flag, tp},
    text,
};

/// Largest `tp_basicsize`.
pub(super) const LARGEST_TYPE: u64 = 1 << 20;

/// A type in a chain of bases.
pub(super) struct Base {
    pub(super) address: u64,
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) item_size: u64,
    pub(super) is_heap: bool,
}

impl Base {
    pub(super) fn read(memory: &dyn Memory, address: u64) -> Option<Base> {
        let word = |offset: u64| memory.word(address.checked_add(offset)?);
        let size = word(tp::BASICSIZE)?;
        Some(Base {
            address,
            name: text::c_string(memory, word(tp::NAME)?)?,
            size: (16..LARGEST_TYPE).contains(&size).then_some(size)?,
            item_size: word(tp::ITEMSIZE)?,
            is_heap: word(tp::FLAGS)? & flag::HEAP_TYPE != 0,
        })
    }
}
