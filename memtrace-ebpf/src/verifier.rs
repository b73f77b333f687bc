//! What spares the kernel's verifier work.

use aya_ebpf::helpers::bpf_probe_read_kernel;

/// A copy of a value on the program's stack, of which the verifier knows nothing: it looks once at
/// what follows, whichever way led here.
#[inline(always)]
pub(crate) fn forget<T: Default>(value: &T) -> T {
    // SAFETY: a reference is valid to read. The helper does not fail on the program's own stack.
    unsafe { bpf_probe_read_kernel(value) }.unwrap_or_default()
}
