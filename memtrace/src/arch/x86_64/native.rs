//! Registers, calls and stacks of x86-64.

use std::{
    io,
    mem::{self, offset_of},
    ops::Range,
    ptr,
};

use gimli::{Register, X86_64};
use memtrace_common::{
    arch::{RETURN_ADDRESS_SIZE, SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_PC, SIGNAL_SP},
    unwind::{Registers, held},
};
use object::elf;

use crate::arch::tracee::Tracee;

/// Machine type in ELF files of this architecture.
pub(crate) const ELF_MACHINE: elf::Machine = elf::EM_X86_64;

/// Type of a relocation by which a word gets a thread-local variable's offset from the thread pointer.
pub(crate) const THREAD_OFFSET: object::elf::RelocationType = elf::R_X86_64_TPOFF64;

/// The field of `struct thread_struct` that begins with the thread pointer (arch/x86/include/asm/processor.h).
pub(crate) const THREAD_POINTER: &str = "fsbase";

/// Numbers of registers in call frame information (System V psABI, AMD64 supplement, figure 3.36).
/// That of the program counter stands for the return address.
pub(crate) const PC: Register = X86_64::RA;
pub(crate) const SP: Register = X86_64::RSP;
pub(crate) const FP: Register = X86_64::RBP;
/// Another callee-saved register, by which code that realigns its stack may find its frame.
pub(crate) const EXTRA: Register = X86_64::RBX;

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

/// Whether the processor signs return addresses where functions ask for it.
pub(crate) fn has_signatures() -> bool {
    false
}

/// Whether a structure of more than 16 bytes is passed by a pointer, which takes an argument register, and not on the
/// stack (System V psABI, AMD64 supplement, section 3.2.3: class MEMORY).
pub(crate) const STRUCTURES_BY_POINTER: bool = false;

/// Bits of an address of user space (Documentation/arch/x86/x86_64/mm.rst). Programs get longer ones only if they ask.
pub(crate) const ADDRESS_BITS: u32 = 47;

/// Bytes at the upper end of a stack in which glibc's `struct pthread` begins.
pub(crate) const CONTROL_BELOW_TOP: usize = 8 << 10;

/// The thread control block of a thread: glibc's `struct pthread`, of this size, is at the thread pointer.
pub(crate) fn control(pointer: u64, size: u64) -> Range<u64> {
    pointer..pointer.saturating_add(size)
}

/// Whether a `struct pthread` is at an address; `read` takes the distance from there. glibc's `tcbhead_t`, with which
/// it begins, has { self, dtv, self }.
pub(crate) fn is_control(at: u64, _tid_at: u64, read: impl Fn(u64) -> Option<u64>) -> bool {
    read(0) == Some(at) && read(16) == Some(at)
}

/// From the thread pointer to the address of the table of thread-local storage: tcbhead_t of glibc and struct pthread of
/// musl begin alike, { self, dtv }.
pub(crate) const STORAGE_TABLE: u64 = 8;

/// Where thread-local storage is that a thread has from its beginning, if it has so many bytes: below the thread pointer
/// (ELF Handling for Thread-Local Storage, section 3.4.6).
pub(crate) fn storage(pointer: u64, size: u64) -> Range<u64> {
    pointer.saturating_sub(size)..pointer
}

/// The code through which probed functions return from Linux 6.11 on (arch/x86/kernel/uprobes.c,
/// `uretprobe_trampoline_entry`): three pushes of a register, the last of which becomes the return
/// address, `mov $335, %rax`, `syscall`, two pops and `ret`. Before the system call the return
/// address is the kernel's secret. For each offset: bytes from sp to the CFA, 0 for unknown.
pub(crate) const TRAMPOLINE: [(u32, i32); 5] = [(0, 0), (13, 24), (15, 16), (16, 8), (17, 0)];

/// The registers of a stopped thread.
pub(crate) type ThreadRegisters = libc::user_regs_struct;

pub(crate) fn read_registers(tracee: &impl Tracee) -> io::Result<ThreadRegisters> {
    // SAFETY: all-zero bytes are valid registers.
    let mut registers: ThreadRegisters = unsafe { mem::zeroed() };
    let place = (&raw mut registers) as usize;
    tracee.ask(libc::PTRACE_GETREGS, 0, place)?;
    Ok(registers)
}

