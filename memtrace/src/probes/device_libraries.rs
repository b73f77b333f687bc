//! Functions of drivers and runtimes that allocate and free device memory (GPUs): a table, as
//! [`crate::frames::allocators`] is one. Those of caching allocators are with these
//! ([`crate::frames::caching`]).
//!
//! Left out on purpose:
//! - cuMemAddressReserve and cuMemAddressFree: addresses, not memory. Memory of
//!   cuMemCreate is counted, until it is released and no longer mapped;
//! - cudaMemPoolCreate, …TrimTo, …Destroy and the driver's: a pool gives no
//!   memory, allocating from it does;
//! - cudaDeviceReset, cuCtxDestroy: they free without naming blocks, which
//!   therefore stay outstanding;
//! - the driver's functions without `_v2`: of 32-bit addresses.

use memtrace_common::Layer;
use memtrace_common::function::{Function, Measure, NO_ARGUMENT, Operation, Outcome};

use crate::{
    arch,
    frames::{
        caching,
        device_functions::{
            Library, array, foreign, free, graph_node, measured, other, physical, row, streamed, to,
        },
        functions::Row,
    },
};

/// Every library with functions that are known by their whole names, those of caching allocators last.
pub(crate) fn all() -> impl Iterator<Item = &'static Library> {
    LIBRARIES.iter().chain(caching::libraries())
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "CUDA driver",
        files: &["libcuda"],
        rows: CUDA_DRIVER,
        alternatives: &[
            &["cuMemHostRegister_v2", "cuMemHostRegister"],
            &["cuCtxCreate_v4", "cuCtxCreate_v3", "cuCtxCreate_v2"],
            &["cuGetProcAddress_v2", "cuGetProcAddress"],
        ],
        usdt: &[],
    },
    Library {
        name: "CUDA runtime",
        files: &["libcudart"],
        rows: CUDA_RUNTIME,
        alternatives: &[],
        usdt: &[],
    },
    Library {
        name: "HIP runtime",
        files: &["libamdhip64"],
        rows: HIP,
        alternatives: &[],
        usdt: &[],
    },
];

/// The name by which a driver's function is requested: without the version and the suffix of the
/// per-thread default stream, which the driver adds itself.
pub(crate) fn asked_name(symbol: &str) -> &str {
    let name = symbol.strip_suffix("_ptsz").unwrap_or(symbol);
    match name.rsplit_once("_v") {
        Some((name, version)) if version.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => name,
    }
}

/// The driver's functions that can be requested by name: the name, and the function.
pub(crate) fn entry_points() -> Vec<(&'static str, Row)> {
    let mut found: Vec<(&str, Row)> = Vec::new();
    for row in CUDA_DRIVER {
        let name = asked_name(row.name);
        // The resolving functions are probed themselves; of several versions the first is the
        // newest.
        if row.function.operation != Operation::Resolve
            && !found.iter().any(|(known, _)| *known == name)
        {
            found.push((name, *row));
        }
    }
    found
}

