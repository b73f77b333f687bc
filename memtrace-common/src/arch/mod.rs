//! Registers and stacks: a file for each architecture. Tests have all of them.

#[cfg(any(test, target_arch = "aarch64", bpf_target_arch = "aarch64"))]
#[cfg_attr(test, allow(dead_code, reason = "another one may be this machine's"))]
pub(crate) mod aarch64;
#[cfg(any(test, not(any(target_arch = "aarch64", bpf_target_arch = "aarch64"))))]
#[cfg_attr(test, allow(dead_code, reason = "another one may be this machine's"))]
pub(crate) mod x86_64;

#[cfg(any(target_arch = "aarch64", bpf_target_arch = "aarch64"))]
pub use aarch64::*;
#[cfg(not(any(target_arch = "aarch64", bpf_target_arch = "aarch64")))]
pub use x86_64::*;
