//! The atomic operations that the kernel side needs. The BPF target offers
//! none in `core::sync::atomic` (it declares no compare-and-swap), though the
//! machine has them since Linux 5.12: hence the compiler's own intrinsics.

#[cfg(not(feature = "legacy"))]
use core::intrinsics::atomic_cxchg;
use core::intrinsics::{AtomicOrdering, atomic_xadd};

#[cfg(feature = "legacy")]
pub(crate) use crate::held::{claim, claim_for, exchange, take_number};

/// What kind of word several processors may change at once; a word's number is added.
pub(crate) mod word {
    pub(crate) const PLACE: u64 = 1 << 32;
    pub(crate) const LOG: u64 = 2 << 32;
    pub(crate) const WALK: u64 = 3 << 32;
}

/// Adds one.
///
/// # Safety
/// `counter` must point to a live, aligned map value.
#[inline(always)]
pub(crate) unsafe fn increment(counter: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, 1) };
}

/// Adds `n`.
///
/// # Safety
/// As for [`increment`].
#[inline(always)]
pub(crate) unsafe fn add(counter: *mut u64, n: u64) {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { ADDS }>(counter, n) };
}

/// An order for which the compiler uses the instruction that returns the old value.
#[cfg(not(feature = "legacy"))]
const ADDS: AtomicOrdering = AtomicOrdering::SeqCst;
/// And one for which it does not.
#[cfg(feature = "legacy")]
const ADDS: AtomicOrdering = AtomicOrdering::Relaxed;

/// Adds `n` and returns the previous value; `None` if others keep it from that. `which`: the [`word`].
///
/// # Safety
/// As for [`increment`].
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) unsafe fn take_number(counter: *mut u64, n: u64, _which: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    Some(unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, n) })
}

/// Turns a 0 into a 1; false if it was not 0.
///
/// # Safety
/// As for [`increment`].
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) unsafe fn claim(flag: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { exchange(flag, 0, 1, 0) }
}

/// Turns a 0 into `owner`; false if it was not 0. `which`: the [`word`].
///
/// # Safety
/// As for [`increment`].
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) unsafe fn claim_for(word: *mut u64, owner: u64, which: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { exchange(word, 0, owner, which) }
}

/// Turns `old` into `new`; false if it was something else. `which`: the [`word`].
///
/// # Safety
/// As for [`increment`].
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) unsafe fn exchange(word: *mut u64, old: u64, new: u64, _which: u64) -> bool {
    // SAFETY: the caller's promise.
    let (_, exchanged) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, old, new)
    };
    exchanged
}
