//! Changes of words that several processors may want at once, for kernels whose atomic instructions do not return the old
//! value (before Linux 5.12). A program may change a word once it has put the word's key into a map. Programs cannot be
//! preempted there (before Linux 6.0), so none holds a word for long.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::HashMap};

/// Words that are being changed, see [`crate::atomic::word`].
#[map]
static HELD: HashMap<u64, u8> = HashMap::with_max_entries(1024, 0);

/// Not a word.
#[cfg(bpf_target_arch = "aarch64")]
const NONE: u64 = u64::MAX;

/// What was written before this is written before what is written after it: both take the lock of one bucket.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn keep_order() {
    hold(NONE);
    let_go(NONE);
}

/// Attempts before a word is given up.
const ATTEMPTS: u32 = 128;

#[inline(always)]
fn hold(which: u64) -> bool {
    HELD.insert(&which, &1, BPF_NOEXIST.into()).is_ok()
}

#[inline(always)]
fn let_go(which: u64) {
    let _ = HELD.remove(&which);
}

// VERIFIER: a global function.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn hold_in_turn(which: u64) -> u64 {
    for _ in 0..ATTEMPTS {
        if hold(which) {
            return 1;
        }
    }
    0
}

/// Adds `n` and returns the previous value; `None` if others keep it from that.
///
/// # Safety
/// As for [`crate::atomic::increment`].
#[inline(always)]
pub(crate) unsafe fn take_number(counter: *mut u64, n: u64, which: u64) -> Option<u64> {
    if hold_in_turn(which) == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let before = unsafe { core::ptr::read_volatile(counter) };
    // SAFETY: as above.
    unsafe { core::ptr::write_volatile(counter, before.wrapping_add(n)) };
    let_go(which);
    Some(before)
}

/// Turns a 0 into a 1; false if it was not 0. Of a processor's own flag.
///
/// # Safety
/// As for [`crate::atomic::increment`].
#[inline(always)]
pub(crate) unsafe fn claim(flag: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let is_free = core::ptr::read_volatile(flag) == 0;
        if is_free {
            core::ptr::write_volatile(flag, 1);
        }
        is_free
    }
}

/// Turns a 0 into `owner`; false if it was not 0, or others keep it from that.
///
/// # Safety
/// As for [`crate::atomic::increment`].
#[inline(always)]
pub(crate) unsafe fn claim_for(word: *mut u64, owner: u64, which: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { exchange(word, 0, owner, which) }
}

/// Turns `old` into `new`; false if it was something else, or others keep it from that.
///
/// # Safety
/// As for [`crate::atomic::increment`].
#[inline(always)]
pub(crate) unsafe fn exchange(word: *mut u64, old: u64, new: u64, which: u64) -> bool {
    if !hold(which) {
        return false;
    }
    // SAFETY: the caller's promise.
    let is_same = unsafe { core::ptr::read_volatile(word) } == old;
    if is_same {
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(word, new) };
    }
    let_go(which);
    is_same
}
