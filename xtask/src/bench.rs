//! `cargo xtask bench`: the cost of tracing for the target, the collector and the disk. Prints
//! figures and asserts nothing about time: compare ratios of one run, never absolute figures of two
//! machines.

pub(crate) mod child;
mod disturbance;
mod holders;
mod programs;
mod torch;
mod walks;

use crate::command::{self, build_memtrace, compile_c, root, target_dir};
use anyhow::{Context, Result, ensure};
use child::{Collector, Target};
use clap::Args;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Pairs of malloc and free that one run measures
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u64,
    /// Number of rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Live blocks to keep when the ledger is measured
    #[arg(long, default_value_t = 2_000_000)]
    blocks: u64,
    /// Walks of each depth to time
    #[arg(long, default_value_t = 100_000)]
    walks: u64,
    /// Only time walks
    #[arg(long)]
    only_walks: bool,
    /// Only measure PyTorch, installed in this virtual environment
    #[arg(long)]
    torch: Option<PathBuf>,
    /// Device for PyTorch: `cuda`, a stand-in for a GPU while another process computes
    /// (`emulated`), or the `cpu`; all of them by default
    #[arg(long, requires = "torch", value_parser = ["cuda", "emulated", "cpu"])]
    torch_on: Option<String>,
    /// Only measure the cost of reading figures
    #[arg(long, conflicts_with = "only_walks")]
    only_samples: bool,
    /// Only measure signals and new threads, processes and programs
    #[arg(long, conflicts_with_all = ["only_walks", "only_samples"])]
    only_disturbance: bool,
    /// Only measure the search for holders; also with PyTorch, if it is installed in the given
    /// virtual environment
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["only_walks", "only_samples", "only_disturbance"])]
    only_holders: Option<Option<PathBuf>>,
}

/// Interval of the runs whose file size is measured, and the number of intervals in each.
const SHORT_INTERVAL_MS: u64 = 100;
const SECONDS: [u64; 2] = [2, 6];
/// Intervals of an hour at memtrace's default of one a second.
const INTERVALS_PER_HOUR: f64 = 3600.0;

struct Bench {
    memtrace: PathBuf,
    pairs: PathBuf,
    folder: PathBuf,
}

/// Results of a run under the full tracer.
struct Traced {
    ns_per_pair: f64,
    cpu_s: f64,
    received: u64,
    losses: u64,
}

/// `cargo xtask bench`.
///
/// # Errors
/// When not root, a build fails, or a run does not end.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("bench")?;
    ensure!(
        options.rounds > 0 && options.pairs > 0 && options.blocks > 0,
        "nothing to measure"
    );
    let folder = target_dir().join("bench");
    fs::create_dir_all(&folder)?;
    if options.only_walks {
        // The kernel side is timed, whatever the build of the rest.
        println!("{}", machine());
        let memtrace = build_memtrace(false)?;
        walks::run(&memtrace, &folder, options.walks)?;
        return walks::run_python(&memtrace, &folder, options.walks);
    }
    if let Some(environment) = &options.torch {
        // The kernel side is timed, whatever the build of the rest.
        println!("{}", machine());
        return torch::run(
            &build_memtrace(false)?,
            &folder,
            environment,
            options.torch_on.as_deref(),
            options.rounds,
        );
    }
    if options.only_disturbance {
        println!("{}", machine());
        return disturbance::run(&build_memtrace(true)?, &folder, options.rounds);
    }
    if let Some(environment) = &options.only_holders {
        println!("{}", machine());
        return holders::run(&build_memtrace(true)?, &folder, environment.as_deref());
    }
    let bench = Bench {
        memtrace: build_memtrace(!options.only_samples)?,
        pairs: folder.join("pairs"),
        folder,
    };
    compile_c(&root().join("xtask/bench/pairs.c"), &bench.pairs)?;
    println!("{}", machine());
    if options.only_samples {
        println!("{}", bench.samples()?);
        return Ok(());
    }

    let (mut none, mut empty, mut full, mut cpu) = (vec![], vec![], vec![], vec![]);
    let mut losses = 0;
    for round in 1..=options.rounds {
        none.push(bench.untraced(options.pairs)?);
        empty.push(bench.empty_probes(options.pairs)?);
        let traced = bench.traced(options.pairs)?;
        full.push(traced.ns_per_pair);
        ensure!(traced.received > 0, "the recording contains no events");
        cpu.push(traced.cpu_s / traced.received as f64 * 1e6);
        losses += traced.losses;
        eprintln!("round {round} of {} done", options.rounds);
    }
    let (none, empty, full) = (median(&mut none), median(&mut empty), median(&mut full));

    println!(
        "malloc(64) and free, {} pairs, median of {} rounds",
        options.pairs, options.rounds
    );
    println!(
        "  {:<28}{:>10} {:>9} {:>9}",
        "", "ns/pair", "× none", "× empty"
    );
    for (name, ns) in [
        ("no tracing", none),
        ("empty probes, same sites", empty),
        ("memtrace record", full),
    ] {
        println!(
            "  {name:<28}{ns:>10.1} {:>9.1} {:>9.2}",
            ns / none,
            ns / empty
        );
    }
    println!("events lost in the traced rounds: {losses}");
    println!(
        "collector: {:.2} s of CPU time per million events",
        median(&mut cpu)
    );
    println!("{}", bench.ledger(options.blocks)?);
    println!("{}", bench.file_growth()?);
    println!("{}", bench.samples()?);
    disturbance::run(&bench.memtrace, &bench.folder, options.rounds)?;
    walks::run(&bench.memtrace, &bench.folder, options.walks)?;
    walks::run_python(&bench.memtrace, &bench.folder, options.walks)?;
    Ok(())
}

