//! Registers and instructions: one file per architecture.

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;
#[cfg(bpf_target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(bpf_target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// The integer argument registers; a power of two, so that a masked index is in range.
pub(crate) type Arguments = [u64; 8];

/// One argument; 0 for `NO_ARGUMENT`.
#[inline(always)]
pub(crate) fn argument(arguments: &Arguments, index: u8) -> u64 {
    arguments[(index & 7) as usize]
}
