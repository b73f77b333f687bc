//! Loops of the kernel's (`bpf_loop`, Linux 5.17): the verifier checks a callback once, however
//! often it runs. For older kernels, loops that it goes through: what is long in them has to be a global function.

#[cfg(not(feature = "legacy"))]
use core::ffi::c_void;

#[cfg(not(feature = "legacy"))]
use aya_ebpf::helpers::generated::bpf_loop;

/// Return value of a callback that is to be called again.
pub(crate) const CONTINUE: u64 = 0;
/// Return value of a callback that ends the loop.
pub(crate) const BREAK: u64 = 1;

/// Calls `body` with 0, 1, … and `state` until it breaks, `times` at most. `state` has to lie on the
/// stack of the program, as the kernel demands.
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn repeat<T>(times: u32, body: unsafe extern "C" fn(u64, *mut T) -> u64, state: &mut T) {
    // SAFETY: the callback has the signature that the helper requires, and `state` outlives the call.
    unsafe {
        bpf_loop(
            times,
            body as *const () as *mut c_void,
            core::ptr::from_mut(state).cast(),
            0,
        )
    };
}

/// Rounds of a loop within a long one. The verifier goes through each round of a loop that is not the kernel's, and keeps
/// 8,192 other ways in mind at most: so a long loop is one of loops, each a global function.
#[cfg(feature = "legacy")]
pub(crate) const ROUND: u32 = 64;

/// Calls `body` with 0, 1, … and `state` until it breaks, `times` at most.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn repeat<T>(times: u32, body: unsafe extern "C" fn(u64, *mut T) -> u64, state: &mut T) {
    for index in 0..times {
        // SAFETY: the callback's own signature.
        if unsafe { body(index.into(), state) } != CONTINUE {
            return;
        }
    }
}