impl Bench {
    fn untraced(&self, pairs: u64) -> Result<f64> {
        let mut target = Target::start(&self.pairs, &["run", &pairs.to_string()])?;
        target.go()?;
        parse_ns(&target.finish()?)
    }

    fn empty_probes(&self, pairs: u64) -> Result<f64> {
        let mut target = Target::start(&self.pairs, &["run", &pairs.to_string()])?;
        let file = self.folder.join("empty.mtr");
        let collector = Collector::attach(&self.memtrace, target.id(), &file, &["--empty-probes"])?;
        target.go()?;
        let ns = parse_ns(&target.finish()?)?;
        collector.finish()?;
        Ok(ns)
    }

    fn traced(&self, pairs: u64) -> Result<Traced> {
        let mut target = Target::start(&self.pairs, &["run", &pairs.to_string()])?;
        let file = self.folder.join("pairs.mtr");
        let collector = Collector::attach(&self.memtrace, target.id(), &file, &[])?;
        target.go()?;
        let ns_per_pair = parse_ns(&target.finish()?)?;
        let ended = collector.finish()?;
        let report = self.report(&file)?;
        let received = report
            .get("received")
            .and_then(Value::as_u64)
            .context("the report has no `received`")?;
        let emitted = report
            .get("emitted")
            .and_then(Value::as_u64)
            .unwrap_or(received);
        Ok(Traced {
            ns_per_pair,
            cpu_s: ended.cpu_s,
            received,
            losses: emitted.saturating_sub(received),
        })
    }

    fn report(&self, file: &Path) -> Result<Value> {
        let json = command::output(
            Command::new(&self.memtrace)
                .arg("report")
                .arg(file)
                .args(["--format", "json"]),
        )?;
        serde_json::from_str(&json).context("the report is not JSON")
    }

    /// Bytes that the ledger needs for one live allocation, according to its own report.
    fn ledger(&self, blocks: u64) -> Result<String> {
        let mut target = Target::start(&self.pairs, &["hold", &blocks.to_string()])?;
        let file = self.folder.join("hold.mtr");
        let collector = Collector::attach(&self.memtrace, target.id(), &file, &["-v"])?;
        target.go()?;
        target.expect("held")?;
        let ended = collector.interrupt()?;
        target.finish()?;
        let (outstanding, bytes) = ended
            .stderr
            .iter()
            .find_map(|line| parse_ledger(line))
            .context("memtrace -v printed no line `ledger: N outstanding, B bytes`")?;
        ensure!(outstanding > 0, "the ledger is empty");
        Ok(format!(
            "ledger: {:.1} bytes per outstanding allocation ({outstanding} outstanding of {blocks} made)",
            bytes as f64 / outstanding as f64
        ))
    }