pub(crate) fn write_registers(tracee: &impl Tracee, registers: &ThreadRegisters) -> io::Result<()> {
    tracee.ask(libc::PTRACE_SETREGS, 0, ptr::from_ref(registers) as usize)
}

/// System calls that a stop ends with EINTR and that other architectures do not have.
pub(crate) const RETURN_EINTR: [libc::c_long; 1] = [libc::SYS_epoll_wait];

/// The instruction that makes a system call: `syscall`.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

/// A system call, seen at its return.
pub(crate) struct SystemCall {
    pub(crate) number: u64,
    /// Negative: an error.
    pub(crate) result: i64,
}

impl SystemCall {
    pub(crate) fn made(registers: &ThreadRegisters) -> SystemCall {
        SystemCall {
            number: registers.orig_rax,
            result: registers.rax.cast_signed(),
        }
    }

    /// The first two.
    pub(crate) fn arguments(registers: &ThreadRegisters, _: &impl Tracee) -> Option<[u64; 2]> {
        Some([registers.rdi, registers.rsi])
    }

    /// Has the thread make the call again.
    pub(crate) fn repeat(registers: &mut ThreadRegisters, _: &impl Tracee) -> Option<()> {
        registers.rip = registers.rip.wrapping_sub(SYSTEM_CALL.len() as u64);
        registers.rax = registers.orig_rax;
        // No system call: the kernel has none to restart.
        registers.orig_rax = u64::MAX;
        Some(())
    }

    /// Makes the thread repeat the call when it continues, unless a signal's handler runs first:
    /// then the call is interrupted, as if this had not happened. `None`: nothing is changed.
    pub(crate) fn repeat_unless_handled(
        registers: &mut ThreadRegisters,
        _: &impl Tracee,
    ) -> Option<()> {
        /// `-ERESTARTNOHAND` (include/linux/errno.h), which the kernel does not show to programs.
        const REPEAT: i64 = -514;
        registers.rax = REPEAT.cast_unsigned();
        Some(())
    }
}

/// The registers of a thread that can hold a pointer to its data, by their assembler names.
pub(crate) fn general(registers: &ThreadRegisters) -> [(&'static str, u64); 15] {
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
pub(crate) fn unwinding_from(registers: &ThreadRegisters) -> Registers {
    Registers {
        pc: registers.rip,
        sp: registers.rsp,
        fp: registers.rbp,
        extra: registers.rbx,
        extra_is: held::VALUE,
    }
}

/// Address of the thread control block.
pub(crate) fn thread_pointer(registers: &ThreadRegisters) -> u64 {
    registers.fs_base
}

/// Whose instructions call frame information may have.
pub(crate) const VENDOR: gimli::Vendor = gimli::Vendor::Default;

/// This thread's registers.
#[cfg(test)]
#[inline(always)]
pub(crate) fn here() -> Registers {
    let mut at = Registers {
        extra_is: held::UNKNOWN,
        ..Registers::default()
    };
    // SAFETY: reads three registers.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
            out(reg) at.pc, out(reg) at.sp, out(reg) at.fp);
    }
    at
}

/// framehop's unwinder, as it is named for this architecture.
pub(crate) type Unwinder<S> = framehop::x86_64::UnwinderX86_64<S>;
pub(crate) type UnwindCache = framehop::x86_64::CacheX86_64<framehop::MayAllocateDuringUnwind>;
pub(crate) type UnwindRegisters = framehop::x86_64::UnwindRegsX86_64;

pub(crate) fn unwind_registers(at: &Registers) -> UnwindRegisters {
    UnwindRegisters::new(at.pc, at.sp, at.fp)
}

pub(crate) fn frame_pointer(registers: &UnwindRegisters) -> u64 {
    registers.bp()
}

/// The program counter and the registers that a signal interrupted, by the layout in libc; `read` takes the distance
/// from the stack pointer.
pub(crate) fn interrupted(
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Option<(u64, UnwindRegisters)> {
    let gregs = offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, gregs);
    let mut read = |register: i32| read(gregs as u64 + u64::from(register.unsigned_abs()) * 8);
    let pc = read(libc::REG_RIP)?;
    let registers = UnwindRegisters::new(pc, read(libc::REG_RSP)?, read(libc::REG_RBP)?);
    Some((pc, registers))
}
