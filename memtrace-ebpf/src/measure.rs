//! How large a block of a device is, from the arguments of the call: rows,
//! volumes and arrays have dimensions instead of a size.

use memtrace_common::function::{Cookie, Measure, NO_ARGUMENT};

use crate::{
    arch::{Arguments, argument, structure},
    calls,
    memory::word_or_zero as word,
    thread::Call,
};

/// Levels of a mipmapped array that are added up; each is an eighth to a half of the one before.
const LEVELS: u64 = 16;

/// CUDA_MEM_ALLOC_NODE_PARAMS, cudaMemAllocNodeParams: `bytesize` and `dptr`, bytes.
const NODE_SIZE: u64 = 104;
const NODE_POINTER: u64 = 112;

/// CUDA_ARRAY3D_DESCRIPTOR_FLAGS that make no difference here are left aside: a cubemap's depth
/// says six faces.
#[derive(Clone, Copy)]
struct Extent {
    width: u64,
    height: u64,
    depth: u64,
}

impl Extent {
    /// Elements, a dimension of 0 counting as absent. Wraps only beyond the capacity of any device.
    #[inline(always)]
    fn elements(self) -> u64 {
        at_least_one(self.width)
            .wrapping_mul(at_least_one(self.height))
            .wrapping_mul(at_least_one(self.depth))
    }
}

// VERIFIER: without a branch: each level would have several, and each doubles the paths.
#[inline(always)]
fn at_least_one(x: u64) -> u64 {
    x | x.wrapping_sub(1) >> 63
}

/// 1 if a < b, else 0; for numbers below 2^63. As above.
#[inline(always)]
fn less(a: u64, b: u64) -> u64 {
    core::hint::black_box(a.wrapping_sub(b)) >> 63
}

/// Not inlined: it would be verified again wherever it is used.
#[inline(never)]
pub(crate) fn product(a: u64, b: u64) -> u64 {
    calls::product(a, b)
}

/// Whether a block is known by a handle.
#[inline(always)]
pub(crate) fn is_physical(cookie: Cookie) -> bool {
    cookie.measure() == Measure::Physical as u8
}

/// Fills in the size and its inputs, and where the address will be. `sp`: the stack pointer at the entry.
#[inline(always)]
pub(crate) fn block(cookie: Cookie, arguments: &Arguments, sp: u64, call: &mut Call) {
    let measure = cookie.measure();
    let size = argument(arguments, cookie.size());
    let has_count = cookie.count() != NO_ARGUMENT;
    let count = argument(arguments, cookie.count());
    if measure == Measure::Arguments as u8 {
        call.size = if has_count {
            product(size, count)
        } else {
            size
        };
    } else if measure == Measure::Pitched as u8 {
        (call.size, call.row, call.factor) = (count, size, arguments[1]);
    } else if measure == Measure::PitchedExtent as u8 {
        let extent = extent(structure(arguments, 1, sp));
        call.size = product(extent.height, extent.depth);
        (call.row, call.factor) = (extent.width, arguments[0].wrapping_add(8));
    } else if measure == Measure::Physical as u8 {
        call.size = size;
    } else if measure == Measure::GraphNode as u8 {
        call.size = word(arguments[4].wrapping_add(NODE_SIZE));
        call.pointer = arguments[4].wrapping_add(NODE_POINTER);
    } else if measure == Measure::Foreign as u8 {
        call.size = 0;
    } else {
        call.size = array(
            measure,
            arguments,
            sp,
            size,
            if has_count { count } else { 0 },
        );
    }
}

/// Bytes of an array as its dimensions have them; the driver may round them up.
#[inline(never)]
fn array(measure: u8, arguments: &Arguments, sp: u64, size: u64, count: u64) -> u64 {
    let descriptor = arguments[1];
    let (element, of, levels) = if measure == Measure::Channels as u8 {
        let of = Extent {
            width: size,
            height: count,
            depth: 1,
        };
        (channels(descriptor), of, 1)
    } else if measure == Measure::ChannelsExtent as u8 {
        (
            channels(descriptor),
            extent(structure(arguments, 2, sp)),
            count,
        )
    } else if measure == Measure::Array as u8 {
        let of = Extent {
            width: word(descriptor),
            height: word(descriptor.wrapping_add(8)),
            depth: 1,
        };
        (format(descriptor.wrapping_add(16)), of, 1)
    } else {
        (
            format(descriptor.wrapping_add(24)),
            extent(descriptor),
            count,
        )
    };
    let mut elements = of.elements();
    for level in 1..LEVELS {
        let part = Extent {
            width: of.width >> level,
            height: of.height >> level,
            depth: of.depth >> level,
        };
        elements = elements.wrapping_add(part.elements().wrapping_mul(less(level, levels)));
    }
    elements.wrapping_mul(element)
}

#[inline(always)]
fn extent(addr: u64) -> Extent {
    Extent {
        width: word(addr),
        height: word(addr.wrapping_add(8)),
        depth: word(addr.wrapping_add(16)),
    }
}

/// Bytes of an element of a `cudaChannelFormatDesc`: four ints, the bits of each channel.
#[inline(always)]
fn channels(descriptor: u64) -> u64 {
    let pair = |offset: u64| {
        let two = word(descriptor.wrapping_add(offset));
        (two & 0xffff_ffff) + (two >> 32)
    };
    (pair(0) + pair(8)) / 8
}

/// Bytes of an element of a driver's array: `CUarray_format` and the number of channels. Formats
/// without a channel size of their own (planar, block-compressed) count as a byte a channel.
#[inline(always)]
fn format(addr: u64) -> u64 {
    let both = word(addr);
    let (format, channels) = (both & 0xffff_ffff, both >> 32);
    let bytes = match format {
        // CU_AD_FORMAT_{UN,}SIGNED_INT16, HALF; …INT32, FLOAT
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 1,
    };
    bytes * channels
}
