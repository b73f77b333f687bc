//! Types that the kernel side and the user side share: events, function
//! descriptions, loss reasons and limits. No I/O, no allocation, no `std`.
//!
//! Everything here crosses the kernel boundary, so it is `#[repr(C)]` with
//! fixed-width integers, explicit padding and a size asserted at compile time;
//! kinds travel as integers and are decoded with `TryFrom` on the other side.
#![no_std]

pub mod code;
pub mod device;
pub mod event;
pub mod function;
pub mod hash;
pub mod kernel;
pub mod limits;
pub mod loss;
pub mod process;
pub mod python;
pub mod row;
pub mod unwind;
pub mod usdt;

/// Which allocator was asked. Travels in four bits of a [`function::Function`]
/// and in one byte of an [`event::Header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Layer {
    /// Address space asked of the kernel: mmap, mremap, brk, shmat.
    Vm = 0,
    /// The malloc family of any allocator.
    Heap = 1,
    /// Arenas of CPython's object allocator (pymalloc): address space asked of the kernel, and
    /// left out of [`Layer::Vm`].
    Python = 2,
    /// Device memory asked of CUDA's driver (libcuda).
    CudaDriver = 3,
    /// Device memory asked of CUDA's runtime (libcudart), which asks the driver.
    CudaRuntime = 4,
    /// Device memory asked of ROCm's runtime (libamdhip64).
    Hip = 5,
    /// Page-locked host memory, whichever library was asked.
    Pinned = 6,
    /// Blocks of PyTorch's caching allocator on a device, in its own rounded sizes.
    TorchCuda = 7,
    /// PyTorch's tensors on the CPU, which malloc holds.
    TorchCpu = 8,
}

impl Layer {
    /// Every layer, in the order in which reports list them.
    pub const ALL: [Layer; 9] = [
        Layer::Vm,
        Layer::Heap,
        Layer::Python,
        Layer::CudaDriver,
        Layer::CudaRuntime,
        Layer::Hip,
        Layer::Pinned,
        Layer::TorchCuda,
        Layer::TorchCpu,
    ];

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

impl TryFrom<u8> for Layer {
    type Error = u8;

    fn try_from(value: u8) -> Result<Self, u8> {
        let known = Layer::ALL.get(usize::from(value)).copied();
        known.filter(|layer| *layer as u8 == value).ok_or(value)
    }
}

/// A type that may cross the kernel boundary as it lies in memory.
///
/// # Safety
/// `repr(C)`, integers only, no implicit padding.
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: integers only; the size is asserted beside each type.
unsafe impl Plain for process::Process {}
// SAFETY: as above.
unsafe impl Plain for process::FileKey {}
// SAFETY: as above.
unsafe impl Plain for kernel::Offsets {}
// SAFETY: as above.
unsafe impl Plain for kernel::Settings {}
// SAFETY: as above.
unsafe impl Plain for kernel::Sampling {}
// SAFETY: as above.
unsafe impl Plain for code::Mapping {}
// SAFETY: as above.
unsafe impl Plain for code::Snapshot {}
// SAFETY: as above.
unsafe impl Plain for code::Log {}
// SAFETY: as above.
unsafe impl Plain for code::KnownFile {}
// SAFETY: as above.
unsafe impl Plain for code::Exec {}
// SAFETY: as above.
unsafe impl Plain for unwind::Rule {}
// SAFETY: as above.
unsafe impl Plain for python::Interpreter {}
// SAFETY: as above.
unsafe impl Plain for device::EntryPoint {}
// SAFETY: as above.
unsafe impl Plain for device::ContextKey {}
// SAFETY: as above.
unsafe impl Plain for event::Unwinding {}
