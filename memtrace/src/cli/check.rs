//! `memtrace check`: whether this host can trace.

use crate::{
    bpf::{Options, Tracer, inventory::Inventory},
    check,
};
use anyhow::Context;
use std::{io::Write, process::ExitCode};

/// Tell whether this host can trace, and what would help
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Load the kernel side and print what it consists of, as JSON
    #[arg(long, hide = true)]
    loaded: bool,
}

/// Exit code where something that tracing needs is missing.
const CANNOT_TRACE: u8 = 2;

/// Exit code 0 if tracing is possible, 2 otherwise.
///
/// # Errors
/// The kernel side was to be loaded and cannot be; or `out` fails.
pub fn run(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.loaded {
        let (_tracer, _ring) = Tracer::load(Options::default())?;
        let inventory = Inventory::of_this_process().context("cannot list what was loaded")?;
        writeln!(out, "{}", inventory.to_json())?;
        return Ok(ExitCode::SUCCESS);
    }
    let checks = check::run_checks();
    check::render(&checks, out)?;
    Ok(match check::first_failure(&checks) {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(CANNOT_TRACE),
    })
}