    /// Cost of reading the figures of processes, machine and control groups, according to memtrace
    /// itself.
    fn samples(&self) -> Result<String> {
        let mut target = Target::start(&self.pairs, &["steady", &SECONDS[1].to_string()])?;
        let file = self.folder.join("samples.mtr");
        let interval = format!("{SHORT_INTERVAL_MS}ms");
        let options = ["-v", "--interval", &interval];
        let collector = Collector::attach(&self.memtrace, target.id(), &file, &options)?;
        target.go()?;
        target.finish()?;
        let ended = collector.finish()?;
        let costs = ended.stderr.iter().find_map(|line| parse_samples(line));
        let costs = costs.context("memtrace -v printed no line `samples: NAME N of T ns, …`")?;
        let mut text = format!(
            "samples every {SHORT_INTERVAL_MS} ms, of one process with few mappings; share of a CPU at one a second"
        );
        // There are none of "process" if each was cheap enough to be one "with mappings".
        let read: Vec<_> = costs.into_iter().filter(|cost| cost.1 > 0).collect();
        ensure!(!read.is_empty(), "nothing was read");
        for (name, _, ns) in read {
            let share = ns as f64 / 1e9 * 100.0;
            text += &format!("\n  {name:<28}{ns:>10} ns {share:>9.4} %");
        }
        Ok(text)
    }

    /// Growth of a recording over time, from the difference of a long and a short one.
    fn file_growth(&self) -> Result<String> {
        let mut sizes = [0u64; 2];
        for (size, seconds) in sizes.iter_mut().zip(SECONDS) {
            let mut target = Target::start(&self.pairs, &["steady", &seconds.to_string()])?;
            let file = self.folder.join("steady.mtr");
            let interval = format!("{SHORT_INTERVAL_MS}ms");
            let collector = Collector::attach(
                &self.memtrace,
                target.id(),
                &file,
                &["--interval", &interval],
            )?;
            target.go()?;
            target.finish()?;
            collector.finish()?;
            *size = fs::metadata(&file)
                .with_context(|| format!("no recording `{}`", file.display()))?
                .len();
        }
        let intervals = (SECONDS[1] - SECONDS[0]) * 1000 / SHORT_INTERVAL_MS;
        let per_interval = sizes[1].saturating_sub(sizes[0]) as f64 / intervals as f64;
        Ok(format!(
            "recording: {:.1} MB per hour at one interval a second, 100 sites changing in each \
             ({per_interval:.0} bytes per interval; {} bytes after {} s of {SHORT_INTERVAL_MS} ms)",
            per_interval * INTERVALS_PER_HOUR / 1e6,
            sizes[1],
            SECONDS[1]
        ))
    }
}

fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown CPU", |(_, model)| model.trim());
    let number = cpus
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    format!(
        "{number} × {model}, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

fn parse_ns(lines: &[String]) -> Result<f64> {
    let line = lines.last().context("the target printed no figure")?;
    line.parse()
        .with_context(|| format!("the target printed `{line}`, expected ns per pair"))
}

/// `ledger: N outstanding, B bytes`, anywhere in the line.
fn parse_ledger(line: &str) -> Option<(u64, u64)> {
    let (_, figures) = line.split_once("ledger: ")?;
    let (outstanding, bytes) = figures.split_once(" outstanding, ")?;
    let bytes = bytes.split_once(" bytes")?.0;
    Some((outstanding.parse().ok()?, bytes.parse().ok()?))
}

/// `samples: NAME N of T ns, …`, wherever in the line: names, counts and times.
fn parse_samples(line: &str) -> Option<Vec<(&str, u64, u64)>> {
    let (_, costs) = line.split_once("samples: ")?;
    let costs = costs.split(", ").map(|cost| {
        let (start, ns) = cost.strip_suffix(" ns")?.split_once(" of ")?;
        let (name, count) = start.rsplit_once(' ')?;
        Some((name, count.parse().ok()?, ns.parse().ok()?))
    });
    costs.collect()
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_line_is_found_behind_a_prefix() {
        assert_eq!(
            parse_ledger("memtrace: ledger: 2000000 outstanding, 96000000 bytes"),
            Some((2_000_000, 96_000_000))
        );
        assert_eq!(parse_ledger("memtrace: recording"), None);
    }

    #[test]
    fn the_line_of_samples_has_names_counts_and_times() {
        assert_eq!(
            parse_samples("samples: process 3 of 80 ns, control groups 1 of 9 ns"),
            Some(vec![("process", 3, 80), ("control groups", 1, 9)])
        );
        assert_eq!(parse_samples("samples: process 3"), None);
        assert_eq!(parse_samples("memtrace: recording"), None);
    }

    #[test]
    fn an_even_number_of_rounds_has_the_mean_of_the_middle_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
