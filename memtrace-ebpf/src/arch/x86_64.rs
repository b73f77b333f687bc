//! x86-64: the System V calling convention, as Linux uses it.

use core::sync::atomic::{Ordering, compiler_fence};

use aya_ebpf::bindings::pt_regs;
use memtrace_common::unwind::{Registers, held};

use super::Arguments;
use crate::{atomic::increment, memory::word_or_zero};

/// Offsets in `struct pt_regs` (arch/x86/include/asm/ptrace.h), which user tools
/// know as the ABI of ptrace(2).
pub(crate) mod offset {
    pub(crate) const FP: u64 = 4 * 8;
    pub(crate) const EXTRA: u64 = 5 * 8;
    pub(crate) const PC: u64 = 16 * 8;
    pub(crate) const SP: u64 = 19 * 8;
    /// Bytes of all.
    #[cfg(feature = "legacy")]
    pub(super) const ALL: u64 = 21 * 8;
}

/// Bytes of a thread's kernel stack (arch/x86/include/asm/page_64_types.h), without KASAN.
#[cfg(feature = "legacy")]
const THREAD_SIZE: u64 = 4 << 12;

/// Where the registers of a system call are, from the beginning of a thread's kernel stack: at its end.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn registers_on_stack(_page_size: u64) -> u64 {
    THREAD_SIZE - offset::ALL
}

// arch/x86/entry/syscalls/syscall_64.tbl
pub(crate) const SYSCALL_MMAP: u32 = 9;
pub(crate) const SYSCALL_BRK: u32 = 12;
pub(crate) const SYSCALL_MREMAP: u32 = 25;
pub(crate) const SYSCALL_SHMAT: u32 = 30;

/// First bytes of `mov $15, %rax; syscall`: rt_sigreturn, to which the kernel's signal frames
/// return (arch/x86/kernel/signal_64.c).
pub(crate) const SIGNAL_RETURN: u64 = u64::from_le_bytes([0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f]);

// VERIFIER: read one by one at fixed offsets. Choosing among them later by index
// would make the compiler compute an offset into the context, which is refused
// on every kernel ("dereference of modified ctx ptr").
#[inline(always)]
pub(crate) fn arguments(registers: &pt_regs) -> Arguments {
    let read = |register: &u64| {
        // SAFETY: a reference is valid to read.
        unsafe { core::ptr::read_volatile(register) }
    };
    [
        read(&registers.rdi),
        read(&registers.rsi),
        read(&registers.rdx),
        read(&registers.rcx),
        read(&registers.r8),
        read(&registers.r9),
        0,
        0,
    ]
}

#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn first_argument(registers: &pt_regs) -> u64 {
    registers.rdi
}

#[inline(always)]
pub(crate) fn stack_pointer(registers: &pt_regs) -> u64 {
    registers.rsp
}

#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn instruction_pointer(registers: &pt_regs) -> u64 {
    registers.rip
}

/// The stack pointer that the entry saw: the return has popped the return address.
#[inline(always)]
pub(crate) fn entry_stack_pointer(registers: &pt_regs) -> u64 {
    registers.rsp.wrapping_sub(8)
}

/// The same, from the caller's.
#[inline(always)]
pub(crate) fn entry_of_caller(sp: u64) -> u64 {
    sp.wrapping_sub(8)
}

/// The address of an argument that is a structure of more than 16 bytes, and the first one on the stack. `sp`: the stack
/// pointer at the entry.
#[inline(always)]
pub(crate) fn structure(_arguments: &Arguments, _index: usize, sp: u64) -> u64 {
    sp.wrapping_add(8)
}

#[inline(always)]
pub(crate) fn return_value(registers: &pt_regs) -> u64 {
    registers.rax
}

/// The return address, where a function is entered or about to return; 0 if it cannot be read.
#[inline(always)]
pub(crate) fn return_address(registers: &pt_regs) -> u64 {
    word_or_zero(registers.rsp)
}

/// The caller's registers where a function has returned: the walk begins there.
#[inline(always)]
pub(crate) fn after_return(registers: &pt_regs) -> Registers {
    of_caller(registers, registers.rip, registers.rsp)
}

/// The caller's registers where a function is entered.
#[inline(always)]
pub(crate) fn at_entry(registers: &pt_regs, return_address: u64) -> Registers {
    of_caller(registers, return_address, registers.rsp.wrapping_add(8))
}

#[inline(always)]
fn of_caller(registers: &pt_regs, pc: u64, sp: u64) -> Registers {
    Registers {
        pc,
        sp,
        fp: registers.rbp,
        extra: registers.rbx,
        extra_is: held::VALUE,
    }
}

/// Where the return address is that was replaced by `present`, of a function whose entry saw the stack pointer `entry`; 0 if
/// it is not there.
#[inline(always)]
pub(crate) fn return_slot(entry: u64, present: u64) -> u64 {
    match word_or_zero(entry) == present {
        true => entry,
        false => 0,
    }
}

/// Whether a thread that calls itself `id` (pthread_self) is the one with this thread pointer.
#[inline(always)]
pub(crate) fn is_thread(id: u64, thread_pointer: u64) -> bool {
    id == thread_pointer
}

/// What was read before this is read before what is read after it. The processor keeps that order anyway.
#[inline(always)]
pub(crate) fn keep_order_of_reads() {
    compiler_fence(Ordering::Acquire);
}

/// Writes a word after all that was written before. The processor keeps the order of stores.
///
/// # Safety
/// `word` must be valid to write, and aligned.
#[inline(always)]
pub(crate) unsafe fn publish(word: *mut u64, value: u64) {
    compiler_fence(Ordering::Release);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_volatile(word, value) };
}

/// Adds one to a word after all that was written before. The instruction keeps the order.
///
/// # Safety
/// As for [`publish`].
#[inline(always)]
pub(crate) unsafe fn publish_one_more(word: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { increment(word) };
}
