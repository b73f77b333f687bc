//! What can go wrong with the kernel side.

use std::io;

use aya::{EbpfError, maps::MapError, programs::ProgramError};

use super::btf;

/// Why the kernel side could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TracerError {
    #[error(transparent)]
    Btf(#[from] btf::BtfError),
    #[error("cannot mount tracefs at `/sys/kernel/tracing`: {0}; run as root, or mount it")]
    Tracefs(io::Error),
    #[error("the kernel refused the tracing programs: {}", headline(.0))]
    Load(#[from] EbpfError),
    #[error("the tracing programs lack {0}; the build is broken")]
    Missing(&'static str),
    #[error("the kernel refused program `{program}`: {}", headline(source))]
    Program {
        program: &'static str,
        source: ProgramError,
    },
    #[error("cannot attach to tracepoint `{tracepoint}`: {source}")]
    Tracepoint {
        tracepoint: &'static str,
        source: ProgramError,
    },
    #[error("cannot probe `{symbol}` in process {tgid}: {source}")]
    Uprobe {
        symbol: String,
        tgid: u32,
        source: ProgramError,
    },
    #[error("cannot probe process {tgid}: {source}")]
    Uprobes { tgid: u32, source: io::Error },
    #[error("cannot update a map of the kernel side: {0}")]
    Map(#[from] MapError),
    #[error("cannot read the state of a program: {0}")]
    State(io::Error),
}

/// An error without the verifier's log, which goes to the debug log.
fn headline(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    tracing::debug!("{text}");
    text.split("Verifier output")
        .next()
        .unwrap_or(&text)
        .trim_end()
        .to_owned()
}
