//! `cargo xtask test-torch`: real PyTorch does random operations on its CUDA allocator; after each,
//! its own figures must equal memtrace's. Then it runs programs with known faults, which memtrace
//! must find.

mod cases;

use crate::{
    bench::child::{Collector, Target},
    command::{self, build_memtrace, root, target_dir},
};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

#[derive(Args)]
pub(crate) struct Options {
    /// The Python interpreter that has PyTorch, or its virtual environment
    python: PathBuf,
    /// Operations with each backend
    #[arg(long, default_value_t = 1000)]
    operations: u64,
    /// Seed of the operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the backend whose name contains this, and no faulty programs
    #[arg(long)]
    backend: Option<String>,
    /// Run only the faulty programs
    #[arg(long, conflicts_with = "backend")]
    cases: bool,
    /// Run only the faulty program with this name
    #[arg(long, conflicts_with_all = ["backend", "cases"], value_parser = cases::CASES)]
    case: Option<String>,
}

#[derive(Args)]
pub(crate) struct GpuOptions {
    #[command(flatten)]
    options: Options,
}

/// A way for PyTorch to get device memory.
struct Backend {
    name: &'static str,
    /// The first version that has it, of those that memtrace knows.
    since: (u32, u32),
    /// Environment variable and its value.
    variable: &'static str,
    /// Whether PyTorch's peaks are its own. Otherwise the driver's pool keeps them, since they were
    /// last reset; a stand-in need not.
    own_peaks: bool,
}

const BACKENDS: [Backend; 4] = [
    Backend {
        name: "native",
        since: (1, 13),
        // The default, in place of the variable's value: 1.13 has no name for it.
        variable: "PYTORCH_CUDA_ALLOC_CONF=",
        own_peaks: true,
    },
    Backend {
        name: "expandable_segments",
        since: (2, 1),
        variable: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        own_peaks: true,
    },
    Backend {
        name: "cudaMallocAsync",
        since: (2, 0),
        variable: "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
        own_peaks: false,
    },
    Backend {
        name: "without caching",
        since: (1, 13),
        variable: "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
        own_peaks: true,
    },
];

/// Time limit for writing an interval that ended after an answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// Figures of device 0 from both, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
struct Figures {
    allocated: u64,
    reserved: u64,
    peak_allocated: u64,
    peak_reserved: u64,
}

/// Figures from both of the blocks of PyTorch's own cache on device 0, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Blocks {
    requested: u64,
    largest_free: u64,
    /// Number, allocated.
    streams: Vec<(u64, u64)>,
}

/// PyTorch's figures.
#[derive(Clone, Debug, Deserialize)]
struct Said {
    #[serde(flatten)]
    figures: Figures,
    keeps_peaks: bool,
    /// `None` if it does not cache itself, or does not report it.
    blocks: Option<Blocks>,
}

/// `cargo xtask test-torch`.
///
/// # Errors
/// When not root, something cannot be run, or the two disagree.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("the comparison with PyTorch")?;
    let python = interpreter(&options.python)?;
    let memtrace = build_memtrace(false)?;
    let folder = target_dir().join("torch");
    fs::create_dir_all(&folder)?;
    let versions = versions(&python)?;
    println!("{versions}");
    if options.cases || options.case.is_some() {
        return cases::run(&memtrace, &python, &folder, options.case.as_deref());
    }
    let version = version(&versions)?;
    let mut compared = 0;
    for backend in &BACKENDS {
        if let Some(only) = &options.backend
            && !backend.name.contains(only.as_str())
        {
            continue;
        }
        if version < backend.since {
            println!("{:<20} not in this version of PyTorch", backend.name);
            continue;
        }
        let steps = compare(backend, &memtrace, &python, &folder, options)
            .with_context(|| format!("backend {}", backend.name))?;
        println!("{:<20} {steps}", backend.name);
        compared += 1;
    }
    ensure!(
        compared > 0,
        "this version of PyTorch has no backend with such a name"
    );
    match options.backend {
        Some(_) => Ok(()),
        None => cases::run(&memtrace, &python, &folder, None),
    }
}

/// `cargo xtask test-gpu`.
///
/// # Errors
/// As [`run`]; also if there is no GPU.
pub(crate) fn run_on_gpu(options: &GpuOptions) -> Result<()> {
    ensure!(
        Path::new("/dev/nvidiactl").exists(),
        "no NVIDIA driver here (`/dev/nvidiactl` is missing): `cargo xtask test-torch` needs none"
    );
    let smi = command::output(Command::new("nvidia-smi").args([
        "--query-gpu=name,driver_version,memory.total",
        "--format=csv,noheader",
    ]))?;
    println!("{smi}");
    run(&options.options)
}

fn interpreter(given: &Path) -> Result<PathBuf> {
    let inside = given.join("bin/python");
    let python = if inside.exists() {
        inside
    } else {
        given.into()
    };
    ensure!(
        python.is_file(),
        "`{}` is neither a Python nor a virtual environment",
        given.display()
    );
    // Not resolved: its location leads it to its packages.
    std::path::absolute(python).context("no current directory")
}

fn versions(python: &Path) -> Result<String> {
    let script = "import torch; print('torch', torch.__version__, 'CUDA', torch.version.cuda, 'on', \
                  torch.cuda.get_device_name(0))";
    command::output(Command::new(python).args(["-c", script]))
}

/// Major and minor version of PyTorch, from the text of [`versions`].
fn version(versions: &str) -> Result<(u32, u32)> {
    let mut numbers = versions.split([' ', '.']).skip(1).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => bail!("PyTorch printed `{versions}`, expected its version"),
    }
}

