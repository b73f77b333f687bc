//! Which registers the kernel side reads where a function is entered, so that its probe can be
//! placed before any of them changes. It repeats what the entry programs of `memtrace-ebpf` do
//! (`calls.rs`, `codes.rs`, `device.rs`, `measure.rs`): a register that they begin to read belongs here as well.

use memtrace_common::function::{Function, Measure, NO_ARGUMENT, Operation, Outcome};

use crate::arch::{self, Reads};

/// The registers that the entry program of a function reads. Those that the cookie names may hold
/// any argument; the others are read by position.
pub(super) fn of(function: &Function) -> Reads {
    let block = Reads::anywhere(function.block);
    match function.operation {
        Operation::Free => block,
        Operation::Alloc | Operation::Realloc => block.and(address(function)).and(size(function)),
        // The block if there is one, then bytes, two totals and the device. The stack is walked from
        // the entry, because there is no return probe.
        Operation::Report if block == Reads::NOTHING => Reads::FRAME.and(positions(&[0, 1, 2, 3])),
        Operation::Report => Reads::FRAME.and(positions(&[0, 1, 2, 3, 4])),
        Operation::Map => positions(&[0, 1, 3]),
        Operation::Unmap | Operation::Resolve => positions(&[0, 1]),
        Operation::RetainContext | Operation::CreateContext => {
            positions(&[0]).and(Reads::anywhere(function.size))
        }
        Operation::Retain
        | Operation::SetDevice
        | Operation::SetContext
        | Operation::PushContext => positions(&[0]),
        Operation::PopContext => Reads::NOTHING,
        Operation::PoolAttribute => positions(&[1, 2]),
    }
}

fn positions(indices: &[u8]) -> Reads {
    let indices = indices.iter().copied().map(Reads::in_place);
    indices.fold(Reads::NOTHING, Reads::and)
}

/// The argument that says where the block's address will be written, if one does. The programs of
/// devices know no other way unless the block is an argument itself.
fn address(function: &Function) -> Reads {
    match function.outcome {
        Outcome::ErrorAndBlock => Reads::NOTHING,
        Outcome::Pointer | Outcome::Block if !function.of_device() => Reads::NOTHING,
        Outcome::ErrorAndOutPointer | Outcome::Pointer | Outcome::Block => positions(&[0]),
    }
}

/// The argument that points to a `cudaExtent`, if it is not on the stack.
fn extent(function: &Function) -> Reads {
    match function.measure {
        Measure::PitchedExtent if arch::STRUCTURES_BY_POINTER => positions(&[1]),
        Measure::ChannelsExtent if arch::STRUCTURES_BY_POINTER => positions(&[2]),
        _ => Reads::NOTHING,
    }
}

/// The arguments from which the block's size follows, besides those on the stack.
fn size(function: &Function) -> Reads {
    let described = match function.measure {
        Measure::Arguments | Measure::Foreign => NO_ARGUMENT,
        Measure::PitchedExtent => 0,
        Measure::Pitched
        | Measure::Channels
        | Measure::ChannelsExtent
        | Measure::Array
        | Measure::Array3D => 1,
        Measure::Physical => 2,
        Measure::GraphNode => 4,
    };
    Reads::anywhere(function.size)
        .and(Reads::anywhere(function.count))
        .and(positions(&[described]))
        .and(extent(function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::functions::{FAMILY, OPERATORS},
        probes::device_libraries,
    };

    fn reads(name: &str) -> Reads {
        let devices = device_libraries::all().flat_map(|library| library.rows);
        let mut rows = FAMILY.iter().chain(OPERATORS).chain(devices);
        of(&rows.find(|row| row.name == name).unwrap().function)
    }

    #[test]
    fn only_the_arguments_that_are_used_are_read() {
        // Name, arguments read by position, arguments that may be anywhere.
        for (name, by_position, anywhere) in [
            ("malloc", &[][..], &[0][..]),
            ("calloc", &[], &[0, 1]),
            ("realloc", &[], &[0, 1]),
            ("reallocarray", &[], &[0, 1, 2]),
            ("free", &[], &[0]),
            ("free_aligned_sized", &[], &[0]),
            // The alignment is not recorded.
            ("posix_memalign", &[0], &[2]),
            ("aligned_alloc", &[], &[1]),
            ("_ZnwmSt11align_val_t", &[], &[0]),
            ("_ZdlPvm", &[], &[0]),
            ("cudaMalloc", &[0], &[1]),
            ("cudaMallocPitch", &[0, 1], &[2, 3]),
            ("cudaMallocArray", &[0, 1], &[2, 3]),
            ("cuArrayCreate_v2", &[0, 1], &[]),
            ("cuMemCreate", &[0, 2], &[1]),
            ("cuMemHostRegister_v2", &[], &[0, 1]),
            ("cuGraphAddMemAllocNode", &[0, 4], &[]),
            ("cuGraphAddMemFreeNode", &[], &[4]),
            ("cuIpcOpenMemHandle_v2", &[0], &[]),
            ("cuMemMap", &[0, 1, 3], &[]),
            ("cuMemUnmap", &[0, 1], &[]),
            ("cuMemRetainAllocationHandle", &[0], &[]),
            ("cuDevicePrimaryCtxRetain", &[0], &[1]),
            ("cuCtxCreate_v3", &[0], &[4]),
            ("cuCtxPushCurrent_v2", &[0], &[]),
            ("cuCtxPopCurrent_v2", &[], &[]),
            ("cuGetProcAddress_v2", &[0, 1], &[]),
            ("cuMemPoolGetAttribute", &[1, 2], &[]),
            ("_ZN3c109alloc_cpuEm", &[], &[0]),
            ("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm", &[], &[1, 2]),
        ] {
            let anywhere = anywhere.iter().copied().map(Reads::anywhere);
            let expected = anywhere.fold(positions(by_position), Reads::and);
            assert_eq!(reads(name), expected, "{name}");
        }
    }

    #[test]
    fn an_extent_on_the_stack_takes_no_register() {
        let (volume, mipmapped) = (reads("cudaMalloc3D"), reads("cudaMallocMipmappedArray"));
        let expected = match arch::STRUCTURES_BY_POINTER {
            true => (
                positions(&[0, 1]),
                positions(&[0, 1, 2]).and(Reads::anywhere(3)),
            ),
            false => (positions(&[0]), positions(&[0, 1]).and(Reads::anywhere(2))),
        };
        assert_eq!((volume, mipmapped), expected);
    }

    #[test]
    fn a_report_is_read_by_position_and_begins_a_walk() {
        let with_block = reads("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
        assert_eq!(with_block, positions(&[0, 1, 2, 3, 4]).and(Reads::FRAME));
        let without = reads("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
        assert_eq!(without, positions(&[0, 1, 2, 3]).and(Reads::FRAME));
    }
}
