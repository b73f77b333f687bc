//! Errors of reading ELF files.

/// Why a file cannot be read as ELF.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    /// Their arguments are not in registers.
    #[error("expected a 64-bit ELF file, got a 32-bit one")]
    NotSupported,
    #[error("malformed ELF file: {0}")]
    Malformed(#[from] object::read::Error),
    #[error("a symbol table with {0} symbols; at most 8,388,608 are read")]
    TooManySymbols(u64),
}
