//! Sends some walks with their input, so that the collector can repeat them by other means (`memtrace record
//! --verify-stacks`). When off, the verifier drops all of it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_user};
use memtrace_common::{
    event::{COPIED_PAGE, COPIED_PAGES, COPIED_RETURNS, Kind, Verify},
    kernel::Sampling,
    unwind::End,
};

#[cfg(feature = "legacy")]
use crate::atomic::add;
use crate::{
    atomic::increment,
    code::Code,
    emit::{self, Wake, emit_in_place, header},
    kernel::PendingReturns,
    maps::{SAMPLING, SETTINGS, loaded},
    scratch::Scratch,
};

/// Sends the walk that has just ended, if it is its turn.
#[inline(always)]
pub(crate) fn sample(scratch: &Scratch, end: End) {
    let every = loaded(&SETTINGS.verify_every);
    if every == 0 {
        return;
    }
    let Some(sampling) = SAMPLING.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a live map value.
    unsafe {
        if number(&raw mut (*sampling).walks, 1) % every == 0
            && !(has_budget(sampling) && send(scratch, end))
        {
            increment(&raw mut (*sampling).skipped);
        }
    }
}

/// Whether walks are verified at all.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    loaded(&SETTINGS.verify_every) != 0
}

/// Counts a walk that was found among [`crate::walks`] (else 0), and was made all the same. `key`: that of the stack.
#[inline(always)]
pub(crate) fn compare(found: u64, key: u64) {
    if !is_on() || found == 0 {
        return;
    }
    if let Some(sampling) = SAMPLING.get_ptr_mut(0) {
        // SAFETY: a live map value.
        unsafe {
            increment(&raw mut (*sampling).found);
            if found != key {
                increment(&raw mut (*sampling).found_wrong);
            }
        }
    }
}

/// Takes one record off the budget of this second. Several CPUs may begin a second at the same
/// time and forget some of the other's bytes.
///
/// # Safety
/// `sampling` must point to a live map value.
#[inline(always)]
unsafe fn has_budget(sampling: *mut Sampling) -> bool {
    let second = emit::now() >> 30;
    // SAFETY: the caller's promise.
    unsafe {
        if core::ptr::read_volatile(&raw const (*sampling).second) != second {
            core::ptr::write_volatile(&raw mut (*sampling).second, second);
            core::ptr::write_volatile(&raw mut (*sampling).bytes, 0);
        }
        let size = size_of::<Verify>() as u64;
        number(&raw mut (*sampling).bytes, size) + size <= loaded(&SETTINGS.verify_bytes)
    }
}

/// Adds `n` and gives the value before that.
///
/// # Safety
/// `counter` must point into a live map value.
#[cfg(not(feature = "legacy"))]
#[inline(always)]
unsafe fn number(counter: *mut u64, n: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { crate::atomic::take_number(counter, n, 0) }.unwrap_or(0)
}

/// Adds `n` and gives the value before that, or a later one: a walk more or less makes no difference.
///
/// # Safety
/// `counter` must point into a live map value.
#[cfg(feature = "legacy")]
#[inline(always)]
unsafe fn number(counter: *mut u64, n: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        add(counter, n);
        core::ptr::read_volatile(counter).wrapping_sub(n)
    }
}

/// False if there was no room.
#[inline(always)]
fn send(scratch: &Scratch, end: End) -> bool {
    emit_in_place(None, Wake::Lazily, |record: *mut Verify| {
        // SAFETY: the pointer is to room for one; the helpers check what they read and write
        // zeroes where they cannot.
        unsafe {
            (&raw mut (*record).header).write(header(Kind::Verify, &scratch.caller));
            (*record).at = scratch.at;
            (*record).sequence = Code::of(scratch.caller.space).map_or(0, |code| code.sequence());
            (*record).n = scratch.len();
            (*record).end = end as u32;
            let frames = &raw mut (*record).frames;
            bpf_probe_read_kernel(
                frames.cast(),
                size_of_val(scratch.frames()) as u32,
                scratch.frames().as_ptr().cast(),
            );
            copy_returns(record);
            copy_stack(record, scratch.at.sp);
        }
    })
}

#[inline(always)]
unsafe fn copy_returns(record: *mut Verify) {
    let returns = PendingReturns::current();
    let mut instance = returns.first();
    let mut pending = 0;
    for index in 0..COPIED_RETURNS {
        if instance == 0 {
            break;
        }
        let (entry, next) = PendingReturns::entry(instance);
        // SAFETY: the caller's promise.
        unsafe { (*record).returns[index] = entry };
        pending += 1;
        instance = next;
    }
    // SAFETY: as above.
    unsafe {
        (*record).trampoline = returns.trampoline();
        (*record).pending = pending;
    }
}

/// Page by page, so that one that cannot be read costs only itself and those behind it.
#[inline(always)]
unsafe fn copy_stack(record: *mut Verify, sp: u64) {
    let mut from = sp & !(COPIED_PAGE as u64 - 1);
    let mut pages = 0;
    for page in 0..COPIED_PAGES {
        // SAFETY: the caller's promise; the helper checks the source.
        let error = unsafe {
            bpf_probe_read_user(
                (&raw mut (*record).copy[page]).cast(),
                COPIED_PAGE as u32,
                from as *const c_void,
            )
        };
        if error != 0 {
            break;
        }
        pages += 1;
        from = from.wrapping_add(COPIED_PAGE as u64);
    }
    // SAFETY: as above.
    unsafe { (*record).pages = pages };
}
