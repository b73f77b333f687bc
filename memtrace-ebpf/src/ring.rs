//! The producers' side of the ring buffer, see [`memtrace_common::ring`].

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_RB_FORCE_WAKEUP},
    macros::map,
    maps::{Array, RingBuf},
};
use memtrace_common::ring::{CHUNK, Chunk, ENDS, HEAD, TAIL, WORD, empty, ready, room};

use crate::{
    arch::publish,
    atomic::exchange,
    loops::{BREAK, CONTINUE, repeat},
    maps::{SETTINGS, loaded},
};

/// The collector chooses the number of elements when it loads the object.
#[map]
static RING: Array<Chunk> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
static RING_ENDS: Array<u64> = Array::with_max_entries(ENDS, BPF_F_MMAPABLE);

/// Wakes the collector.
#[map]
static BELL: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Room for one record.
pub(crate) struct Entry {
    word: *mut u64,
}

/// No position: there is no room.
const FULL: u64 = u64::MAX;

/// No position: another producer or the consumer was faster.
const TAKEN: u64 = u64::MAX - 1;

impl Entry {
    /// Reserves room for a record of `len` bytes; `None` if there is no room. `most`: a constant upper bound of `len`.
    #[inline(always)]
    pub(crate) fn reserve(len: u64, most: u64) -> Option<Self> {
        Self::at(take_in_turn(len, most), most)
    }

    /// Like [`Entry::reserve`], but inlined; the most frequent records use it.
    #[inline(always)]
    pub(crate) fn reserve_here(len: u64) -> Option<Self> {
        let mut position = take(len, len);
        if position == TAKEN {
            position = take_in_turn(len, len);
        }
        Self::at(position, len)
    }

    #[inline(always)]
    fn at(position: u64, most: u64) -> Option<Self> {
        if position == FULL {
            return None;
        }
        at(position, most).map(|word| Self { word })
    }

    /// Where the record goes.
    #[inline(always)]
    pub(crate) fn record<T>(&mut self) -> *mut T {
        // SAFETY: the record is behind the word.
        unsafe { self.word.add(1).cast() }
    }

    /// The record, of `len` bytes, is complete.
    #[inline(always)]
    pub(crate) fn submit(self, len: u64) {
        self.write(ready(len));
    }

    /// There is no record after all.
    #[inline(always)]
    pub(crate) fn discard(self, len: u64) {
        self.write(empty(len));
    }

    #[inline(always)]
    fn write(self, word: u64) {
        // SAFETY: in a live map value, and nothing else writes it.
        unsafe { publish(self.word, word) };
    }
}

/// Bytes that the collector has not read.
#[inline(always)]
pub(crate) fn unread() -> u64 {
    let tail = end(TAIL);
    end(HEAD).wrapping_sub(tail)
}

/// Wakes the collector.
#[inline(always)]
pub(crate) fn wake() {
    // Without room, the collector has been woken already. It polls as well.
    if let Some(mut entry) = BELL.reserve::<u64>(0) {
        entry.write(0);
        entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    }
}

#[inline(always)]
fn end(which: u32) -> u64 {
    RING_ENDS.get_ptr(which).map_or(0, |end| {
        // SAFETY: a live map value.
        unsafe { core::ptr::read_volatile(end) }
    })
}

/// The position of room for a record, [`FULL`] or [`TAKEN`].
#[inline(always)]
fn take(len: u64, most: u64) -> u64 {
    let Some(head) = RING_ENDS.get_ptr_mut(HEAD) else {
        return FULL;
    };
    // The tail first: it never passes a head that was read later.
    let tail = end(TAIL);
    // SAFETY: a live map value.
    let from = unsafe { core::ptr::read_volatile(head) };
    let offset = from & (CHUNK as u64 - 1);
    let mut position = from;
    if offset > CHUNK as u64 - room(most) {
        position = from + CHUNK as u64 - offset;
    }
    let to = position + room(len);
    if to.wrapping_sub(tail) > loaded(&SETTINGS.ring_bytes) {
        // If this thread was preempted between the two reads, there may be room by now.
        let is_full = end(TAIL) == tail && end(HEAD) == from;
        return if is_full { FULL } else { TAKEN };
    }
    // SAFETY: as above.
    if !unsafe { exchange(head, from, to, 0) } {
        return TAKEN;
    }
    if position != from
        && let Some(word) = at(from, 0)
    {
        // The rest of the chunk is too short.
        Entry { word }.discard(position - from - WORD);
    }
    position
}

/// The state of [`try_again`].
struct Taking {
    len: u64,
    most: u64,
    position: u64,
}

/// Attempts before a record is given up, which is counted as if there were no room.
const ATTEMPTS: u32 = 1 << 16;

// VERIFIER: a global function.
/// As [`take`], again while others are faster.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_in_turn(len: u64, most: u64) -> u64 {
    let mut taking = Taking {
        len,
        most,
        position: FULL,
    };
    repeat(ATTEMPTS, try_again, &mut taking);
    taking.position
}

/// Callback of [`repeat`].
unsafe extern "C" fn try_again(_index: u64, taking: *mut Taking) -> u64 {
    // SAFETY: the pointer is the one that `take_in_turn` passed.
    let taking = unsafe { &mut *taking };
    let position = take(taking.len, taking.most);
    if position == TAKEN {
        return CONTINUE;
    }
    taking.position = position;
    BREAK
}

/// The word at a position, with room for `most` bytes behind it.
#[inline(always)]
fn at(position: u64, most: u64) -> Option<*mut u64> {
    let number = (position & loaded(&SETTINGS.ring_mask)) / CHUNK as u64;
    let chunk = RING.get_ptr_mut(number as u32)?;
    // VERIFIER: read back, so that the compiler cannot take the bound apart from the value; a multiple of 8, as atomic
    // instructions need.
    // SAFETY: a reference is valid to read.
    let offset = unsafe { core::ptr::read_volatile(&raw const position) } & (CHUNK as u64 - 8);
    if offset > CHUNK as u64 - room(most) {
        return None;
    }
    // SAFETY: in the chunk; positions are multiples of 8.
    Some(unsafe { chunk.cast::<u8>().add(offset as usize).cast() })
}
