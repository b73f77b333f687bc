//! Code objects of Python as walks have met them, so that the next one need not read them again.
//!
//! Where the end of each code object is seen, one that was met is the same until one at such an address ends. Elsewhere
//! another one can have come to the address without a call of malloc. So a code object that the thread's walk before has
//! met is compared: its words, and not what they point to.

use aya_ebpf::{
    macros::{map, uprobe},
    maps::Array,
    programs::ProbeContext,
};

use crate::{arch::arguments, atomic::increment, caller::Caller, kernel_stack, scratch::Scratch};

/// The ones that walks of each [`Scratch`] have met, at the places that their addresses give. The collector chooses the
/// number of elements.
#[map]
static CODES: Array<[Seen; PLACES]> = Array::with_max_entries(1, 0);

const PLACES_BITS: u32 = 9;

/// The code objects of a loop are few.
const PLACES: usize = 1 << PLACES_BITS;

/// Ends of code objects, counted for all addresses with the same hash, of any process.
#[map]
static ENDS: Array<u64> = Array::with_max_entries(1 << ENDS_BITS, 0);

const ENDS_BITS: u32 = 12;

/// The same for the memory of all processes with the same lower bits of their tgid.
#[map]
static ENDS_IN: Array<u64> = Array::with_max_entries(1 << ENDS_BITS, 0);

/// A code object.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Seen {
    pub(crate) code: u64,
    /// Its file name, a string object.
    pub(crate) filename: u64,
    pub(crate) fingerprint: u64,
    /// A hash of the words by which it is known.
    pub(crate) words: u64,
    /// The thread's walk that has met it last, see [`crate::thread::Thread::next_walk`].
    walk: u64,
    /// [`ends`] before it was read, and the program and the epoch of the process in which it is.
    ends: u64,
    image: u64,
    epoch: u64,
}

/// The place of a code object.
#[inline(always)]
pub(crate) fn place(scratch: &Scratch, code: u64) -> Option<&'static mut Seen> {
    let seen = CODES.get_ptr_mut(scratch.slot as u32)?;
    let index = hash(code, PLACES_BITS) as usize & (PLACES - 1);
    // SAFETY: a live map value, which belongs to the claimed scratch.
    Some(unsafe { &mut (*seen)[index] })
}

/// Fibonacci hashing: the addresses are multiples of 16, and often of more.
#[inline(always)]
fn hash(code: u64, bits: u32) -> u64 {
    code.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)
}

/// How many code objects with such an address have ended.
#[inline(always)]
pub(crate) fn ends(code: u64) -> u64 {
    ends_at(end_place(code))
}

/// Where the ends of code objects with such an address are counted.
#[inline(always)]
pub(crate) fn end_place(code: u64) -> u32 {
    hash(code, ENDS_BITS) as u32
}

/// How many code objects have ended whose place is this.
#[inline(always)]
pub(crate) fn ends_at(place: u32) -> u64 {
    // SAFETY: a live map value.
    ENDS.get_ptr(place)
        .map_or(0, |count| unsafe { core::ptr::read_volatile(count) })
}

#[inline(always)]
fn place_in(space: u32) -> u32 {
    space & ((1 << ENDS_BITS) - 1)
}

/// How many code objects have ended in the memory of such processes.
#[inline(always)]
pub(crate) fn ends_in(space: u32) -> u64 {
    // SAFETY: a live map value.
    ENDS_IN
        .get_ptr(place_in(space))
        .map_or(0, |count| unsafe { core::ptr::read_volatile(count) })
}

impl Seen {
    /// Whether the code object at `code` is certainly this one. `ends`: the present [`ends`] of its address.
    #[inline(always)]
    pub(crate) fn holds(&self, code: u64, ends: u64, scratch: &Scratch) -> bool {
        scratch.walk.memo.of.has_code_ends != 0
            && self.code == code
            && self.ends == ends
            && self.image == scratch.caller.image
            && self.epoch == scratch.caller.epoch
    }

    /// Whether the thread's walk before, or this one, has met it at `code`.
    #[inline(always)]
    pub(crate) fn was_met(&self, code: u64, scratch: &Scratch) -> bool {
        let walk = scratch.walk.number;
        walk != 0 && self.code == code && walk.wrapping_sub(self.walk) <= 1
    }

    /// The [`ends`] of its address before it was read.
    #[inline(always)]
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// This walk has met it. `ends`: as before it was read.
    #[inline(always)]
    pub(crate) fn meet(&mut self, ends: u64, scratch: &Scratch) {
        self.walk = scratch.walk.number;
        self.ends = ends;
        self.image = scratch.caller.image;
        self.epoch = scratch.caller.epoch;
    }
}

/// A code object is about to be freed, and another one may come to its address.
#[uprobe]
pub fn code_dealloc(context: ProbeContext) -> u32 {
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own(&context, registers);
    let [code, ..] = arguments(registers);
    if let Some(count) = ENDS.get_ptr_mut(end_place(code)) {
        // SAFETY: a live map value.
        unsafe { increment(count) };
    }
    if let Some(caller) = Caller::traced()
        && let Some(count) = ENDS_IN.get_ptr_mut(place_in(caller.space))
    {
        // SAFETY: a live map value.
        unsafe { increment(count) };
    }
    0
}
