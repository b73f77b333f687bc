//! `memtrace check`: whether this host can trace.

use crate::check;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Tell whether this host can trace, and what would help
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {}

/// Exit code where something that tracing needs is missing.
const CANNOT_TRACE: u8 = 2;

/// Exit code 0 if tracing is possible, 2 otherwise.
pub fn run(_args: &CheckArgs, out: &mut impl Write) -> io::Result<ExitCode> {
    let checks = check::run_checks();
    check::render(&checks, out)?;
    Ok(match check::first_failure(&checks) {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(CANNOT_TRACE),
    })
}