/// cuda.h. Before CUDA 13 the newer of several versions may not exist.
const CUDA_DRIVER: &[Row] = &[
    row("cuMemAlloc_v2", to(DRIVER, 1)),
    row(
        "cuMemAllocPitch_v2",
        measured(DRIVER, Measure::Pitched, 2, 3),
    ),
    row("cuMemAllocManaged", to(DRIVER, 1)),
    row("cuMemAllocAsync", streamed(DRIVER)),
    row("cuMemAllocAsync_ptsz", streamed(DRIVER)),
    row("cuMemAllocFromPoolAsync", streamed(DRIVER)),
    row("cuMemAllocFromPoolAsync_ptsz", streamed(DRIVER)),
    row("cuMemFree_v2", free(DRIVER, 0)),
    row("cuMemFreeAsync", free(DRIVER, 0)),
    row("cuMemFreeAsync_ptsz", free(DRIVER, 0)),
    row("cuMemHostAlloc", to(Layer::Pinned, 1)),
    row("cuMemAllocHost_v2", to(Layer::Pinned, 1)),
    row("cuMemFreeHost", free(Layer::Pinned, 0)),
    row("cuMemHostRegister_v2", REGISTER),
    row("cuMemHostRegister", REGISTER),
    row("cuMemHostUnregister", free(Layer::Pinned, 0)),
    row(
        "cuArrayCreate_v2",
        array(DRIVER, Measure::Array, NO_ARGUMENT),
    ),
    row(
        "cuArray3DCreate_v2",
        array(DRIVER, Measure::Array3D, NO_ARGUMENT),
    ),
    row("cuArrayDestroy", free(DRIVER, 0)),
    row("cuMipmappedArrayCreate", array(DRIVER, Measure::Array3D, 2)),
    row("cuMipmappedArrayDestroy", free(DRIVER, 0)),
    row("cuMemCreate", physical(DRIVER)),
    row("cuMemRelease", free(DRIVER, 0)),
    row("cuMemMap", other(DRIVER, Operation::Map)),
    row("cuMemUnmap", other(DRIVER, Operation::Unmap)),
    row(
        "cuMemRetainAllocationHandle",
        other(DRIVER, Operation::Retain),
    ),
    row("cuIpcOpenMemHandle_v2", foreign(DRIVER)),
    row("cuIpcCloseMemHandle", free(DRIVER, 0)),
    row("cuMemPoolImportPointer", foreign(DRIVER)),
    row("cuGraphAddMemAllocNode", graph_node(DRIVER)),
    row("cuGraphAddMemFreeNode", free(DRIVER, 4)),
    row(
        "cuMemPoolGetAttribute",
        other(DRIVER, Operation::PoolAttribute),
    ),
    row(
        "cuDevicePrimaryCtxRetain",
        context(Operation::RetainContext, 1),
    ),
    row("cuCtxCreate_v4", context(Operation::CreateContext, 3)),
    row("cuCtxCreate_v3", context(Operation::CreateContext, 4)),
    row("cuCtxCreate_v2", context(Operation::CreateContext, 2)),
    row("cuCtxSetCurrent", other(DRIVER, Operation::SetContext)),
    row("cuCtxPushCurrent_v2", other(DRIVER, Operation::PushContext)),
    row("cuCtxPopCurrent_v2", other(DRIVER, Operation::PopContext)),
    row("cuGetProcAddress_v2", other(DRIVER, Operation::Resolve)),
    row("cuGetProcAddress", other(DRIVER, Operation::Resolve)),
];

/// The argument after two pointers and a `cudaExtent`, among the registers.
const AFTER_EXTENT: u8 = 2 + arch::STRUCTURES_BY_POINTER as u8;

