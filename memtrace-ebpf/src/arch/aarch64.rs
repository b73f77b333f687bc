//! aarch64: the procedure call standard (AAPCS64), as Linux uses it.

#[cfg(not(feature = "legacy"))]
use core::intrinsics::{AtomicOrdering::SeqCst, atomic_xadd, atomic_xchg};

use aya_ebpf::bindings::pt_regs;
#[cfg(feature = "legacy")]
use aya_ebpf::helpers::bpf_ktime_get_ns;
use memtrace_common::unwind::{Registers, held};

use super::Arguments;
#[cfg(feature = "legacy")]
use crate::{atomic::increment, held::keep_order};

/// Offsets in `struct user_pt_regs` (arch/arm64/include/uapi/asm/ptrace.h), with which `struct pt_regs` begins.
pub(crate) mod offset {
    pub(crate) const FP: u64 = 29 * 8;
    pub(crate) const EXTRA: u64 = 30 * 8;
    pub(crate) const SP: u64 = 31 * 8;
    pub(crate) const PC: u64 = 32 * 8;
}

// include/uapi/asm-generic/unistd.h
pub(crate) const SYSCALL_SHMAT: u32 = 196;
pub(crate) const SYSCALL_BRK: u32 = 214;
pub(crate) const SYSCALL_MREMAP: u32 = 216;
pub(crate) const SYSCALL_MMAP: u32 = 222;

/// `mov x8, #139; svc #0`: rt_sigreturn, to which the kernel's signal frames return
/// (arch/arm64/kernel/vdso/sigreturn.S).
pub(crate) const SIGNAL_RETURN: u64 = 0xd400_0001_d280_1168;

/// Number of the link register.
const LINK: usize = 30;

/// Where the registers of a system call are, from the beginning of a thread's kernel stack: at its end, which is 16 KiB
/// or a page away (`THREAD_SIZE`, arch/arm64/include/asm/memory.h), without KASAN. `struct pt_regs` of Linux 5.10 to 5.16
/// has 336 bytes.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn registers_on_stack(page_size: u64) -> u64 {
    page_size.max(4 << 12) - 336
}

// VERIFIER: read one by one at fixed offsets, see `x86_64.rs`. No known function needs the last two, which would take
// stack.
#[inline(always)]
pub(crate) fn arguments(registers: &pt_regs) -> Arguments {
    let read = |number: usize| {
        // SAFETY: a reference is valid to read.
        unsafe { core::ptr::read_volatile(&raw const registers.regs[number]) }
    };
    [read(0), read(1), read(2), read(3), read(4), read(5), 0, 0]
}

#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn first_argument(registers: &pt_regs) -> u64 {
    registers.regs[0]
}

#[inline(always)]
pub(crate) fn stack_pointer(registers: &pt_regs) -> u64 {
    registers.sp
}

#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn instruction_pointer(registers: &pt_regs) -> u64 {
    registers.pc
}

/// The stack pointer that the entry saw.
#[inline(always)]
pub(crate) fn entry_stack_pointer(registers: &pt_regs) -> u64 {
    registers.sp
}

/// The same, from the caller's.
#[inline(always)]
pub(crate) fn entry_of_caller(sp: u64) -> u64 {
    sp
}

/// The address of argument `index`, a structure of more than 16 bytes: a pointer to a copy is passed.
#[inline(always)]
pub(crate) fn structure(arguments: &Arguments, index: usize, _sp: u64) -> u64 {
    arguments[index & 7]
}

#[inline(always)]
pub(crate) fn return_value(registers: &pt_regs) -> u64 {
    registers.regs[0]
}

/// The return address, where a function is entered or about to return.
#[inline(always)]
pub(crate) fn return_address(registers: &pt_regs) -> u64 {
    registers.regs[LINK]
}

/// The caller's registers where a function has returned: the walk begins there.
#[inline(always)]
pub(crate) fn after_return(registers: &pt_regs) -> Registers {
    of_caller(registers, registers.pc)
}

/// The caller's registers where a function is entered.
#[inline(always)]
pub(crate) fn at_entry(registers: &pt_regs, return_address: u64) -> Registers {
    of_caller(registers, return_address)
}

/// The caller's own return address is not in a register any more.
#[inline(always)]
fn of_caller(registers: &pt_regs, pc: u64) -> Registers {
    Registers {
        pc,
        sp: registers.sp,
        fp: registers.regs[29],
        extra: 0,
        extra_is: held::UNKNOWN,
    }
}

/// The pauser looks for the return address in the frame below `entry`: the function has saved it anywhere there.
#[inline(always)]
pub(crate) fn return_slot(entry: u64, _present: u64) -> u64 {
    entry
}

/// Whether a thread that calls itself `id` (pthread_self) is the one with this thread pointer: its descriptor ends there,
/// and other threads' are further away (variant 1 of thread-local storage, sysdeps/aarch64/nptl/tls.h of glibc).
#[inline(always)]
pub(crate) fn is_thread(id: u64, thread_pointer: u64) -> bool {
    thread_pointer.wrapping_sub(id) <= 4096
}

/// What was read before this is read before what is read after it. An atomic instruction that returns the old value is a
/// full barrier (Arm ARM, B2.3; arch/arm64/net/bpf_jit_comp.c).
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn keep_order_of_reads() {
    let mut word = 0u64;
    // SAFETY: a reference is valid.
    unsafe { atomic_xadd::<u64, u64, { SeqCst }>(core::hint::black_box(&mut word), 0) };
}

/// The same: the kernel's clock has such a barrier (`ktime_get_mono_fast_ns`, `read_seqcount_latch_retry`).
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn keep_order_of_reads() {
    // SAFETY: the helper has no preconditions.
    core::hint::black_box(unsafe { bpf_ktime_get_ns() });
}

/// Writes a word after all that was written before.
///
/// # Safety
/// `word` must be valid to write, and aligned.
#[inline(always)]
pub(crate) unsafe fn publish(word: *mut u64, value: u64) {
    #[cfg(not(feature = "legacy"))]
    // SAFETY: the caller's promise.
    unsafe {
        atomic_xchg::<u64, { SeqCst }>(word, value);
    }
    #[cfg(feature = "legacy")]
    // SAFETY: the caller's promise.
    unsafe {
        keep_order();
        core::ptr::write_volatile(word, value);
    }
}

/// Adds one to a word after all that was written before.
///
/// # Safety
/// As for [`publish`].
#[inline(always)]
pub(crate) unsafe fn publish_one_more(word: *mut u64) {
    #[cfg(not(feature = "legacy"))]
    // SAFETY: the caller's promise.
    unsafe {
        atomic_xadd::<u64, u64, { SeqCst }>(word, 1);
    }
    #[cfg(feature = "legacy")]
    // SAFETY: the caller's promise.
    unsafe {
        keep_order();
        increment(word);
    }
}
