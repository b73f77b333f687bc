//! Registers, calls and stacks of AArch64.

use std::{
    io,
    mem::{self, offset_of},
    ops::Range,
};

use gimli::{AArch64, Register};
use memtrace_common::{
    arch::{SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_SP, code_address},
    unwind::{Registers, held},
};
use object::elf;

use crate::arch::tracee::{Request, Tracee};

/// Machine type in ELF files of this architecture.
pub(crate) const ELF_MACHINE: elf::Machine = elf::EM_AARCH64;

/// Type of a relocation by which a word gets a thread-local variable's offset from the thread pointer.
pub(crate) const THREAD_OFFSET: object::elf::RelocationType = elf::R_AARCH64_TLS_TPREL;

/// The field of `struct thread_struct` that begins with the thread pointer (arch/arm64/include/asm/processor.h).
pub(crate) const THREAD_POINTER: &str = "uw";

/// Numbers of registers in call frame information (DWARF for the Arm 64-bit Architecture, section 4.1). The link
/// register stands for the return address.
pub(crate) const PC: Register = AArch64::X30;
pub(crate) const SP: Register = AArch64::SP;
pub(crate) const FP: Register = AArch64::X29;
/// The link register: a function that makes no call need not save it.
pub(crate) const EXTRA: Register = AArch64::X30;

/// From the stack pointer to the caller's at a function's first instruction: a call leaves the stack as it is (AAPCS64,
/// section 6.2.3).
pub(crate) const CFA_AT_ENTRY: i64 = 0;

/// Registers in a signal frame, and their offsets from the stack pointer.
pub(crate) const IN_SIGNAL_FRAME: [(Register, u64); 3] =
    [(EXTRA, SIGNAL_EXTRA), (SP, SIGNAL_SP), (FP, SIGNAL_FP)];

/// Whether the processor signs return addresses where functions ask for it: `HWCAP_PACA`
/// (arch/arm64/include/uapi/asm/hwcap.h).
pub(crate) fn has_signatures() -> bool {
    // SAFETY: getauxval takes any number.
    unsafe { libc::getauxval(libc::AT_HWCAP) & 1 << 30 != 0 }
}

/// Whether a structure of more than 16 bytes is passed by a pointer, which takes an argument register (AAPCS64, section
/// 6.8.2, rule B.4), and not on the stack.
pub(crate) const STRUCTURES_BY_POINTER: bool = true;

/// Bits of an address of user space (Documentation/arch/arm64/memory.rst). Programs get longer ones only if they ask.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// Bytes at the upper end of a stack in which glibc's `struct pthread` begins: above it is thread-local storage.
pub(crate) const CONTROL_BELOW_TOP: usize = 32 << 10;

/// glibc's `tcbhead_t` at the thread pointer: { dtv, private }.
const HEAD: u64 = 16;

/// The thread control block of a thread: glibc's `struct pthread`, of this size, is below the thread pointer
/// (TLS_PRE_TCB_SIZE, sysdeps/aarch64/nptl/tls.h).
pub(crate) fn control(pointer: u64, size: u64) -> Range<u64> {
    pointer.saturating_sub(size)..pointer.saturating_add(HEAD)
}

/// Whether a `struct pthread` is at an address; `read` takes the distance from there. It has no pointer to itself, but its
/// list of robust mutexes, behind the thread's id, refers to itself when it is empty, twice (nptl/descr.h).
pub(crate) fn is_control(at: u64, tid_at: u64, read: impl Fn(u64) -> Option<u64>) -> bool {
    let list = tid_at + 16;
    let itself = at.checked_add(list);
    itself.is_some() && read(list - 8) == itself && read(list) == itself
}

/// From the thread pointer to the address of the table of thread-local storage.
pub(crate) const STORAGE_TABLE: u64 = 0;

/// Where thread-local storage is that a thread has from its beginning, if it has so many bytes: above the head (ELF for
/// the Arm 64-bit Architecture, section 12.1, and ELF Handling for Thread-Local Storage, variant I).
pub(crate) fn storage(pointer: u64, size: u64) -> Range<u64> {
    let start = pointer.saturating_add(HEAD);
    start..start.saturating_add(size)
}

/// Probed functions return to a breakpoint, not through code (kernel/events/uprobes.c, `arch_uprobe_trampoline`).
pub(crate) const TRAMPOLINE: [(u32, i32); 1] = [(0, 0)];

/// The registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadRegisters {
    general: libc::user_regs_struct,
    thread_pointer: u64,
}