/// cuda_runtime_api.h.
const CUDA_RUNTIME: &[Row] = &[
    row("cudaMalloc", to(RUNTIME, 1)),
    row("cudaMallocManaged", to(RUNTIME, 1)),
    row("cudaMallocAsync", streamed(RUNTIME)),
    row("cudaMallocAsync_ptsz", streamed(RUNTIME)),
    row("cudaMallocFromPoolAsync", streamed(RUNTIME)),
    row("cudaMallocFromPoolAsync_ptsz", streamed(RUNTIME)),
    row("cudaMallocPitch", measured(RUNTIME, Measure::Pitched, 2, 3)),
    row(
        "cudaMalloc3D",
        array(RUNTIME, Measure::PitchedExtent, NO_ARGUMENT),
    ),
    row(
        "cudaMallocArray",
        measured(RUNTIME, Measure::Channels, 2, 3),
    ),
    row(
        "cudaMalloc3DArray",
        array(RUNTIME, Measure::ChannelsExtent, NO_ARGUMENT),
    ),
    row(
        "cudaMallocMipmappedArray",
        array(RUNTIME, Measure::ChannelsExtent, AFTER_EXTENT),
    ),
    row("cudaFree", free(RUNTIME, 0)),
    row("cudaFreeAsync", free(RUNTIME, 0)),
    row("cudaFreeAsync_ptsz", free(RUNTIME, 0)),
    row("cudaFreeArray", free(RUNTIME, 0)),
    row("cudaFreeMipmappedArray", free(RUNTIME, 0)),
    row("cudaMallocHost", to(Layer::Pinned, 1)),
    row("cudaHostAlloc", to(Layer::Pinned, 1)),
    row("cudaFreeHost", free(Layer::Pinned, 0)),
    row("cudaHostRegister", REGISTER),
    row("cudaHostUnregister", free(Layer::Pinned, 0)),
    row("cudaIpcOpenMemHandle", foreign(RUNTIME)),
    row("cudaIpcCloseMemHandle", free(RUNTIME, 0)),
    row("cudaMemPoolImportPointer", foreign(RUNTIME)),
    row("cudaGraphAddMemAllocNode", graph_node(RUNTIME)),
    row("cudaGraphAddMemFreeNode", free(RUNTIME, 4)),
    row(
        "cudaMemPoolGetAttribute",
        other(RUNTIME, Operation::PoolAttribute),
    ),
    row("cudaSetDevice", other(RUNTIME, Operation::SetDevice)),
    row(
        "cudaGetDriverEntryPoint",
        other(RUNTIME, Operation::Resolve),
    ),
    row(
        "cudaGetDriverEntryPointByVersion",
        other(RUNTIME, Operation::Resolve),
    ),
];

/// hip_runtime_api.h, whose functions and structures have the same layout as CUDA's.
const HIP: &[Row] = &[
    row("hipMalloc", to(Layer::Hip, 1)),
    row("hipExtMallocWithFlags", to(Layer::Hip, 1)),
    row("hipMallocManaged", to(Layer::Hip, 1)),
    row("hipMallocAsync", streamed(Layer::Hip)),
    row("hipMallocFromPoolAsync", streamed(Layer::Hip)),
    row(
        "hipMallocPitch",
        measured(Layer::Hip, Measure::Pitched, 2, 3),
    ),
    row(
        "hipMemAllocPitch",
        measured(Layer::Hip, Measure::Pitched, 2, 3),
    ),
    row(
        "hipMalloc3D",
        array(Layer::Hip, Measure::PitchedExtent, NO_ARGUMENT),
    ),
    row(
        "hipMallocArray",
        measured(Layer::Hip, Measure::Channels, 2, 3),
    ),
    row(
        "hipMalloc3DArray",
        array(Layer::Hip, Measure::ChannelsExtent, NO_ARGUMENT),
    ),
    row(
        "hipMallocMipmappedArray",
        array(Layer::Hip, Measure::ChannelsExtent, AFTER_EXTENT),
    ),
    row(
        "hipArrayCreate",
        array(Layer::Hip, Measure::Array, NO_ARGUMENT),
    ),
    row(
        "hipArray3DCreate",
        array(Layer::Hip, Measure::Array3D, NO_ARGUMENT),
    ),
    row("hipFree", free(Layer::Hip, 0)),
    row("hipFreeAsync", free(Layer::Hip, 0)),
    row("hipFreeArray", free(Layer::Hip, 0)),
    row("hipArrayDestroy", free(Layer::Hip, 0)),
    row("hipFreeMipmappedArray", free(Layer::Hip, 0)),
    row("hipHostMalloc", to(Layer::Pinned, 1)),
    row("hipHostAlloc", to(Layer::Pinned, 1)),
    row("hipMallocHost", to(Layer::Pinned, 1)),
    row("hipMemAllocHost", to(Layer::Pinned, 1)),
    row("hipHostFree", free(Layer::Pinned, 0)),
    row("hipFreeHost", free(Layer::Pinned, 0)),
    row("hipHostRegister", REGISTER),
    row("hipHostUnregister", free(Layer::Pinned, 0)),
    row("hipMemCreate", physical(Layer::Hip)),
    row("hipMemRelease", free(Layer::Hip, 0)),
    row("hipMemMap", other(Layer::Hip, Operation::Map)),
    row("hipMemUnmap", other(Layer::Hip, Operation::Unmap)),
    row(
        "hipMemRetainAllocationHandle",
        other(Layer::Hip, Operation::Retain),
    ),
    row("hipIpcOpenMemHandle", foreign(Layer::Hip)),
    row("hipIpcCloseMemHandle", free(Layer::Hip, 0)),
    row("hipMemPoolImportPointer", foreign(Layer::Hip)),
    row("hipGraphAddMemAllocNode", graph_node(Layer::Hip)),
    row("hipGraphAddMemFreeNode", free(Layer::Hip, 4)),
    row(
        "hipMemPoolGetAttribute",
        other(Layer::Hip, Operation::PoolAttribute),
    ),
    row("hipSetDevice", other(Layer::Hip, Operation::SetDevice)),
];

