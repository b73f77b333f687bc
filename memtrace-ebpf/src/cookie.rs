//! The cookie of the probe at hand.

#[cfg(not(feature = "legacy"))]
use aya_ebpf::{EbpfContext, helpers::generated::bpf_get_attach_cookie};

#[cfg(feature = "legacy")]
use {
    crate::{emit::lost, kernel::CurrentTask, maps::COOKIES},
    memtrace_common::{loss::Reason, numbered_path::number},
};

#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn cookie<C: EbpfContext>(context: &C) -> Option<u64> {
    // SAFETY: the context is the program's own.
    Some(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}

/// Probes have no cookies, but numbers in front of their paths. `None` (counted) if this one has none.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn cookie<C>(_context: &C) -> Option<u64> {
    let number = number(CurrentTask::get().probed_path());
    match COOKIES.get(number) {
        Some(&cookie) if cookie != 0 => Some(cookie),
        _ => {
            lost(Reason::ProgramSkipped);
            None
        }
    }
}
