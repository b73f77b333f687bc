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

/// See [`super::operand`]: `%rax`, `-56(%rbp)`.
pub(super) fn operand(text: &str) -> Option<(u8, Option<i64>)> {
    let (offset, name) = match text.strip_suffix(')') {
        Some(place) => {
            let (offset, name) = place.split_once('(')?;
            let offset = match offset {
                "" => 0,
                offset => offset.parse().ok()?,
            };
            (Some(offset), name)
        }
        None => (None, text),
    };
    Some((register(name.strip_prefix('%')?)?, offset))
}

fn register(name: &str) -> Option<u8> {
    let mut names = REGISTERS.iter();
    let place = names.position(|known| *known == name && !name.is_empty())?;
    u8::try_from(place).ok()
}
