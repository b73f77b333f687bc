//! x86-64: the System V calling convention, as Linux uses it.

use aya_ebpf::bindings::pt_regs;
use memtrace_common::unwind::{Registers, held};

use super::Arguments;

/// Offsets in `struct pt_regs` (arch/x86/include/asm/ptrace.h), which user tools
/// know as the ABI of ptrace(2).
pub(crate) mod offset {
    pub(crate) const FP: u64 = 4 * 8;
    pub(crate) const EXTRA: u64 = 5 * 8;
    pub(crate) const PC: u64 = 16 * 8;
    pub(crate) const SP: u64 = 19 * 8;
    /// Bytes of all.
    #[cfg(feature = "legacy")]
    pub(crate) const ALL: u64 = 21 * 8;
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

/// Where arguments on the stack begin, from the stack pointer at the entry.
#[inline(always)]
pub(crate) fn stack_arguments(sp: u64) -> u64 {
    sp.wrapping_add(8)
}

#[inline(always)]
pub(crate) fn return_value(registers: &pt_regs) -> u64 {
    registers.rax
}

/// The caller's registers where a function has returned: the walk begins there.
#[inline(always)]
pub(crate) fn after_return(registers: &pt_regs) -> Registers {
    of_caller(registers, registers.rip, registers.rsp)
}

/// The caller's registers where a function is entered; `return_address` is the word at the stack pointer.
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
