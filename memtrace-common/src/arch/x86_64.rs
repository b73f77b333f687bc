//! x86-64: where stacks have the values that a walk reads.

/// How far below the canonical frame address the return address is.
pub const RETURN_ADDRESS_SIZE: u64 = 8;
/// From a frame pointer to the canonical frame address: the caller's frame pointer and the return
/// address.
pub const FP_TO_CFA: u64 = 16;

/// Where a signal frame keeps the interrupted registers, from the stack pointer
/// in its return code: `ucontext_t.uc_mcontext.gregs` (arch/x86/include/uapi/asm/sigcontext.h).
const GREGS: u64 = 40;
pub const SIGNAL_EXTRA: u64 = GREGS + 11 * 8;
pub const SIGNAL_FP: u64 = GREGS + 10 * 8;
pub const SIGNAL_SP: u64 = GREGS + 15 * 8;
pub const SIGNAL_PC: u64 = GREGS + 16 * 8;
