//! The one way out: records go to the ring buffer here, and every loss is
//! counted here.
//!
//! `emitted = received + dropped` holds because each attempt counts as emitted
//! first and then either becomes a record or one of the `ring_full_*` reasons.

#[cfg(not(feature = "legacy"))]
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_get_smp_processor_id};
use memtrace_common::{
    event::{Header, Kind},
    loss::{COUNTER_EMITTED, COUNTER_WORDS, Reason},
};

use crate::{
    atomic::increment,
    caller::Caller,
    maps::{COUNTERS_MAP, SETTINGS, loaded},
    ring::{self, Entry},
};

/// Counts one loss.
#[inline(always)]
pub(crate) fn lost(reason: Reason) {
    add(reason as u32);
}

/// Gives the counter of this CPU.
#[inline(always)]
fn add(slot: u32) -> u64 {
    // SAFETY: the helper has no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    COUNTERS_MAP.get_ptr_mut(cpu).map_or(0, |counters| {
        // Atomic although they are this CPU's: a uprobe program can be preempted
        // between load and store, and the sums have to add up.
        // SAFETY: the pointer is to a live, aligned map value, and the place within it.
        unsafe {
            let counter = counters
                .cast::<u64>()
                .add(slot as usize & (COUNTER_WORDS - 1));
            increment(counter);
            core::ptr::read_volatile(counter)
        }
    })
}

/// Counts one record; gives how many this CPU has sent so far.
#[inline(always)]
fn count() -> u64 {
    add(COUNTER_EMITTED)
}

/// Small records of a CPU between two looks at how much is unread, a power of two.
const LOOK_EVERY: u64 = 16;

/// A record of as many bytes is not small.
const LARGE: u64 = 256;

/// When the collector is to be woken for a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// When enough is unread; else it looks by itself, some dozen times a second.
    Lazily,
    /// Now: a process waits for it.
    Now,
}

impl Wake {
    /// Wakes the collector if necessary. `bytes`: size of the record just sent; `emitted`: records of this CPU so far.
    #[inline(always)]
    fn after(self, bytes: u64, emitted: u64) {
        if self == Wake::Now
            || ((bytes >= LARGE || emitted & (LOOK_EVERY - 1) == 0)
                && ring::unread() >= loaded(&SETTINGS.wake_bytes))
        {
            ring::wake();
        }
    }
}

/// First bytes of a record made now.
#[inline(always)]
pub(crate) fn header(kind: Kind, caller: &Caller) -> Header {
    header_at(kind, caller, now())
}

/// The time.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// First bytes of a record made at `time_ns`.
#[inline(always)]
pub(crate) fn header_at(kind: Kind, caller: &Caller, time_ns: u64) -> Header {
    Header {
        kind: kind as u8,
        layer: 0,
        flags: 0,
        tgid: caller.space,
        tid: caller.tid,
        pad: 0,
        time_ns,
    }
}

/// Sends one record; counts it under `reason` and returns false if there is no room.
#[inline(always)]
pub(crate) fn emit<T: Copy + 'static>(record: &T, reason: Reason, wake: Wake) -> bool {
    emit_after(record, reason, wake, || true)
}

/// Like [`emit`], but faster and with more code; the most frequent records use it.
#[inline(always)]
pub(crate) fn emit_here<T: Copy + 'static>(record: &T, reason: Reason, wake: Wake) -> bool {
    put(
        Entry::reserve_here(size_of::<T>() as u64),
        record,
        reason,
        wake,
        || true,
    )
}

/// Sends one record if there is room and `commit` returns true. Reserving comes first, so that `commit` never acts
/// without being reported.
#[inline(always)]
pub(crate) fn emit_after<T: Copy + 'static>(
    record: &T,
    reason: Reason,
    wake: Wake,
    commit: impl FnOnce() -> bool,
) -> bool {
    let bytes = size_of::<T>() as u64;
    put(Entry::reserve(bytes, bytes), record, reason, wake, commit)
}

#[inline(always)]
fn put<T: Copy + 'static>(
    room: Option<Entry>,
    record: &T,
    reason: Reason,
    wake: Wake,
    commit: impl FnOnce() -> bool,
) -> bool {
    let bytes = size_of::<T>() as u64;
    let Some(mut entry) = room else {
        no_room(reason);
        return false;
    };
    // SAFETY: there is room for one.
    unsafe { entry.record::<T>().write(*record) };
    if commit() {
        submit(entry, bytes, wake);
        true
    } else {
        entry.discard(bytes);
        false
    }
}

/// Sends one record, written in place by `fill`; false if there is no room, which is counted under
/// `reason`. `None`: it is about memtrace itself, and is then discarded.
#[inline(always)]
pub(crate) fn emit_in_place<T: 'static>(
    reason: Option<Reason>,
    wake: Wake,
    fill: impl FnOnce(*mut T),
) -> bool {
    let bytes = size_of::<T>() as u64;
    let Some(mut entry) = Entry::reserve(bytes, bytes) else {
        if let Some(reason) = reason {
            no_room(reason);
        }
        return false;
    };
    fill(entry.record());
    submit(entry, bytes, wake);
    true
}

/// Sends a record of variable length.
///
/// # Safety
/// `data` must be valid for `len` bytes, which the verifier must be able to see to be `MOST` at most.
#[inline(always)]
pub(crate) unsafe fn emit_bytes<const MOST: u64>(
    data: *const u8,
    len: u64,
    reason: Reason,
) -> bool {
    #[cfg(feature = "legacy")]
    // SAFETY: the caller's promise.
    return unsafe { emit_at_once(data, len, reason) };
    #[cfg(not(feature = "legacy"))]
    // SAFETY: the caller's promise.
    unsafe {
        emit_reserved::<MOST>(data, len, reason)
    }
}

/// As [`emit_bytes`].
#[cfg(feature = "legacy")]
#[inline(always)]
unsafe fn emit_at_once(data: *const u8, len: u64, reason: Reason) -> bool {
    // SAFETY: the caller's promise.
    if !unsafe { ring::copy(data, len) } {
        no_room(reason);
        return false;
    }
    Wake::Lazily.after(len, count());
    true
}

/// As [`emit_bytes`].
#[cfg(not(feature = "legacy"))]
#[inline(always)]
unsafe fn emit_reserved<const MOST: u64>(data: *const u8, len: u64, reason: Reason) -> bool {
    let Some(mut entry) = Entry::reserve(len, MOST) else {
        no_room(reason);
        return false;
    };
    // SAFETY: there is room for `MOST` bytes; the rest is the caller's promise.
    unsafe { bpf_probe_read_kernel(entry.record(), len as u32, data.cast()) };
    submit(entry, len, Wake::Lazily);
    true
}

/// Completes a record of this many bytes.
#[inline(always)]
fn submit(entry: Entry, bytes: u64, wake: Wake) {
    let emitted = count();
    entry.submit(bytes);
    wake.after(bytes, emitted);
}

/// Counts a record that found no room, and wakes the collector.
#[inline(always)]
fn no_room(reason: Reason) {
    count();
    lost(reason);
    ring::wake();
}
