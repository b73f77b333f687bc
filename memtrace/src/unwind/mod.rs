//! Finds the callers of a file's code: call frame information (CFI), compiled once per file into
//! the table that the kernel side walks with.

mod cache;
mod compile;
mod contexts;
mod fragments;
mod image;
mod rules;
mod single;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod trampoline;
mod writer;

pub(crate) use cache::Cache;
pub(crate) use contexts::Contexts;
pub(crate) use fragments::fragments;
pub(crate) use single::rule_at;
pub(crate) use table::Table;

/// Why a file's call frame information cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("expected a 64-bit little-endian ELF file: {0}")]
    NotElf(#[from] object::read::Error),
    /// `e_machine` of the file.
    #[error("expected x86-64 code, got ELF machine {0}")]
    Machine(u16),
    /// First and last address of the code, as the file means them.
    #[error("code from {start:#x} to {end:#x} spans more than a table can")]
    TooLarge { start: u64, end: u64 },
}
