//! `cargo xtask bench`: the cost of tracing for the target, the collector and the disk. Prints
//! figures and asserts nothing about time: compare ratios of one run, never absolute figures of two
//! machines.

mod allocators;
pub(crate) mod child;
mod collector;
mod disturbance;
mod figures;
mod forks;
mod holders;
mod imports;
mod native;
mod paired;
mod peers;
mod programs;
mod python;
mod rate;
mod reading;
mod servers;
mod start;
mod table;
mod torch;
mod walks;
mod workloads;

use crate::command::{self, build_memtrace, target_dir};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};
use table::Table;

#[derive(Args)]
pub(crate) struct Options {
    /// Groups to measure; by default all but `holders`, and `torch` only with `--torch`
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_enum)]
    only: Vec<Group>,
    /// Workloads to measure, by name or by the beginning of it (`pairs`, `python`); only them, unless
    /// `--only` names further groups
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Vec<String>,
    /// Number of rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Print JSON, at the end
    #[arg(long)]
    json: bool,
    /// Measure the workloads with other tools too, if they are installed: heaptrack, massif, memray,
    /// bpftrace
    #[arg(long)]
    peers: bool,
    /// Interpreter of the workloads in Python
    #[arg(long, default_value = "/usr/bin/python3")]
    python: PathBuf,
    /// Virtual environment with PyTorch: adds the groups `imports` and `torch`, the workloads
    /// `torch-…`, to `holders` a program, and to `reading` recordings
    #[arg(long, value_name = "DIR")]
    torch: Option<PathBuf>,
    /// Device for the group `torch`: `cuda`, a stand-in for a GPU while another process computes
    /// (`emulated`), or the `cpu`; all of them by default
    #[arg(long, requires = "torch", value_parser = ["cuda", "emulated", "cpu"])]
    torch_on: Option<String>,
    /// Pairs of malloc and free in one run of `pairs`; others have a similar number of allocations
    #[arg(long, default_value_t = 300_000)]
    pairs: u64,
    /// Live blocks to keep when the ledger is measured
    #[arg(long, default_value_t = 2_000_000)]
    blocks: u64,
    /// Events of each run of the groups `rate` and `reading`
    #[arg(long, default_value_t = 4_000_000)]
    events: u64,
    /// Walks of each depth to time
    #[arg(long, default_value_t = 100_000)]
    walks: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Group {
    /// Programs untraced and traced in several ways: a table for each
    Workloads,
    /// The same work with glibc's allocator, jemalloc, tcmalloc and mimalloc
    Allocators,
    /// Memory of the ledger, growth of the recording
    Collector,
    /// Events a second, and how many of them are lost
    Rate,
    /// The start of a launched program
    Start,
    /// Reading the figures of processes, machine and control groups
    Samples,
    /// Signals, and new threads, processes and programs
    Disturbance,
    /// Storms of forks, and of executable mappings
    Forks,
    /// Stack walks by depth
    Walks,
    /// The search for holders
    Holders,
    /// Launching `import torch` (needs `--torch DIR`)
    Imports,
    /// Reading a recording of many events, and with `--torch DIR` those of launches of `import torch`
    Reading,
    /// Steps of PyTorch on devices, all in one process (needs `--torch DIR`)
    Torch,
}

use Group::{
    Allocators, Collector, Disturbance, Forks, Holders, Imports, Rate, Reading, Samples, Start,
    Torch, Walks, Workloads,
};

/// Those whose time is the kernel side's, whatever the build of the rest.
const ANY_BUILD: [Group; 3] = [Samples, Walks, Torch];

/// The tables: printed at once as text, or together as JSON.
struct Output {
    json: bool,
    tables: Vec<Value>,
}

impl Output {
    fn table(&mut self, table: &Table) {
        if self.json {
            self.tables.push(table.json());
        } else {
            print!("{}", table.text());
        }
    }
}

impl Options {
    fn groups(&self) -> Vec<Group> {
        let mut groups = self.only.clone();
        if !self.workload.is_empty() && !groups.contains(&Workloads) {
            groups.push(Workloads);
        }
        if groups.is_empty() {
            groups.extend([
                Workloads,
                Allocators,
                Collector,
                Rate,
                Start,
                Samples,
                Disturbance,
                Forks,
                Walks,
                Reading,
            ]);
            if self.torch.is_some() {
                groups.extend([Imports, Torch]);
            }
        }
        groups
    }
}

