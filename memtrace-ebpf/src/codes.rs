//! The code objects of the Python frames of a thread's last walk, so that the next one need not read all of them again.
//!
//! A frame at the same place with the same code object as in the thread's walk before is mostly the same. But another code
//! object can have come to the address without a call of malloc, so what it consists of is compared: its words, and not
//! what they point to.

use aya_ebpf::{macros::map, maps::PerCpuArray};

use crate::scratch::{SLOTS, Scratch};

/// Frames of each [`Scratch`] of each CPU, at the places that their addresses give.
#[map]
static CODES: PerCpuArray<[Seen; PLACES]> = PerCpuArray::with_max_entries(SLOTS, 0);

/// A power of two. Python's own limit of nested calls is 1,000, but few stacks come close to this.
const PLACES: usize = 256;

/// A frame as a walk has met it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Seen {
    pub(crate) frame: u64,
    pub(crate) code: u64,
    /// The code's file name, a string object.
    pub(crate) filename: u64,
    /// The thread's walk, see [`crate::thread::Thread::next_walk`].
    pub(crate) walk: u64,
    pub(crate) fingerprint: u64,
    /// A hash of the words by which the code object is known.
    pub(crate) words: u64,
}

/// The place of a frame.
#[inline(always)]
pub(crate) fn place(scratch: &Scratch, frame: u64) -> Option<&'static mut Seen> {
    let seen = CODES.get_ptr_mut(scratch.slot as u32)?;
    // Frames are some dozen bytes apart, and begin at multiples of 8.
    let index = ((frame >> 3) ^ (frame >> 9)) as usize & (PLACES - 1);
    // SAFETY: a live map value, which belongs to the claimed scratch.
    Some(unsafe { &mut (*seen)[index] })
}

impl Seen {
    /// Whether it is this frame with this code, as the thread's walk before `walk`, or this one, has met it.
    #[inline(always)]
    pub(crate) fn is(&self, frame: u64, code: u64, walk: u64) -> bool {
        walk != 0 && self.frame == frame && self.code == code && walk.wrapping_sub(self.walk) <= 1
    }
}

const _: () = assert!(PLACES.is_power_of_two());
