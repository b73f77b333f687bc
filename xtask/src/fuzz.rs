//! `cargo xtask fuzz`: the readers of what others wrote, on millions of inputs that are nearly right.

use crate::command::{self, PACKAGE, cargo, root, target_dir};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::{
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

#[derive(Args)]
pub(crate) struct Options {
    /// Only these: a folder of memtrace/fuzz/corpus, or `holders`
    targets: Vec<String>,
    /// Inputs of each target
    #[arg(long, default_value_t = 10_000_000)]
    executions: u64,
    /// Ends a target after this time, if it has not had its inputs
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Seed of the random numbers; different each time unless given
    #[arg(long)]
    seed: Option<u32>,
}

/// The decoders of `memtrace holders`, which read memory and no file: `holders::python::tests::fuzz` and
/// `holders::native::tests::fuzz`.
const HOLDERS: &str = "holders";
const HOLDERS_TESTS: &str = "tests::fuzz::";

/// Most memory, MiB, and most seconds for one input.
const MEMORY: u32 = 512;
const TIME: u32 = 10;

/// libFuzzer's instrumentation, as the compiler's own pass: `-Z sanitizer` needs a nightly compiler.
const COVERAGE: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Named, so that build scripts are compiled without it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// `cargo xtask fuzz`.
///
/// # Errors
/// When a reader panics, does not return, or reads or allocates without a bound.
pub(crate) fn run(options: &Options) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = options.seed.unwrap_or(now.as_secs() as u32);
    let corpora = root().join("memtrace/fuzz/corpus");
    let mut all = folders(&corpora)?;
    all.push(HOLDERS.to_owned());
    if let Some(unknown) = options.targets.iter().find(|name| !all.contains(name)) {
        bail!("no target `{unknown}`; there are {}", all.join(", "));
    }
    if !options.targets.is_empty() {
        all.retain(|name| options.targets.contains(name));
    }
    if all != [HOLDERS] {
        build()?;
    }
    for target in &all {
        match &**target {
            HOLDERS => holders(options.executions, seed)?,
            target => one(target, &corpora.join(target), options, seed)?,
        }
    }
    Ok(())
}

fn folders(of: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(of).with_context(|| format!("cannot read {}", of.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

fn build() -> Result<()> {
    command::run(
        cargo()
            .env("RUSTFLAGS", COVERAGE)
            .args(["build", "--release", "--target", TARGET])
            .args([
                "--manifest-path",
                "memtrace/fuzz/Cargo.toml",
                "--target-dir",
            ])
            .arg(target_dir().join("fuzz")),
    )
}

/// Inputs that reach new code are kept in `target/fuzz`; those that show a fault, too.
fn one(target: &str, corpus: &Path, options: &Options, seed: u32) -> Result<()> {
    let folder = target_dir().join("fuzz");
    let found = folder.join("found").join(target);
    fs::create_dir_all(&found)?;
    let mut command = Command::new(folder.join(TARGET).join("release/memtrace-fuzz"));
    command
        .env("MEMTRACE_FUZZ_TARGET", target)
        .arg(format!("-runs={}", options.executions))
        .arg(format!("-max_total_time={}", options.minutes * 60))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-timeout={TIME}"))
        .arg(format!("-seed={seed}"))
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}/{target}-", folder.display()))
        .args([&found, corpus]);
    command::run(&mut command).with_context(|| {
        format!("the input above is a fault of `{target}`; once mended, add it to its corpus")
    })
}

fn holders(executions: u64, seed: u32) -> Result<()> {
    // Optimised, with checks of arithmetic.
    command::run(
        cargo()
            .env("MEMTRACE_FUZZ_EXECUTIONS", executions.to_string())
            .env("MEMTRACE_FUZZ_SEED", seed.to_string())
            .args(["test", "--profile", "fuzz", "--package", PACKAGE])
            .args([
                "--lib",
                HOLDERS_TESTS,
                "--",
                "--test-threads=1",
                "--nocapture",
            ]),
    )
}
