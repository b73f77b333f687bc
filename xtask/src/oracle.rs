//! `cargo xtask oracle`: large programs under load, with their stacks verified
//! by a second unwinder. Slow, and it installs the programs.

pub(crate) mod workloads;

use crate::{
    bench::child::Collector,
    command::{self, build_memtrace, target_dir},
    setup,
};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};
use workloads::{WORKLOADS, Workload};

#[derive(Args)]
pub(crate) struct Options {
    /// Run only the workload of this name
    only: Option<String>,
    /// Time under load for each, seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Verify each Nth stack
    #[arg(long, value_name = "N", default_value_t = 100)]
    every: u64,
    /// Virtual environment with PyTorch: adds the workload `torch`
    #[arg(long, value_name = "DIR")]
    torch: Option<PathBuf>,
}

/// Begins a workload in a folder of its own.
type Begin<'a> = Box<dyn Fn(&Path) -> Result<Workload> + 'a>;

/// Less is a failure, percent of the allocations.
const COMPLETE: f64 = 99.9;

/// Programs from Debian's packages.
const PACKAGES: [&str; 8] = [
    "postgresql",
    "postgresql-contrib",
    "redis-server",
    "redis-tools",
    "nginx-light",
    "apache2-utils",
    "python3",
    "python3-numpy",
];

/// Result of one workload.
struct Row {
    name: &'static str,
    events: u64,
    complete: f64,
    verified: Value,
    /// Ends of incomplete stacks, by module.
    modules: Value,
}

impl Row {
    fn count(&self, key: &str) -> u64 {
        self.verified.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn passes(&self) -> bool {
        self.count("stacks") > 0 && self.count("mismatches") == 0 && self.complete >= COMPLETE
    }
}

/// `cargo xtask oracle`.
///
/// # Errors
/// When not root, a workload does not run, a stack does not verify, or too few are complete.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("the oracle")?;
    setup::install(&PACKAGES)?;
    let memtrace = build_memtrace(false)?;
    let started = WORKLOADS.iter();
    let mut all: Vec<(&'static str, Begin)> = started
        .map(|(name, start)| (*name, Box::new(start) as Begin))
        .collect();
    if let Some(environment) = &options.torch {
        all.push(("torch", Box::new(|_| workloads::torch(environment))));
    }
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    all.retain(|(name, _)| options.only.as_deref().is_none_or(|only| only == *name));
    ensure!(
        !all.is_empty(),
        "unknown workload; expected one of: {}",
        names.join(", ")
    );
    let mut rows = Vec::new();
    for (name, begin) in &all {
        eprintln!("oracle: {name}, {} s", options.seconds);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        // Not in the target folder: a server that is not root's must get there.
        let folder = std::env::temp_dir().join(format!("memtrace-oracle-{now}"));
        fs::create_dir(&folder)?;
        let row = trace(&memtrace, name, begin, &folder, options)
            .with_context(|| format!("workload `{name}`"));
        let _ = fs::remove_dir_all(&folder);
        let row = row?;
        println!("{name}: verified {}", row.verified);
        println!("{name}: incomplete stacks end in {}", row.modules);
        rows.push(row);
    }
    println!(
        "{:<12} {:>10} {:>11} {:>9} {:>9} {:>9} {:>11} {:>11}",
        "", "events", "complete %", "verified", "to end", "frames", "recognized", "mismatches"
    );
    for row in &rows {
        println!(
            "{:<12} {:>10} {:>11.4} {:>9} {:>9} {:>9} {:>11} {:>11}",
            row.name,
            row.events,
            row.complete,
            row.count("stacks"),
            row.count("whole"),
            row.count("frames"),
            row.count("recognized"),
            row.count("mismatches")
        );
    }
    let failed: Vec<_> = rows
        .iter()
        .filter(|row| !row.passes())
        .map(|row| row.name)
        .collect();
    if !failed.is_empty() {
        bail!(
            "stacks do not match, or less than {COMPLETE} % are complete: {}",
            failed.join(", ")
        );
    }
    Ok(())
}

fn trace(
    memtrace: &Path,
    name: &'static str,
    begin: &Begin,
    folder: &Path,
    options: &Options,
) -> Result<Row> {
    let mut workload = begin(folder)?;
    let recording = target_dir().join(format!("oracle-{name}.mtr"));
    let (first, others) = workload
        .pids
        .split_first()
        .context("there is nothing to trace")?;
    let mut arguments: Vec<String> = others
        .iter()
        .flat_map(|pid| ["-p".to_owned(), pid.to_string()])
        .collect();
    arguments.extend([
        "--duration".to_owned(),
        format!("{}s", options.seconds),
        "--verify-stacks".to_owned(),
        options.every.to_string(),
    ]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let collector = Collector::attach(memtrace, *first, &recording, &arguments)?;
    workload.load()?;
    let ended = collector.finish()?;
    drop(workload);
    let mut verified = Value::Null;
    // The report contains it too, among many megabytes about sites.
    let (events, _) = ended.events()?;
    for line in &ended.stderr {
        match line.strip_prefix("verified: ") {
            Some(json) => verified = serde_json::from_str(json)?,
            None => eprintln!("  {line}"),
        }
    }
    let health = command::output(
        Command::new(memtrace)
            .args(["report", "--stack-health", "--format", "json"])
            .arg(&recording),
    )?;
    let health: Value = serde_json::from_str(&health)?;
    let whole = health.get("complete").and_then(Value::as_u64).unwrap_or(0);
    let failed: u64 = health
        .get("failed")
        .and_then(Value::as_object)
        .map_or(0, |failed| failed.values().filter_map(Value::as_u64).sum());
    let truncated = health.get("truncated").and_then(Value::as_u64).unwrap_or(0);
    let all = whole + failed + truncated;
    ensure!(all > 0, "nothing was allocated");
    Ok(Row {
        name,
        events,
        complete: whole as f64 / all as f64 * 100.0,
        verified,
        modules: health.get("by_module").cloned().unwrap_or_default(),
    })
}
