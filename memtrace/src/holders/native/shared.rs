//! Where the references to an object of `std::shared_ptr` are counted. A word that leads there may be one of a
//! `std::weak_ptr`, which keeps nothing alive.

use super::super::memory::Memory;
use super::Block;

/// Bytes at the start of an object that may have a reference of its own: `std::enable_shared_from_this`.
const MOST_OWN: u64 = 4 << 10;

/// The classes of libstdc++ and of libc++ that count, mangled.
const OF_LIBSTDCXX: [&str; 3] = [
    "St23_Sp_counted_ptr_inplaceI",
    "St15_Sp_counted_ptrI",
    "St19_Sp_counted_deleterI",
];
const OF_LIBCXX: [&str; 2] = [
    "NSt3__120__shared_ptr_emplaceI",
    "NSt3__120__shared_ptr_pointerI",
];

/// How many weak references there are to an object that shared ones keep, besides those in its own `block`. `None`:
/// `class` is not one that counts them `at` this address, or nothing but weak references is left.
pub(in crate::holders) fn weak_references(
    memory: &(impl Memory + ?Sized),
    class: &str,
    at: u64,
    block: Block,
) -> Option<u64> {
    let is_of = |names: &[&str]| names.iter().any(|name| class.starts_with(name));
    // All shared references together count as a weak one.
    let weak = if is_of(&OF_LIBSTDCXX) {
        let shared = memory.half(at.checked_add(8)?)?;
        let weak = memory.half(at.checked_add(12)?)?;
        (shared > 0).then(|| u64::from(weak).saturating_sub(1))?
    } else if is_of(&OF_LIBCXX) {
        // Both counts begin with 0.
        let shared = memory.word(at.checked_add(8)?)?;
        let weak = memory.word(at.checked_add(16)?)?;
        (shared.cast_signed() >= 0).then_some(weak)?
    } else {
        return None;
    };
    let words = (0..block.size.min(MOST_OWN)).step_by(8);
    let own = words.filter(|offset| memory.word(block.start + offset) == Some(at));
    Some(weak.saturating_sub(own.count() as u64))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::fixture::Made, *};

    const INPLACE: &str = "St23_Sp_counted_ptr_inplaceI4ViewSaIvELN9__gnu_cxx12_Lock_policyE2EE";
    const BLOCK: Block = Block {
        start: 0x1000,
        size: 0x80,
    };

    /// Counts after the virtual table, and perhaps a reference of the object to itself.
    fn weak(class: &str, counts: [u64; 2], own: u64) -> Option<u64> {
        let mut memory = Made::default();
        memory.map(0x1000, 0x100);
        memory.put(0x1008, counts[0]);
        memory.put(0x1010, counts[1]);
        memory.put(0x1028, own);
        weak_references(&memory, class, 0x1000, BLOCK)
    }

    #[test]
    fn weak_references_of_libstdcxx_are_counted() {
        assert_eq!(weak(INPLACE, [1 << 32 | 3, 7], 0), Some(0));
        assert_eq!(weak(INPLACE, [4 << 32 | 1, 7], 0), Some(3));
        // `enable_shared_from_this`.
        assert_eq!(weak(INPLACE, [2 << 32 | 1, 7], 0x1000), Some(0));
        // The memory of a dead object: a weak reference keeps it.
        assert_eq!(weak(INPLACE, [1 << 32, 7], 0), None);
    }

    #[test]
    fn weak_references_of_libcxx_are_counted() {
        assert_eq!(weak(OF_LIBCXX[0], [0, 0], 0), Some(0));
        assert_eq!(weak(OF_LIBCXX[1], [2, 1], 0), Some(1));
        assert_eq!(weak(OF_LIBCXX[1], [u64::MAX, 1], 0), None);
    }

    #[test]
    fn other_classes_count_none() {
        assert_eq!(weak("4View", [9 << 32 | 1, 9], 0), None);
    }
}