/// Starts a command, after variables of its environment, with one device: a thread that ran before
/// may have chosen any.
fn start(command: &[&str]) -> Result<Target> {
    let env = command::find("env").context("no program `env`")?;
    Target::start(&env, &[&["CUDA_VISIBLE_DEVICES=0"], command].concat())
}

/// Does the operations with one backend; returns a summary of the comparison.
fn compare(
    backend: &Backend,
    memtrace: &Path,
    python: &Path,
    folder: &Path,
    options: &Options,
) -> Result<String> {
    let script = root().join("xtask/torch/operations.py");
    let (python, script) = (python.display().to_string(), script.display().to_string());
    let seed = options.seed.to_string();
    let mut target = start(&[backend.variable, &python, &script, &seed])?;
    let file = folder.join(format!("{}.mtr", backend.name.replace(' ', "-")));
    let interval = ["--interval", "50ms"];
    let collector = Collector::attach(memtrace, target.id(), &file, &interval)?;
    let mut at_most = Figures::default();
    for operation in 1..=options.operations {
        let said: Said = serde_json::from_str(&target.ask("1")?)?;
        let answered = now_ns();
        agree(backend, memtrace, &file, target.id(), &said, answered)
            .with_context(|| format!("after operation {operation}"))?;
        at_most.allocated = at_most.allocated.max(said.figures.allocated);
        at_most.reserved = at_most.reserved.max(said.figures.reserved);
    }
    let failures = report(memtrace, &file, target.id())?.failures;
    target.finish()?;
    collector.finish()?;
    // The failing operation is one of some fifty.
    ensure!(
        failures > 0 || options.operations < 500,
        "no allocation was recorded as failed"
    );
    Ok(format!(
        "{} operations, all agree; up to {} bytes allocated, {} reserved; {failures} failed \
         allocations recorded",
        options.operations, at_most.allocated, at_most.reserved
    ))
}

/// Compares with the first interval that ended after the answer, or, if it was just being written
/// then, the one after it.
fn agree(
    backend: &Backend,
    memtrace: &Path,
    file: &Path,
    pid: u32,
    said: &Said,
    answered: u64,
) -> Result<()> {
    let mut disagreed = None;
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        let seen = report(memtrace, file, pid)?;
        if seen.time_ns < answered || disagreed.is_some_and(|before| seen.time_ns <= before) {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let mut expected = said.figures;
        if !backend.own_peaks && !said.keeps_peaks {
            expected.peak_allocated = seen.figures.peak_allocated.max(expected.peak_allocated);
            expected.peak_reserved = seen.figures.peak_reserved.max(expected.peak_reserved);
        }
        // The sum of the blocks; the driver's pool rounds up, and counts memory that is not
        // PyTorch's.
        let live_agrees = seen.live == expected.allocated || !backend.own_peaks;
        let blocks_agree = said.blocks.as_ref().is_none_or(|said| *said == seen.blocks);
        if seen.figures == expected && live_agrees && blocks_agree {
            return Ok(());
        }
        if disagreed.is_some() {
            bail!(
                "PyTorch reports {said:?}, memtrace {:?}, {:?}, live {}",
                seen.figures,
                seen.blocks,
                seen.live
            );
        }
        disagreed = Some(seen.time_ns);
    }
    bail!("no interval was recorded within {DEADLINE:?}");
}

/// memtrace's figures.
struct Seen {
    /// End of the last interval, CLOCK_MONOTONIC ns.
    time_ns: u64,
    figures: Figures,
    blocks: Blocks,
    /// Live bytes of the layer.
    live: u64,
    failures: u64,
}

fn report(memtrace: &Path, file: &Path, pid: u32) -> Result<Seen> {
    let end = Instant::now() + DEADLINE;
    let json = loop {
        let mut command = Command::new(memtrace);
        let options = ["--at", "end", "--format", "json", "--top", "0"];
        match command::output(command.arg("report").arg(file).args(options)) {
            Ok(json) => break json,
            // An interval is being written this very moment.
            Err(error) if error.to_string().contains("busy") && Instant::now() < end => {}
            Err(error) => return Err(error),
        }
    };
    let report: Value = serde_json::from_str(&json).context("the report is not JSON")?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let list = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let devices = list("devices");
    let device = devices
        .iter()
        .find(|device| device["index"] == 0 && device["tgid"] == pid);
    let figure = |name: &str| device.map_or(0, |device| number(&device[name]));
    let totals = list("totals");
    let layer = totals.iter().find(|total| total["layer"] == "torch-cuda");
    Ok(Seen {
        time_ns: number(&report["meta"]["started_ns"]) + number(&report["time"]),
        figures: Figures {
            allocated: figure("allocated"),
            reserved: figure("reserved"),
            peak_allocated: figure("peak_allocated"),
            peak_reserved: figure("peak_reserved"),
        },
        blocks: Blocks {
            requested: figure("requested"),
            largest_free: figure("largest_free"),
            streams: device.map_or_else(Vec::new, |device| {
                let streams = device["streams"].as_array().into_iter().flatten();
                streams
                    .map(|stream| (number(&stream["stream"]), number(&stream["allocated"])))
                    .collect()
            }),
        },
        live: layer.map_or(0, |total| number(&total["live_bytes"])),
        failures: list("device_failures")
            .iter()
            .map(|failure| number(&failure["count"]))
            .sum(),
    })
}

/// CLOCK_MONOTONIC, as the times of a recording.
fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
