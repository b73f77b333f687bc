//! `cargo xtask fuzz`: readers of other people's data on millions of damaged inputs.

use crate::command::{self, cargo, root, target_dir};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

#[derive(Args)]
pub(crate) struct Options {
    /// Readers to run: holders, or a target of `memtrace/src/fuzzing.rs`; by default all of them
    targets: Vec<String>,
    /// Inputs for each reader (`holders`: for each kind of decoder)
    #[arg(long, default_value_t = 10_000_000)]
    executions: u64,
    /// Minutes for each reader except holders, if its inputs take longer
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Seed of the random numbers; different each time unless given
    #[arg(long)]
    seed: Option<u64>,
}

/// Decoders of `memtrace holders`, on memory images that are nearly right. They have no corpus.
const HOLDERS: &str = "holders";

/// The tests that are run: `holders::python::tests::fuzz` and `holders::native::tests::fuzz`.
const TESTS: &str = "tests::fuzz::";

/// Most memory of a process that reads, MiB, and longest time for one input, seconds.
const MOST_MEMORY: u32 = 512;
const LONGEST: u32 = 10;

/// The compiler target: named, so that build scripts are not instrumented.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Makes a build count its branches for libFuzzer, as cargo-fuzz does.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// `cargo xtask fuzz`.
///
/// # Errors
/// When a reader panics, does not return, or reads or allocates without a bound.
pub(crate) fn run(options: &Options) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = options.seed.unwrap_or(now.as_secs());
    let corpora = root().join("memtrace/fuzz/corpus");
    let mut known = vec![HOLDERS.to_owned()];
    for entry in fs::read_dir(&corpora).context("cannot list the corpora")? {
        known.push(entry?.file_name().to_string_lossy().into_owned());
    }
    let wanted = match options.targets.is_empty() {
        true => known.clone(),
        false => options.targets.clone(),
    };
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        bail!("unknown reader `{unknown}`; expected {}", known.join(", "));
    }
    for target in &wanted {
        match target.as_str() {
            HOLDERS => holders(options.executions, seed)?,
            target => fuzz(target, options, seed)?,
        }
    }
    Ok(())
}

fn holders(executions: u64, seed: u64) -> Result<()> {
    // Optimised, with checks of arithmetic.
    command::run(
        cargo()
            .env("MEMTRACE_FUZZ_EXECUTIONS", executions.to_string())
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

/// Runs libFuzzer on a target. New inputs go to `target/fuzz/corpus`; those of the repository stay as they are.
fn fuzz(target: &str, options: &Options, seed: u64) -> Result<()> {
    let built = target_dir().join("fuzz");
    command::run(
        cargo()
            .env("RUSTFLAGS", COVERAGE)
            .args(["build", "--release", "--target", TRIPLE])
            .arg("--manifest-path")
            .arg(root().join("memtrace/fuzz/Cargo.toml"))
            .arg("--target-dir")
            .arg(&built),
    )?;
    let grown = built.join("corpus").join(target);
    let findings = built.join("findings").join(target);
    for folder in [&grown, &findings] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
    }
    let mut libfuzzer =
        std::process::Command::new(built.join(TRIPLE).join("release/memtrace-fuzz"));
    libfuzzer
        .env("MEMTRACE_FUZZ_TARGET", target)
        .arg(&grown)
        .arg(root().join("memtrace/fuzz/corpus").join(target))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .arg(format!("-runs={}", options.executions))
        .arg(format!("-max_total_time={}", options.minutes * 60))
        .arg(format!("-rss_limit_mb={MOST_MEMORY}"))
        .arg(format!("-timeout={LONGEST}"))
        .arg(format!("-seed={}", seed as u32))
        // What the readers print is not wanted.
        .args(["-close_fd_mask=1", "-print_final_stats=1", "-verbosity=1"]);
    command::run(&mut libfuzzer)
        .with_context(|| format!("the input is in `{}`", findings.display()))
}