/// Sets of registers (include/uapi/linux/elf.h): the general ones and the thread pointer, TPIDR_EL0.
const NT_PRSTATUS: usize = 1;
const NT_ARM_TLS: usize = 0x401;

pub(crate) fn read_registers(tracee: &impl Tracee) -> io::Result<ThreadRegisters> {
    // SAFETY: all-zero bytes are valid registers.
    let mut general: libc::user_regs_struct = unsafe { mem::zeroed() };
    let mut thread_pointer = 0;
    let get = libc::PTRACE_GETREGSET;
    transfer(tracee, get, NT_PRSTATUS, &mut general)?;
    transfer(tracee, get, NT_ARM_TLS, &mut thread_pointer)?;
    Ok(ThreadRegisters {
        general,
        thread_pointer,
    })
}

/// The thread pointer stays as it is.
pub(crate) fn write_registers(tracee: &impl Tracee, registers: &ThreadRegisters) -> io::Result<()> {
    let mut general = registers.general;
    transfer(tracee, libc::PTRACE_SETREGSET, NT_PRSTATUS, &mut general)
}

/// Reads or writes a set of registers as a whole.
fn transfer<T>(
    tracee: &impl Tracee,
    request: Request,
    set: usize,
    registers: &mut T,
) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: (&raw mut *registers).cast(),
        iov_len: size_of::<T>(),
    };
    tracee.ask(request, set, (&raw mut vector) as usize)?;
    // Programs for AArch32 have a shorter one.
    match vector.iov_len == size_of::<T>() {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// System calls that a stop ends with EINTR and that other architectures do not have.
pub(crate) const RETURN_EINTR: [libc::c_long; 0] = [];

/// The instruction that makes a system call: `svc #0`.
const SYSTEM_CALL: u32 = 0xd400_0001;

/// The registers that have the number of a system call, and its result (arch/arm64/include/asm/syscall.h).
const NUMBER: usize = 8;
const RESULT: usize = 0;

/// A system call, seen at its return.
pub(crate) struct SystemCall {
    pub(crate) number: u64,
    /// Negative: an error.
    pub(crate) result: i64,
}

impl SystemCall {
    /// By the registers alone: a thread that was not in a call has others' values there.
    pub(crate) fn made(registers: &ThreadRegisters) -> SystemCall {
        SystemCall {
            number: registers.general.regs[NUMBER],
            result: registers.general.regs[RESULT].cast_signed(),
        }
    }

    /// The first two.
    pub(crate) fn arguments(registers: &ThreadRegisters, tracee: &impl Tracee) -> Option<[u64; 2]> {
        let first = first_argument(tracee)?;
        Some([first, registers.general.regs[1]])
    }

    /// Has the thread make the call again.
    pub(crate) fn repeat(registers: &mut ThreadRegisters, tracee: &impl Tracee) -> Option<()> {
        let place = registers.general.pc.wrapping_sub(4);
        let instruction = tracee.read(place)? as u32;
        if instruction != SYSTEM_CALL {
            return None;
        }
        // The result has replaced it.
        registers.general.regs[0] = first_argument(tracee)?;
        registers.general.pc = place;
        Some(())
    }

    /// Makes the thread repeat the call when it continues, unless a signal's handler runs first: then the call is
    /// interrupted, as if this had not happened. `None`: nothing is changed.
    ///
    /// The kernel decides about restarting a call before it stops the thread (arch/arm64/kernel/signal.c,
    /// `do_signal`), so a signal that comes between this and the call is handled as if it had come before the call.
    pub(crate) fn repeat_unless_handled(
        registers: &mut ThreadRegisters,
        tracee: &impl Tracee,
    ) -> Option<()> {
        match tracee.is_about_to_handle_a_signal() {
            true => None,
            false => Self::repeat(registers, tracee),
        }
    }
}

/// What PTRACE_GET_SYSCALL_INFO gives of a system call that seccomp stops (include/uapi/linux/ptrace.h,
/// `struct ptrace_syscall_info`).
#[repr(C)]
struct CallInfo {
    operation: u8,
    machine: u32,
    place: [u64; 2],
    number: u64,
    arguments: [u64; 6],
    data: u32,
}

/// The first argument of the system call that a thread, stopped at any point of its return, has made.
///
/// The kernel keeps it apart from the registers, and gives it only with the others of a call that is about to be made:
/// to a tracer to which the stop looks like one of seccomp (kernel/ptrace.c, `ptrace_get_syscall_info`).
fn first_argument(tracee: &impl Tracee) -> Option<u64> {
    const PTRACE_GET_SYSCALL_INFO: Request = 0x420e;
    const OF_SECCOMP: u8 = 3;
    // SAFETY: all-zero bytes are valid values of both types.
    let (mut kept, mut disguise, mut info): (libc::siginfo_t, libc::siginfo_t, CallInfo) =
        unsafe { mem::zeroed() };
    let place = (&raw mut kept) as usize;
    tracee.ask(libc::PTRACE_GETSIGINFO, 0, place).ok()?;
    disguise.si_signo = libc::SIGTRAP;
    disguise.si_code = libc::SIGTRAP | libc::PTRACE_EVENT_SECCOMP << 8;
    let disguise = (&raw mut disguise) as usize;
    tracee.ask(libc::PTRACE_SETSIGINFO, 0, disguise).ok()?;
    let read = tracee.ask(
        PTRACE_GET_SYSCALL_INFO,
        size_of::<CallInfo>(),
        (&raw mut info) as usize,
    );
    tracee.ask(libc::PTRACE_SETSIGINFO, 0, place).ok()?;
    read.ok()?;
    (info.operation == OF_SECCOMP).then_some(info.arguments[0])
}

/// The registers of a thread that can hold a pointer to its data, by their assembler names.
pub(crate) fn general(registers: &ThreadRegisters) -> [(&'static str, u64); 31] {
    const NAMES: [&str; 31] = [
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
        "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26",
        "x27", "x28", "x29", "x30",
    ];
    std::array::from_fn(|number| (NAMES[number], registers.general.regs[number]))
}

/// Registers at which the unwinding of a stopped thread begins.
pub(crate) fn unwinding_from(registers: &ThreadRegisters) -> Registers {
    let general = &registers.general;
    Registers {
        pc: general.pc,
        sp: general.sp,
        fp: general.regs[29],
        extra: general.regs[30],
        extra_is: held::VALUE,
    }
}

/// Address of the thread control block.
pub(crate) fn thread_pointer(registers: &ThreadRegisters) -> u64 {
    registers.thread_pointer
}

/// Whose instructions call frame information may have: here those say where return addresses are signed (DWARF for the Arm
/// 64-bit Architecture, section 4.4).
pub(crate) const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;

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
        std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29",
            out(reg) at.pc, out(reg) at.sp, out(reg) at.fp);
    }
    at
}

