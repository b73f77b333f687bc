//! The meaning of addresses in the traced processes: files, code objects and stacks.

use super::{imports::Imports, modules::Modules, python::Pythons, stacks::StackInterner};
use crate::probes::allocator::ExtraAllocator;

/// See the module.
pub(super) struct Naming {
    pub(super) modules: Modules,
    pub(super) pythons: Pythons,
    /// Unless imports are to be recorded in full.
    pub(super) imports: Option<Imports>,
    pub(super) stacks: StackInterner,
    /// Bytes.
    pub(super) page_size: u64,
}

impl Naming {
    pub(super) fn new(
        allocators: Vec<ExtraAllocator>,
        heap: bool,
        summarise_imports: bool,
        page_size: u64,
    ) -> Self {
        Self {
            modules: Modules::new(allocators, heap),
            pythons: Pythons::default(),
            imports: summarise_imports.then(Imports::default),
            stacks: StackInterner::default(),
            page_size,
        }
    }
}