/// `cargo xtask bench`.
///
/// # Errors
/// When not root, a build fails, or a run does not end.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("bench")?;
    ensure!(
        options.rounds > 0
            && options.pairs > 0
            && options.blocks > 0
            && options.walks > 0
            && options.events > 0,
        "nothing to measure"
    );
    let groups = options.groups();
    let needs_torch = |group: &Group| [Imports, Torch].contains(group);
    ensure!(
        options.torch.is_some() || !groups.iter().any(needs_torch),
        "`--only imports` and `--only torch` need `--torch DIR`, a virtual environment with PyTorch"
    );
    let folder = target_dir().join("bench");
    fs::create_dir_all(&folder)?;
    let release = !groups.iter().all(|group| ANY_BUILD.contains(group));
    let memtrace = build_memtrace(release)?;
    let mut output = Output {
        json: options.json,
        tables: Vec::new(),
    };
    if !options.json {
        println!("{}\n", machine());
    }
    // In a virtual environment, the interpreter must be run by its path in there.
    let torch = options
        .torch
        .as_deref()
        .map(std::path::absolute)
        .transpose()?;
    let means = workloads::Means {
        memtrace: &memtrace,
        folder: &folder,
        rounds: options.rounds,
        peers: options.peers,
        pairs: options.pairs,
        python: &std::path::absolute(&options.python)?,
        torch: torch.as_deref(),
    };
    for group in &groups {
        let own = || collector::Own::new(&memtrace, &folder);
        match group {
            Workloads => workloads::run(&means, &options.workload, &mut output)?,
            Allocators => allocators::run(&means, &mut output)?,
            Collector => {
                let own = own()?;
                own.ledger(options.blocks, &mut output)?;
                own.growth(&mut output)?;
            }
            Rate => {
                let amount = (options.rounds, options.events);
                rate::run(&memtrace, &folder, amount, &mut output)?;
            }
            Start => start::run(&memtrace, &folder, options.rounds, &mut output)?,
            Samples => own()?.samples(&mut output)?,
            Disturbance => {
                disturbance::run(&memtrace, &folder, options.rounds, &mut output)?;
            }
            Forks => forks::run(&memtrace, &folder, options.rounds, &mut output)?,
            Walks => {
                walks::run(&memtrace, &folder, options.walks, &mut output)?;
                walks::run_python(&memtrace, &folder, options.walks, &mut output)?;
            }
            Holders => holders::run(&memtrace, &folder, torch.as_deref(), &mut output)?,
            Imports => {
                let imports = imports::Imports::new(&means).context("no virtual environment")?;
                output.table(&imports.table(options.rounds)?);
            }
            Reading => reading::run(&means, options.events, &mut output)?,
            Torch => {
                let environment = torch.as_deref().context("no virtual environment")?;
                let only = options.torch_on.as_deref();
                torch::run(
                    &memtrace,
                    &folder,
                    environment,
                    only,
                    options.rounds,
                    &mut output,
                )?;
            }
        }
    }
    if options.json {
        let all = json!({"machine": machine(), "rounds": options.rounds, "tables": output.tables});
        println!("{all:#}");
    }
    Ok(())
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

/// The one line that is a number: tools that start a target print lines of their own.
fn parse_figure(lines: &[String]) -> Result<f64> {
    let mut figures = lines.iter().filter_map(|line| line.parse::<f64>().ok());
    let figure = figures
        .next()
        .with_context(|| format!("the target printed no figure, but {lines:?}"))?;
    ensure!(
        figures.next().is_none(),
        "the target printed two figures: {lines:?}"
    );
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn groups(arguments: &[&str]) -> Vec<Group> {
        let words = ["bench"].iter().chain(arguments);
        Cli::try_parse_from(words).unwrap().options.groups()
    }

    #[test]
    fn chosen_groups_and_workloads_replace_the_default() {
        let default = [
            Workloads,
            Allocators,
            Collector,
            Rate,
            Start,
            Samples,
            Disturbance,
            Forks,
            Walks,
            Reading,
        ];
        assert_eq!(groups(&[]), default);
        assert_eq!(
            groups(&["--torch", "x"]),
            [&default[..], &[Imports, Torch]].concat()
        );
        assert_eq!(groups(&["--only", "walks,holders"]), [Walks, Holders]);
        assert_eq!(groups(&["--workload", "pairs,redis"]), [Workloads]);
        assert_eq!(
            groups(&["--only", "walks", "--workload", "redis"]),
            [Walks, Workloads]
        );
    }

    #[test]
    fn names_of_workloads_are_separated_by_commas() {
        let cli = Cli::try_parse_from(["bench", "--workload", "pairs,redis", "--json"]).unwrap();
        assert_eq!(cli.options.workload, ["pairs", "redis"]);
        assert!(cli.options.json);
        assert!(Cli::try_parse_from(["bench", "--only", "everything"]).is_err());
        assert!(Cli::try_parse_from(["bench", "--torch-on", "cpu"]).is_err());
    }

    #[test]
    fn the_figure_is_found_among_lines_of_tools() {
        let figure = |lines: &[&str]| {
            parse_figure(&lines.iter().map(|&line| line.into()).collect::<Vec<_>>())
        };
        assert_eq!(
            figure(&["682.799", "Heaptrack finished!", ""]).unwrap(),
            682.799
        );
        assert!(figure(&["Heaptrack finished!"]).is_err());
        assert!(figure(&["1.0", "2.0"]).is_err());
    }
}
