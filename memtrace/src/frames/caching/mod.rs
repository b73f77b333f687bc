//! Caching allocators of device memory: they request segments from the driver or its runtime, and
//! hand out blocks of them. This is the only table of them: probing, the collector, the ledger,
//! analysis and reports read it. A new one is a row here and a file beside this one; its layer is
//! one of `memtrace_common`.
//!
//! Its functions either report its totals ([`report`](super::device_functions::report)), or allocate
//! and free blocks, which are then added up.

mod allocator;
mod pytorch;

use memtrace_common::Layer;

use super::device_functions::Library;
pub(crate) use allocator::CachingAllocator;

/// Every caching allocator. A process that shows no blocks of any is taken to use the first.
const CACHING_ALLOCATORS: &[CachingAllocator] = &[
    pytorch::PYTORCH,
    #[cfg(test)]
    fixture::POOL,
];

/// Their libraries.
pub(crate) fn libraries() -> impl Iterator<Item = &'static Library> {
    CACHING_ALLOCATORS
        .iter()
        .flat_map(|of| of.others.iter().chain([&of.caller]))
}

/// Variables of the environment that set one.
pub(crate) fn settings() -> impl Iterator<Item = &'static str> {
    let all = CACHING_ALLOCATORS.iter();
    all.flat_map(|of| of.settings).copied()
}

/// The layer of the caching allocator that calls the runtime from a file of this name (without folder).
pub(crate) fn layer_of_caller(file: &str) -> Option<Layer> {
    let mut all = CACHING_ALLOCATORS.iter();
    all.find(|of| of.caller.is_named(file)).map(|of| of.layer)
}

/// Whether a layer is of a caching allocator's blocks.
pub(crate) fn is_layer_of_blocks(layer: Layer) -> bool {
    CACHING_ALLOCATORS.iter().any(|of| of.layer == layer)
}

/// The caching allocator of a process, which `has` blocks in some layers.
pub(crate) fn of_process(has: impl Fn(Layer) -> bool) -> &'static CachingAllocator {
    let found = CACHING_ALLOCATORS.iter().find(|of| has(of.layer));
    found.unwrap_or(&CACHING_ALLOCATORS[0])
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_known_by_the_names_that_wheels_give_it() {
        for file in ["libc10_cuda.so", "libc10_hip-1a2b.so"] {
            assert_eq!(layer_of_caller(file), Some(Layer::TorchCuda), "{file}");
        }
        assert_eq!(layer_of_caller("libpool.so.1"), Some(fixture::POOL.layer));
        for file in ["libc10.so", "libcudart.so.13", "libpools.so"] {
            assert_eq!(layer_of_caller(file), None, "{file}");
        }
    }

    #[test]
    fn a_process_uses_the_one_whose_blocks_it_has() {
        for has in [Layer::TorchCuda, Layer::Heap] {
            assert_eq!(of_process(|layer| layer == has).name, "PyTorch");
        }
        assert!(is_layer_of_blocks(Layer::TorchCuda) && !is_layer_of_blocks(Layer::CudaRuntime));
    }

    #[test]
    fn layers_of_blocks_are_of_devices_and_libraries_have_names() {
        for of in CACHING_ALLOCATORS {
            assert!(of.layer.of_device(), "{}", of.name);
            assert!(!of.caller.files.is_empty(), "{}", of.name);
        }
    }
}