const DRIVER: Layer = Layer::CudaDriver;
const RUNTIME: Layer = Layer::CudaRuntime;

/// Pins a block of the caller's own: address, size.
const REGISTER: Function = Function {
    outcome: Outcome::ErrorAndBlock,
    block: 0,
    ..to(Layer::Pinned, 1)
};

/// `device` is the argument with the device's index.
const fn context(operation: Operation, device: u8) -> Function {
    Function {
        size: device,
        ..other(DRIVER, operation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn rows() -> impl Iterator<Item = &'static Row> {
        all().flat_map(|library| library.rows)
    }

    #[test]
    fn a_name_has_one_row_and_alternatives_are_rows() {
        let mut names = HashSet::new();
        for row in rows() {
            assert!(names.insert(row.name), "`{}` twice", row.name);
        }
        for library in all() {
            for name in library.alternatives.iter().copied().flatten() {
                assert!(library.rows.iter().any(|row| row.name == *name), "`{name}`");
            }
        }
    }

    #[test]
    fn a_release_names_its_block_and_arguments_are_registers() {
        for row in rows() {
            let Function {
                operation,
                size,
                count,
                block,
                ..
            } = row.function;
            if operation == Operation::Free {
                assert_ne!(block, NO_ARGUMENT, "{}", row.name);
            }
            for argument in [size, count, block] {
                assert!(argument < 6 || argument == NO_ARGUMENT, "{}", row.name);
            }
        }
    }

    #[test]
    fn files_are_known_by_the_names_that_wheels_give_them() {
        let named = |file: &str| -> Vec<&str> {
            let libraries = all().filter(|library| library.is_named(file));
            libraries.map(|library| library.name).collect()
        };
        for file in ["libcudart.so.13", "libcudart-e409450e.so.11.0"] {
            assert_eq!(named(file), ["CUDA runtime"]);
        }
        assert_eq!(named("libcuda.so.1"), ["CUDA driver"]);
        assert_eq!(named("libamdhip64.so.6"), ["HIP runtime"]);
        for file in ["libcudadebugger.so.1", "libcudnn.so.9"] {
            assert!(named(file).is_empty(), "{file}");
        }
    }

    #[test]
    fn the_driver_is_asked_by_the_plain_name() {
        for (symbol, name) in [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemAllocAsync_ptsz", "cuMemAllocAsync"),
            ("cuMemMap", "cuMemMap"),
            ("cuMem_vx", "cuMem_vx"),
        ] {
            assert_eq!(asked_name(symbol), name);
        }
        let points = entry_points();
        let names: HashSet<_> = points.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), points.len());
        assert!(names.contains("cuMemCreate") && !names.contains("cuGetProcAddress"));
    }
}
