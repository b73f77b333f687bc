//! Loops of the kernel's (`bpf_loop`, Linux 5.17): the verifier checks a callback once, however
//! often it runs.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;

/// Return value of a callback that is to be called again.
pub(crate) const CONTINUE: u64 = 0;
/// Return value of a callback that ends the loop.
pub(crate) const BREAK: u64 = 1;

/// Calls `body` with 0, 1, … and `state` until it breaks, `times` at most. `state` has to lie on the
/// stack of the program, as the kernel demands.
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
