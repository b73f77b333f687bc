//! x86-64: instructions, and the names of registers. What only its own machine needs is in `native`.

mod instructions;
#[cfg(target_arch = "x86_64")]
pub(super) mod native;
mod thread_cache;

pub(super) use instructions::{BEGINNING, addresses_taken, forwards, jumps, probe_site, returns};
pub(super) use thread_cache::thread_cache;

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
