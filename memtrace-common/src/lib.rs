//! Types that the kernel side and the user side share: events, function
//! descriptions, loss reasons and limits. No I/O, no allocation, no `std`.
//!
//! Everything here crosses the kernel boundary, so it is `#[repr(C)]` with
//! fixed-width integers, explicit padding and a size asserted at compile time;
//! kinds travel as integers and are decoded with `TryFrom` on the other side.
#![no_std]

pub mod arch;
pub mod code_map;
pub mod device;
pub mod element;
pub mod event;
pub mod function;
pub mod hash;
pub mod kernel;
pub mod limits;
pub mod loss;
pub mod numbered_path;
pub mod process;
pub mod python;
pub mod ring;
pub mod row_cache;
mod rule;
pub mod thread_cache;
pub mod unwind;
pub mod unwind_table;
pub mod usdt;
mod wire;

use wire::wire_enum;

/// Identifies the sources of this crate. The kernel side carries it, so that one built from other sources is found out.
pub const ABI: u64 = parse_hex(env!("MEMTRACE_ABI"));

const fn parse_hex(digits: &str) -> u64 {
    match u64::from_str_radix(digits, 16) {
        Ok(value) => value,
        Err(_) => panic!("the build script gives hexadecimal digits"),
    }
}

wire_enum! {
    /// Which allocator was asked. Travels in four bits of a [`function::Function`]
    /// and in one byte of an [`event::Header`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Layer: u8 {
        /// Address space from the kernel: mmap, mremap, brk, shmat.
        Vm = 0,
        /// The malloc family of any allocator.
        Heap = 1,
        /// Arenas of CPython's object allocator (pymalloc): address space from the kernel, and
        /// left out of [`Layer::Vm`].
        Python = 2,
        /// Device memory from CUDA's driver (libcuda).
        CudaDriver = 3,
        /// Device memory from CUDA's runtime (libcudart), which gets it from the driver.
        CudaRuntime = 4,
        /// Device memory from ROCm's runtime (libamdhip64).
        Hip = 5,
        /// Page-locked host memory, whichever library was asked.
        Pinned = 6,
        /// Blocks of PyTorch's caching allocator on a device, in its own rounded sizes.
        TorchCuda = 7,
        /// PyTorch's tensors on the CPU, which malloc holds.
        TorchCpu = 8,
    }
}

impl Layer {
    /// The layer's name in reports, JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Layer::Vm => "vm",
            Layer::Heap => "heap",
            Layer::Python => "python",
            Layer::CudaDriver => "cuda-driver",
            Layer::CudaRuntime => "cuda-runtime",
            Layer::Hip => "hip",
            Layer::Pinned => "pinned",
            Layer::TorchCuda => "torch-cuda",
            Layer::TorchCpu => "torch-cpu",
        }
    }

    /// Whether its blocks belong to a device's context. A forked child has no such context, so it
    /// inherits none of them.
    pub const fn of_device(self) -> bool {
        matches!(
            self,
            Layer::CudaDriver | Layer::CudaRuntime | Layer::Hip | Layer::Pinned | Layer::TorchCuda
        )
    }
}
