//! `cargo xtask soak`: a recording of many short processes for a long time. The collector's memory
//! and the file must stay proportional to the processes alive, and the report must stay quick, also
//! for a recording with millions of sites, which is made up for that.

mod holders;

use crate::command::{self, build_memtrace, compile_c, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

#[derive(Args)]
pub(crate) struct Options {
    /// Minutes to record for
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Processes started each second
    #[arg(long, default_value_t = 10)]
    rate: u64,
    /// Record nothing: only read a generated recording of forked workers with this many sites
    #[arg(long, conflicts_with_all = ["minutes", "rate"])]
    sites: Option<u32>,
    /// Record nothing: search each of several changing programs for holders this many times, and judge answers and stops
    #[arg(long, value_name = "SEARCHES", conflicts_with_all = ["minutes", "rate", "sites"])]
    holders: Option<u32>,
    /// The program for `--holders` by its name, such as `Node`: all otherwise
    #[arg(long, value_name = "NAME", requires = "holders")]
    only: Option<String>,
    /// The interpreters for `--holders`
    #[arg(
        long = "python",
        value_name = "PATH",
        default_value = "/usr/bin/python3"
    )]
    pythons: Vec<PathBuf>,
    /// An interpreter with PyTorch, for `--holders`
    #[arg(long, value_name = "PATH", requires = "holders")]
    torch: Option<PathBuf>,
    /// Use the debug build, which is slower
    #[arg(long)]
    debug: bool,
}

/// Bounds, and the part of the time from which on they must hold.
const SETTLED: f64 = 0.25;
const MEMORY_VARIES_BY: f64 = 0.05;
const FILE_PER_HOUR: f64 = 10e6;
const REPORT_WITHIN: Duration = Duration::from_secs(2);
const LARGE_REPORT_WITHIN: Duration = Duration::from_secs(5);
const LARGE_REPORT_MEMORY: f64 = 500e6;

/// Rows of the table that is printed.
const ROWS: u64 = 20;

/// How often the collector is sampled.
const SAMPLE: Duration = Duration::from_secs(5);

/// One sample of the collector.
#[derive(Clone, Copy)]
struct Sample {
    seconds: f64,
    /// Resident, and the anonymous part of it, bytes.
    resident: f64,
    anonymous: f64,
    file: f64,
}

/// `cargo xtask soak`.
///
/// # Errors
/// When not root, something is missing, the load does not keep its rate, or a bound does not hold.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("recording")?;
    ensure!(
        options.minutes > 0 && options.rate > 0,
        "nothing to record: `--minutes` and `--rate` must be greater than 0"
    );
    if let Some(searches) = options.holders {
        let selection = holders::Selection {
            only: options.only.as_deref(),
            pythons: &options.pythons,
            torch: options.torch.as_deref(),
        };
        return holders::run(searches, &selection, options.debug);
    }
    if let Some(sites) = options.sites {
        return large(sites, options.debug);
    }
    // The interpreter itself: a wrapper such as pyenv's starts a dozen processes of its own.
    let executable = ["-c", "import sys; print(sys.executable)"];
    let python = command::output(Command::new("python3").args(executable))
        .context("no python3: apt-get install python3")?;
    let memtrace = build_memtrace(!options.debug)?;
    let folder = target_dir().join("soak");
    fs::create_dir_all(&folder)?;
    let load = folder.join("load");
    compile_c(&root().join("xtask/soak/load.c"), &load)?;
    let recording = folder.join("soak.mtr");
    let output = folder.join("load.txt");
    let seconds = options.minutes * 60;

    let started = Instant::now();
    let mut collector = Command::new(&memtrace)
        .args(["record", "--force", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&load)
        .args([seconds.to_string(), options.rate.to_string()])
        .arg(python)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output)?)
        .spawn()
        .with_context(|| format!("cannot start `{}`", memtrace.display()))?;
    let samples = watch(&mut collector, &recording, started, seconds)?;
    let status = collector.wait()?;
    ensure!(status.success(), "memtrace record failed: {status}");

    let said = fs::read_to_string(&output)?;
    let mut counts = said.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(count)), Some(Ok(failed))) = (counts.next(), counts.next()) else {
        bail!("the load printed `{}`, expected two numbers", said.trim());
    };
    let took = started.elapsed().as_secs_f64();
    println!("{count} processes in {took:.0} s, {failed} of them failed");
    ensure!(failed == 0, "{failed} processes failed while traced");
    let file = fs::metadata(&recording)?.len() as f64;
    let (settled, per_hour) = settled(&samples, file, took)?;
    let report = report(&memtrace, &recording)?;
    judge(&[
        (
            settled <= MEMORY_VARIES_BY,
            format!(
                "memory from minute {:.1} on: within {:.1} % of its mean (at most {:.0} %)",
                took * SETTLED / 60.0,
                settled * 100.0,
                MEMORY_VARIES_BY * 100.0
            ),
        ),
        (
            per_hour <= FILE_PER_HOUR,
            format!(
                "file: {:.1} MB, growing by {:.1} MB an hour (at most {:.0} MB)",
                file / 1e6,
                per_hour / 1e6,
                FILE_PER_HOUR / 1e6
            ),
        ),
        (
            report.took <= REPORT_WITHIN,
            format!(
                "report -T 10: {:.2} s (at most {} s)",
                report.took.as_secs_f64(),
                REPORT_WITHIN.as_secs()
            ),
        ),
        (
            took <= seconds as f64 * 1.1,
            format!("load: {:.1} processes a second", count as f64 / took),
        ),
    ])
}

