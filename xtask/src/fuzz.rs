//! `cargo xtask fuzz`: the decoders of `memtrace holders` on millions of memories that are nearly right.

use crate::command::{self, cargo};
use anyhow::Result;
use clap::Args;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Args)]
pub(crate) struct Options {
    /// Memory images that each kind of decoder reads
    #[arg(long, default_value_t = 10_000_000)]
    executions: u64,
    /// Seed of the random numbers; different each time unless given
    #[arg(long)]
    seed: Option<u64>,
}

/// The tests that are run: `holders::python::tests::fuzz` and `holders::native::tests::fuzz`.
const TESTS: &str = "tests::fuzz::";

/// `cargo xtask fuzz`.
///
/// # Errors
/// When a decoder panics, does not return, or reads or allocates without a bound.
pub(crate) fn run(options: &Options) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = options.seed.unwrap_or(now.as_secs());
    // Optimised, with checks of arithmetic.
    command::run(
        cargo()
            .env("MEMTRACE_FUZZ_EXECUTIONS", options.executions.to_string())
            .env("MEMTRACE_FUZZ_SEED", seed.to_string())
            .args([
                "test",
                "--profile",
                "fuzz",
                "--package",
                "memtrace",
                "--lib",
            ])
            .args([TESTS, "--", "--test-threads=1", "--nocapture"]),
    )
}
