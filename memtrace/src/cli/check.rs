//! `memtrace check`: whether this host can trace.

use super::hints;
use crate::{
    bpf::{Options, Tracer, TracerError, inventory::Inventory},
    check,
    progress::Progress,
};
use anyhow::Context;
use serde_json::json;
use std::{io::Write, process::ExitCode, time::Instant};

/// Check that this host can trace, and print what to fix
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Load the kernel side and print its programs and maps as JSON
    #[arg(long, hide = true)]
    loaded: bool,
}

/// Exit code if a requirement is missing.
const CANNOT_TRACE: u8 = 2;

/// Exit code 0 if tracing is possible, 2 otherwise.
///
/// # Errors
/// The kernel side cannot be loaded, or `out` fails.
pub(crate) fn run(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.loaded {
        let begun = Instant::now();
        let (mut tracer, _ring) = Tracer::load(Options::default())?;
        tracer.load_rest()?;
        let load_ms = begun.elapsed().as_millis();
        let inventory = Inventory::of_this_process().context("cannot list loaded BPF programs")?;
        let mut loaded = inventory.to_json();
        loaded["load_ms"] = json!(load_ms);
        loaded["legacy"] = json!(tracer.is_legacy());
        loaded["multi_links"] = json!(tracer.has_multi_links());
        loaded["sessions"] = json!(tracer.has_sessions());
        writeln!(out, "{loaded}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::begin("loading the tracing programs");
    let mut checks = check::run_checks();
    if check::first_failure(&checks).is_none() {
        checks.extend(check::programs(load().map_err(|error| error.to_string())));
    }
    drop(progress);
    check::render(&checks, hints::colour(), out)?;
    Ok(match check::first_failure(&checks) {
        None => {
            hints::next("memtrace record -p PID -d 60s");
            ExitCode::SUCCESS
        }
        Some(_) => ExitCode::from(CANNOT_TRACE),
    })
}

/// Loads the kernel side as `record` does, which finds problems that no other check does.
fn load() -> Result<check::Loaded, TracerError> {
    let begun = Instant::now();
    let (mut tracer, _ring) = Tracer::load(Options {
        ring_bytes: 0,
        ..Options::default()
    })?;
    tracer.load_rest()?;
    Ok(check::Loaded {
        time: begun.elapsed(),
        all_at_once: tracer.has_multi_links(),
        sessions: tracer.has_sessions(),
    })
}