/// Samples the collector until it ends, and prints a row now and then.
fn watch(
    collector: &mut Child,
    recording: &Path,
    started: Instant,
    seconds: u64,
) -> Result<Vec<Sample>> {
    println!(
        "{:>7} {:>13} {:>14} {:>9}",
        "minute", "resident MB", "anonymous MB", "file MB"
    );
    let mut samples: Vec<Sample> = Vec::new();
    let mut printed = 0;
    while collector.try_wait()?.is_none() {
        sleep(SAMPLE);
        let Some(sample) = sample(collector.id(), recording, started) else {
            continue;
        };
        if sample.seconds * ROWS as f64 >= (printed * seconds) as f64 {
            printed += 1;
            println!(
                "{:>7.1} {:>13.1} {:>14.1} {:>9.2}",
                sample.seconds / 60.0,
                sample.resident / 1e6,
                sample.anonymous / 1e6,
                sample.file / 1e6
            );
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// `None` when the collector is gone.
fn sample(pid: u32, recording: &Path, started: Instant) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024.0)
    };
    Some(Sample {
        seconds: started.elapsed().as_secs_f64(),
        resident: bytes("VmRSS:")?,
        anonymous: bytes("RssAnon:")?,
        file: fs::metadata(recording).ok()?.len() as f64,
    })
}

/// Largest deviation of the collector's memory from its mean once it had settled, as a share of
/// that mean, and the growth of the file since then in bytes an hour. `file` is its size after
/// `seconds`.
fn settled(samples: &[Sample], file: f64, seconds: f64) -> Result<(f64, f64)> {
    let mut late = samples
        .iter()
        .filter(|sample| sample.seconds >= seconds * SETTLED);
    let first = *late.clone().next().context("no sample was taken")?;
    let count = late.clone().count() as f64;
    let mean = late.clone().map(|sample| sample.resident).sum::<f64>() / count;
    let farthest = late.try_fold(0f64, |far, sample| {
        Some(far.max((sample.resident - mean).abs()))
    });
    let per_hour = (file - first.file) / (seconds - first.seconds).max(1.0) * 3600.0;
    Ok((farthest.unwrap_or_default() / mean, per_hour))
}

/// Makes a recording of forked workers and reads it.
fn large(sites: u32, debug: bool) -> Result<()> {
    let memtrace = build_memtrace(!debug)?;
    let folder = target_dir().join("soak");
    fs::create_dir_all(&folder)?;
    let recording = folder.join("workers.mtr");
    let mut make = command::cargo();
    make.args([
        "run",
        "--quiet",
        "--package",
        command::PACKAGE,
        "--example",
        "workers",
    ]);
    if !debug {
        make.arg("--release");
    }
    command::run(make.arg("--").arg(&recording).arg(sites.to_string()))?;
    let report = report(&memtrace, &recording)?;
    judge(&[
        (
            report.took <= LARGE_REPORT_WITHIN,
            format!(
                "report -T 10 of {sites} sites: {:.2} s (at most {} s)",
                report.took.as_secs_f64(),
                LARGE_REPORT_WITHIN.as_secs()
            ),
        ),
        (
            report.memory <= LARGE_REPORT_MEMORY,
            format!(
                "its memory: {:.0} MB (at most {:.0} MB)",
                report.memory / 1e6,
                LARGE_REPORT_MEMORY / 1e6
            ),
        ),
    ])
}

/// Cost of a report.
struct Cost {
    took: Duration,
    /// Resident at most, bytes.
    memory: f64,
}

fn report(memtrace: &Path, recording: &Path) -> Result<Cost> {
    let started = Instant::now();
    let child = Command::new(memtrace)
        .arg("report")
        .arg(recording)
        .args(["-T", "10"])
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start `{}`", memtrace.display()))?;
    let ended = command::wait(&child)?;
    let took = started.elapsed();
    ensure!(ended.succeeded, "memtrace report failed");
    Ok(Cost {
        took,
        memory: ended.memory,
    })
}

/// Prints which bounds held and which did not.
fn judge(bounds: &[(bool, String)]) -> Result<()> {
    for (holds, what) in bounds {
        println!("{} {what}", if *holds { "ok  " } else { "FAIL" });
    }
    let failed = bounds.iter().filter(|(holds, _)| !holds).count();
    ensure!(
        failed == 0,
        "{failed} of {} bounds do not hold",
        bounds.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_file_are_judged_from_a_quarter_of_the_time_on() {
        let sample = |seconds, resident, file| Sample {
            seconds,
            resident,
            anonymous: 0.0,
            file,
        };
        let samples = [
            sample(5.0, 50.0, 0.0),
            sample(100.0, 98.0, 1e6),
            sample(200.0, 100.0, 2e6),
            sample(300.0, 102.0, 2.5e6),
        ];
        let (memory, file) = settled(&samples, 3e6, 400.0).unwrap_or_default();
        assert_eq!((memory, file), (0.02, 2e6 / 300.0 * 3600.0));
        assert!(settled(&samples[..1], 3e6, 400.0).is_err());
    }
}