/// framehop's unwinder, as it is named for this architecture.
pub(crate) type Unwinder<S> = framehop::aarch64::UnwinderAarch64<S>;
pub(crate) type UnwindCache = framehop::aarch64::CacheAarch64<framehop::MayAllocateDuringUnwind>;
pub(crate) type UnwindRegisters = framehop::aarch64::UnwindRegsAarch64;

pub(crate) fn unwind_registers(at: &Registers) -> UnwindRegisters {
    // A caller's is not known, and no rule of it needs it.
    let link = if at.extra_is == held::VALUE {
        at.extra
    } else {
        0
    };
    unwinding(link, at.sp, at.fp)
}

fn unwinding(link: u64, sp: u64, fp: u64) -> UnwindRegisters {
    let mask = framehop::aarch64::PtrAuthMask(code_address(u64::MAX));
    UnwindRegisters::new_with_ptr_auth_mask(mask, link, sp, fp)
}

pub(crate) fn frame_pointer(registers: &UnwindRegisters) -> u64 {
    registers.fp()
}

/// The program counter and the registers that a signal interrupted, by the layout in libc; `read` takes the distance
/// from the stack pointer.
pub(crate) fn interrupted(
    mut read: impl FnMut(u64) -> Option<u64>,
) -> Option<(u64, UnwindRegisters)> {
    /// A `siginfo_t` is before the context (arch/arm64/kernel/signal.c, `struct rt_sigframe`).
    const CONTEXT: usize = size_of::<libc::siginfo_t>() + offset_of!(libc::ucontext_t, uc_mcontext);
    let at = |field: usize| (CONTEXT + field) as u64;
    let general = |number: usize| at(offset_of!(libc::mcontext_t, regs) + 8 * number);
    let pc = read(at(offset_of!(libc::mcontext_t, pc)))?;
    let sp = read(at(offset_of!(libc::mcontext_t, sp)))?;
    Some((pc, unwinding(read(general(30))?, sp, read(general(29))?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_common::arch::SIGNAL_PC;

    #[test]
    fn a_signal_frame_is_read_where_libc_has_its_registers() {
        let mut offsets = Vec::new();
        interrupted(|offset| {
            offsets.push(offset);
            Some(0)
        });
        assert_eq!(offsets, [SIGNAL_PC, SIGNAL_SP, SIGNAL_EXTRA, SIGNAL_FP]);
    }
}
