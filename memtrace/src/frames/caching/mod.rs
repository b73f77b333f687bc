//! Caching allocators of device memory: they ask the driver or its runtime for segments, and give blocks
//! out of them. A table: probing, the collector, the ledger's users and reports read it; a new one is
//! a row here and a file beside this one.
//!
//! One that calls a function with its totals has rows of [`report`](super::device_functions::report); of any
//! other the functions that give and take are rows, and its blocks are added up.

mod pytorch;

use memtrace_common::Layer;

use super::device_functions::Library;

/// What is known of a caching allocator.
#[derive(Clone, Copy, Debug)]
pub struct CachingAllocator {
    /// What it belongs to, for people.
    pub name: &'static str,
    /// The layer of its blocks.
    pub layer: Layer,
    /// Its code that asks for device memory: what that asked for is its.
    pub asking: Library,
    /// Other libraries whose functions tell of its blocks.
    pub telling: &'static [Library],
    /// What makes it keep less.
    pub advice: &'static str,
}

/// Every caching allocator. A process that shows no blocks of any is taken to use the first.
const CACHING_ALLOCATORS: &[CachingAllocator] = &[
    pytorch::PYTORCH,
    #[cfg(test)]
    fixture::POOL,
];

/// Their libraries, those that tell first.
pub fn libraries() -> impl Iterator<Item = &'static Library> {
    CACHING_ALLOCATORS
        .iter()
        .flat_map(|of| of.telling.iter().chain([&of.asking]))
}

/// The layer of the caching allocator whose code that asks for device memory is in a file of this name
/// (without folder).
pub fn asking(file: &str) -> Option<Layer> {
    let mut all = CACHING_ALLOCATORS.iter();
    all.find(|of| of.asking.is_named(file)).map(|of| of.layer)
}

/// Whether a layer is of a caching allocator's blocks.
pub fn gives(layer: Layer) -> bool {
    CACHING_ALLOCATORS.iter().any(|of| of.layer == layer)
}

/// The caching allocator of a process, which `has` blocks in some layers.
pub fn used(has: impl Fn(Layer) -> bool) -> &'static CachingAllocator {
    let found = CACHING_ALLOCATORS.iter().find(|of| has(of.layer));
    found.unwrap_or(&CACHING_ALLOCATORS[0])
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_is_known_by_the_names_that_wheels_give_it() {
        for file in ["libc10_cuda.so", "libc10_hip-1a2b.so"] {
            assert_eq!(asking(file), Some(Layer::TorchCuda), "{file}");
        }
        assert_eq!(asking("libpool.so.1"), Some(fixture::POOL.layer));
        for file in ["libc10.so", "libcudart.so.13", "libpools.so"] {
            assert_eq!(asking(file), None, "{file}");
        }
    }

    #[test]
    fn a_process_uses_the_one_whose_blocks_it_has() {
        for has in [Layer::TorchCuda, Layer::Heap] {
            assert_eq!(used(|layer| layer == has).name, "PyTorch");
        }
        assert!(gives(Layer::TorchCuda) && !gives(Layer::CudaRuntime));
    }

    #[test]
    fn layers_of_blocks_are_of_devices_and_libraries_have_names() {
        for of in CACHING_ALLOCATORS {
            assert!(of.layer.of_device(), "{}", of.name);
            assert!(!of.asking.files.is_empty(), "{}", of.name);
        }
    }
}
