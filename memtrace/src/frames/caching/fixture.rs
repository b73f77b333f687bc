//! A second caching allocator for tests, which tells by its functions and not by reports. It has no layer of
//! its own, for that would be one of the kernel side's.

use memtrace_common::Layer;

use super::{
    super::device_functions::{Library, free, row, to},
    CachingAllocator,
};

pub(crate) const POOL: CachingAllocator = CachingAllocator {
    name: "the pool",
    layer: Layer::TorchCuda,
    asking: Library {
        name: "a pool",
        files: &["libpool"],
        rows: &[
            row("pool_alloc", to(Layer::TorchCuda, 1)),
            row("pool_free", free(Layer::TorchCuda, 0)),
        ],
        alternatives: &[],
        usdt: &[],
    },
    telling: &[],
    advice: "pool_trim()",
};
