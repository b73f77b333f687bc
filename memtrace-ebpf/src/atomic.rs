//! The atomic operations that the kernel side needs. The BPF target offers
//! none in `core::sync::atomic` (it declares no compare-and-swap), though the
//! machine has them since Linux 5.12: hence the compiler's own intrinsics.

use core::{
    intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd},
    sync::atomic::{Ordering, compiler_fence},
};

/// Adds one.
///
/// # Safety
/// `counter` must point to a live, aligned map value.
#[inline(always)]
pub(crate) unsafe fn increment(counter: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, 1) };
}

/// Adds `n` and returns the previous value.
///
/// # Safety
/// As for [`increment`].
#[inline(always)]
pub(crate) unsafe fn fetch_add(counter: *mut u64, n: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, n) }
}

/// Turns a 0 into a 1; false if it was not 0.
///
/// # Safety
/// As for [`increment`].
#[inline(always)]
pub(crate) unsafe fn claim(flag: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { claim_for(flag, 1) }
}

/// Turns a 0 into `owner`; false if it was not 0.
///
/// # Safety
/// As for [`increment`].
#[inline(always)]
pub(crate) unsafe fn claim_for(word: *mut u64, owner: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { exchange(word, 0, owner) }
}

/// Turns `old` into `new`; false if it was something else.
///
/// # Safety
/// As for [`increment`].
#[inline(always)]
pub(crate) unsafe fn exchange(word: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: the caller's promise.
    let (_, exchanged) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, old, new)
    };
    exchanged
}

/// Releases a claim of [`claim`]. A plain store: an x86 keeps the order of stores.
///
/// # Safety
/// As for [`increment`].
#[inline(always)]
pub(crate) unsafe fn release(flag: *mut u64) {
    compiler_fence(Ordering::Release);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_volatile(flag, 0) };
}
