//! Objects in the interpreter's own memory, told from anything else in it by their headers alone.

use super::{super::memory::Memory, Managed, Python, layout::flag, types::Type};
use crate::holders::graph::BEFORE_OBJECT;

impl Python {
    /// The object that a piece of a pool was handed out for: where in the piece it begins, and the address of its type.
    /// `None`: the memory is for something else.
    ///
    /// What comes before an object depends on its type, so each place is for other types.
    pub(in super::super) fn object_in(
        &self,
        memory: &dyn Memory,
        piece: &[u8],
    ) -> Option<(u64, u64)> {
        BEFORE_OBJECT.into_iter().find_map(|before| {
            let [count, ty] = [before, before + 8].map(|at| {
                let word = piece.get(at as usize..)?.first_chunk();
                word.map(|word| u64::from_le_bytes(*word))
            });
            let ty = self.types.of_count(memory, count?, ty?)?;
            let fits = ty.flags & flag::STR != 0 || before + ty.size <= piece.len() as u64;
            (self.before(&ty) == before && fits).then_some((before, ty.address))
        })
    }

    /// Bytes before an object of this type (`_PyType_PreHeaderSize`): the collector's words, and those of attributes and
    /// weak references.
    fn before(&self, ty: &Type) -> u64 {
        let managed = match self.layout.managed {
            Managed::No => 0,
            Managed::Two => flag::MANAGED_DICT,
            Managed::Tagged | Managed::Inline => flag::MANAGED_DICT | flag::MANAGED_WEAKREF,
        };
        let of = |flags: u64| if ty.flags & flags != 0 { 16 } else { 0 };
        of(flag::HAVE_GC) + of(managed)
    }

    /// Words that were looked at as types so far.
    pub(in super::super) fn types_looked_at(&self) -> usize {
        self.types.looked_at()
    }

    /// The name of the type at an address.
    pub(in super::super) fn name_of_type(&self, memory: &dyn Memory, ty: u64) -> Option<String> {
        self.types.name_at(memory, ty)
    }
}
