//! PyTorch's caching allocator. It reports its totals with each block (libc10); the size requested
//! for a block, and its stream, come from a statically defined probe. Its tensors on the CPU are in
//! the heap.

use memtrace_common::Layer;
use memtrace_common::function::{Function, NO_ARGUMENT, Outcome};

use super::{
    super::{
        device_functions::{Library, UsdtRow, free, report, row, to},
        functions::Row,
    },
    CachingAllocator,
};

pub(super) const PYTORCH: CachingAllocator = CachingAllocator {
    name: "PyTorch",
    layer: BLOCKS,
    // Its probes exist since 2.3; the one for a release adds no information.
    caller: Library {
        name: "PyTorch's caching allocator",
        files: &["libc10_cuda", "libc10_hip"],
        rows: &[],
        alternatives: &[],
        usdt: &[UsdtRow {
            name: "pytorch:malloc",
            layer: BLOCKS,
            arguments: [0, 2, 3],
        }],
    },
    others: &[Library {
        name: "PyTorch",
        files: &["libc10"],
        rows: C10,
        alternatives: &[
            &[REPORT, REPORT_OLD],
            &[OUT_OF_MEMORY, OUT_OF_MEMORY_OLD],
            &[ALLOC_CPU, REPORTER_NEW],
            &[FREE_CPU, REPORTER_DELETE],
        ],
        usdt: &[],
    }],
    advice: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or torch.cuda.empty_cache()",
    gives_back: "torch.cuda.empty_cache()",
    against_fragmentation: &[
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "or PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:N, with N below the requested size",
    ],
    asks_again: "DeviceCachingAllocator",
    settings: &["PYTORCH_*"],
};

const BLOCKS: Layer = Layer::TorchCuda;

/// `c10::reportMemoryUsageToProfiler` (c10/core/Allocator.h) since PyTorch 2.0, and before.
const REPORT: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
const REPORT_OLD: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE";
/// `c10::reportOutOfMemoryToProfiler`, of the same library.
const OUT_OF_MEMORY: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
const OUT_OF_MEMORY_OLD: &str = "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE";
/// `c10::alloc_cpu`, `c10::free_cpu` (c10/core/impl/alloc_cpu.h).
const ALLOC_CPU: &str = "_ZN3c109alloc_cpuEm";
const FREE_CPU: &str = "_ZN3c108free_cpuEPv";
/// `c10::ProfiledCPUMemoryReporter` (c10/core/CPUAllocator.h), which reports the blocks of the above.
const REPORTER_NEW: &str = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm";
const REPORTER_DELETE: &str = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv";

/// libc10 of PyTorch 1.13 to 2.15.
const C10: &[Row] = &[
    row(REPORT, report(BLOCKS, 0, 1)),
    row(REPORT_OLD, report(BLOCKS, 0, 1)),
    row(OUT_OF_MEMORY, report(BLOCKS, NO_ARGUMENT, 0)),
    row(OUT_OF_MEMORY_OLD, report(BLOCKS, NO_ARGUMENT, 0)),
    row(
        ALLOC_CPU,
        Function {
            outcome: Outcome::Pointer,
            // c10::Error if there is no memory.
            may_throw: true,
            ..to(Layer::TorchCpu, 0)
        },
    ),
    row(FREE_CPU, free(Layer::TorchCpu, 0)),
    row(
        REPORTER_NEW,
        Function {
            outcome: Outcome::Block,
            block: 1,
            ..to(Layer::TorchCpu, 2)
        },
    ),
    row(REPORTER_DELETE, free(Layer::TorchCpu, 1)),
];
