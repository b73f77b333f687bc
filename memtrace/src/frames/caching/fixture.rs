//! A second caching allocator for tests, whose allocation functions are known. It has no layer of
//! its own, because the kernel side would need it too.

use memtrace_common::Layer;

use super::{
    super::device_functions::{Library, free, row, to},
    CachingAllocator,
};

pub(crate) const POOL: CachingAllocator = CachingAllocator {
    name: "the pool",
    layer: Layer::TorchCuda,
    caller: Library {
        name: "a pool",
        files: &["libpool"],
        rows: &[
            row("pool_alloc", to(Layer::TorchCuda, 1)),
            row("pool_free", free(Layer::TorchCuda, 0)),
        ],
        alternatives: &[],
        usdt: &[],
    },
    others: &[],
    advice: "pool_trim()",
    gives_back: "pool_trim()",
    against_fragmentation: &["POOL_SIZE=1"],
    asks_again: "pool_grow",
    settings: &["POOL_SIZE"],
};
