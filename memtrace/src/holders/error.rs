//! The reasons why a process cannot be searched, as the user reads them.

use crate::{process::maps::MapsError, units};

/// Why a process cannot be searched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Maps(#[from] MapsError),
    #[error("process {0} ended during the search")]
    Ended(u32),
    #[error("process {0} executed another program during the search: search again")]
    Replaced(u32),
    #[error("the search was interrupted")]
    Over,
    #[error("the paths cannot be verified: {0}")]
    Stop(String),
    #[error("{0}")]
    Held(String),
    #[error(
        "the search needs {}, and {} of memory are left for memtrace: search where there is more",
        units::size(*.need),
        units::size(*.left)
    )]
    NoRoom { need: u64, left: u64 },
    #[error(
        "the search needs {}, and `--search-memory` allows {}",
        units::size(*.need),
        units::size(*.most)
    )]
    MoreThanAllowed { need: u64, most: u64 },
    #[error("nothing grows in process {0} while it is stopped: search it while it runs")]
    Still(u32),
    #[error("the process has too many references for retained sizes")]
    TooMany,
    #[error("memtrace knows none of its malloc blocks, so it cannot tell which are lost: {0}")]
    NoBlocks(String),
    #[error(
        "process {pid} runs no CPython that memtrace can read{}; for memory of C, C++ or Rust, use --address or --lost, or `memtrace record`",
        reason(.why)
    )]
    NoPython { pid: u32, why: Option<String> },
}

fn reason(why: &Option<String>) -> String {
    why.as_ref()
        .map_or_else(String::new, |why| format!(": {why}"))
}
