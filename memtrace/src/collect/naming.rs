//! The meaning of addresses in the traced processes: files, code objects and stacks.

use super::{imports::Imports, modules::Modules, python::Pythons, stacks::StackInterner};
use crate::{
    event::{Layer, StackId},
    frames::caching,
    probes::allocator::ExtraAllocator,
};

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

    /// The layer of the caching allocator that made the call itself.
    pub(super) fn calling_cache(&self, layer: Layer, stack: StackId) -> Option<Layer> {
        if layer == Layer::Pinned || caching::is_layer_of_blocks(layer) {
            return None;
        }
        let leaf = self.stacks.leaf_file(stack)?;
        self.modules.get(leaf).caching_allocator
    }
}
