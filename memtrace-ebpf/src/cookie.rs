//! The cookie of the probe at hand.

#[cfg(not(feature = "legacy"))]
use aya_ebpf::{EbpfContext, helpers::generated::bpf_get_attach_cookie};

#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn cookie<C: EbpfContext>(context: &C) -> u64 {
    // SAFETY: the context is the program's own.
    unsafe { bpf_get_attach_cookie(context.as_ptr()) }
}

/// Probes have no cookies: the collector loads the program for each of its functions, and replaces this constant.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn cookie<C>(_context: &C) -> u64 {
    let cookie;
    // SAFETY: loads a constant. The compiler does not know it.
    unsafe { core::arch::asm!("{} = 0x636f6f6b69652121 ll", out(reg) cookie) };
    cookie
}
