//! Registers, calls and stacks of x86-64.

mod instructions;
mod thread_cache;

pub(super) use instructions::{BEGINNING, forwards, probe_site, returns};
pub(crate) use instructions::{addresses_taken, jumps};
pub(super) use thread_cache::thread_cache;

use std::mem::offset_of;

use gimli::{Register, X86_64};
use memtrace_common::{
    arch::{RETURN_ADDRESS_SIZE, SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_PC, SIGNAL_SP},
    unwind::{Registers, held},
};
use object::elf;

/// Machine type in ELF files of this architecture.
pub(crate) const ELF_MACHINE: elf::Machine = elf::EM_X86_64;

/// Type of a relocation by which a word gets a thread-local variable's offset from the thread pointer.
pub(crate) const THREAD_OFFSET: object::elf::RelocationType = elf::R_X86_64_TPOFF64;

/// Numbers of registers in call frame information (System V psABI, AMD64 supplement, figure 3.36).
/// That of the program counter stands for the return address.
pub(crate) const PC: Register = X86_64::RA;
pub(crate) const SP: Register = X86_64::RSP;
pub(crate) const FP: Register = X86_64::RBP;
/// Another callee-saved register, by which code that realigns its stack may find its frame.
pub(crate) const EXTRA: Register = X86_64::RBX;

/// Offset of the return address from the canonical frame address.
pub(crate) const RETURN_ADDRESS: i64 = -RETURN_ADDRESS_SIZE.cast_signed();

/// From the stack pointer to the caller's at a function's first instruction: the return
/// address alone (System V ABI for x86-64, section 3.2.2).
pub(crate) const CFA_AT_ENTRY: i64 = RETURN_ADDRESS_SIZE.cast_signed();

/// Registers in a signal frame, and their offsets from the stack pointer.
pub(crate) const IN_SIGNAL_FRAME: [(Register, u64); 4] = [
    (PC, SIGNAL_PC),
    (SP, SIGNAL_SP),
    (FP, SIGNAL_FP),
    (EXTRA, SIGNAL_EXTRA),
];

/// The code through which probed functions return from Linux 6.11 on (arch/x86/kernel/uprobes.c,
/// `uretprobe_trampoline_entry`): three pushes of a register, the last of which becomes the return
/// address, `mov $335, %rax`, `syscall`, two pops and `ret`. Before the system call the return
/// address is the kernel's secret. For each offset: bytes from sp to the CFA, 0 for unknown.
pub(crate) const TRAMPOLINE: [(u32, i32); 5] = [(0, 0), (13, 24), (15, 16), (16, 8), (17, 0)];

/// The words of x86-64's `struct pt_regs` (arch/x86/include/asm/ptrace.h), as the assembler names
/// them; empty for anything but a general register.
const REGISTERS: [&str; 20] = [
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
    "rdi", "", "", "", "", "rsp",
];

/// See [`super::register`].
pub(super) fn register(name: &str) -> Option<u8> {
    let mut names = REGISTERS.iter();
    let place = names.position(|known| *known == name && !name.is_empty())?;
    u8::try_from(place).ok()
}

/// The instruction that makes a system call: `syscall`.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

/// A system call, seen at its return.
pub(crate) struct SystemCall {
    pub(crate) number: u64,
    /// Negative: an error.
    pub(crate) result: i64,
    /// The first of them.
    pub(crate) arguments: [u64; 2],
}

impl SystemCall {
    pub(crate) fn made(registers: &libc::user_regs_struct) -> SystemCall {
        SystemCall {
            number: registers.orig_rax,
            result: registers.rax.cast_signed(),
            arguments: [registers.rdi, registers.rsi],
        }
    }

    /// Where the instruction is that has made the call.
    pub(crate) fn place(registers: &libc::user_regs_struct) -> u64 {
        registers.rip.wrapping_sub(SYSTEM_CALL.len() as u64)
    }

    /// Has the thread make the call again.
    pub(crate) fn repeat(registers: &mut libc::user_regs_struct) {
        registers.rip = Self::place(registers);
        registers.rax = registers.orig_rax;
        // No system call: the kernel has none to restart.
        registers.orig_rax = u64::MAX;
    }

    /// Makes the thread repeat the call when it continues, unless a signal's handler runs first:
    /// then the call is interrupted, as if this had not happened.
    pub(crate) fn repeat_unless_handled(registers: &mut libc::user_regs_struct) {
        /// `-ERESTARTNOHAND` (include/linux/errno.h), which the kernel does not show to programs.
        const REPEAT: i64 = -514;
        registers.rax = REPEAT.cast_unsigned();
    }
}

/// The registers of a thread that can hold a pointer to its data, by their assembler names.
pub(crate) fn general(registers: &libc::user_regs_struct) -> [(&'static str, u64); 15] {
    [
        ("rax", registers.rax),
        ("rbx", registers.rbx),
        ("rcx", registers.rcx),
        ("rdx", registers.rdx),
        ("rsi", registers.rsi),
        ("rdi", registers.rdi),
        ("rbp", registers.rbp),
        ("r8", registers.r8),
        ("r9", registers.r9),
        ("r10", registers.r10),
        ("r11", registers.r11),
        ("r12", registers.r12),
        ("r13", registers.r13),
        ("r14", registers.r14),
        ("r15", registers.r15),
    ]
}

/// Registers at which the unwinding of a stopped thread begins.
pub(crate) fn unwinding_from(registers: &libc::user_regs_struct) -> Registers {
    Registers {
        pc: registers.rip,
        sp: registers.rsp,
        fp: registers.rbp,
        extra: registers.rbx,
        extra_is: held::VALUE,
    }
}

/// Address of the thread control block.
pub(crate) fn thread_pointer(registers: &libc::user_regs_struct) -> u64 {
    registers.fs_base
}

/// framehop's unwinder, as it is named for this architecture.
pub(crate) type Unwinder<S> = framehop::x86_64::UnwinderX86_64<S>;
pub(crate) type UnwindCache = framehop::x86_64::CacheX86_64<framehop::MayAllocateDuringUnwind>;
pub(crate) type UnwindRegisters = framehop::x86_64::UnwindRegsX86_64;

/// The program counter, stack pointer and frame pointer that a signal interrupted, by the layout in
/// libc; `read` takes the distance from the stack pointer.
pub(crate) fn interrupted(mut read: impl FnMut(u64) -> Option<u64>) -> Option<[u64; 3]> {
    let gregs = offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, gregs);
    let mut read = |register: i32| read(gregs as u64 + u64::from(register.unsigned_abs()) * 8);
    Some([
        read(libc::REG_RIP)?,
        read(libc::REG_RSP)?,
        read(libc::REG_RBP)?,
    ])
}
