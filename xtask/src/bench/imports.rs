//! Launching `import torch`: every second allocation has a stack of its own.

use super::{
    child,
    figures::{median, times},
    paired::{EMPTY, NO_HEAP, NO_PYTHON, Way, turns},
    parse_figure,
    table::{Table, column},
    workloads::Means,
};
use crate::command;
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Prints its own CPU time, ns.
const SCRIPT: &str = "import time, torch; print(time.process_time_ns())";

const WAYS: [Way; 5] = [Way::Untraced, EMPTY, Way::Record(&[]), NO_PYTHON, NO_HEAP];

/// How often the collector's memory is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// One run.
#[derive(Clone, Copy)]
struct Measured {
    /// CPU time of the program.
    cpu_s: f64,
    /// Of memtrace.
    collector: Option<Collector>,
}

#[derive(Clone, Copy)]
struct Collector {
    /// Anonymous memory at most.
    memory: f64,
    /// Size of the recording, bytes.
    file: f64,
    lost: f64,
}

/// A recorded launch.
pub(super) struct Launched {
    /// By the program.
    printed: String,
    /// By memtrace, on standard error.
    said: String,
    /// Memtrace's anonymous memory at most, bytes.
    memory: f64,
}

pub(super) struct Imports<'a> {
    memtrace: &'a Path,
    folder: &'a Path,
    /// Has PyTorch.
    python: PathBuf,
}

impl<'a> Imports<'a> {
    /// `None` without a PyTorch.
    pub(super) fn new(means: &Means<'a>) -> Option<Imports<'a>> {
        Some(Imports {
            memtrace: means.memtrace,
            folder: means.folder,
            python: means.torch?.join("bin/python"),
        })
    }

    /// A row for each way of tracing.
    pub(super) fn table(&self, rounds: usize) -> Result<Table> {
        let mut all = WAYS.map(|_| Vec::new());
        for round in 0..rounds {
            for index in turns(round, WAYS.len()) {
                all[index].push(self.measure(WAYS[index])?);
            }
            eprintln!("import torch: round {} of {rounds} done", round + 1);
        }
        let columns = [
            column("cpu_s", "CPU s", 2),
            column("times_untraced", "× untraced", 2),
            column("times_empty", "× empty probes", 2),
            column("collector_mib", "collector, MiB", 0),
            column("file_mb", "recording, MB", 1),
            column("lost", "events lost", 0),
        ];
        let title = format!("launching `import torch`, median of {rounds} rounds");
        let mut table = Table::new("imports", title, &columns);
        let cpu = |index: usize| -> Vec<f64> {
            all[index].iter().map(|one: &Measured| one.cpu_s).collect()
        };
        for (index, way) in WAYS.into_iter().enumerate() {
            let of = |figure: fn(&Collector) -> f64| {
                let collectors = all[index].iter().filter_map(|one| one.collector.as_ref());
                // Not a number without collector, and then the column stays empty.
                median(&mut collectors.map(figure).collect::<Vec<_>>())
            };
            let ratio =
                |base: usize| times(&cpu(index), &cpu(base), false).filter(|_| index > base);
            table.row(
                way.name(),
                &[
                    Some(median(&mut cpu(index))),
                    ratio(0),
                    ratio(1),
                    Some(of(|it| it.memory) / f64::from(1 << 20)),
                    Some(of(|it| it.file) / 1e6),
                    Some(of(|it| it.lost)),
                ],
            );
        }
        Ok(table)
    }

    fn measure(&self, way: Way) -> Result<Measured> {
        let options = match way {
            Way::Record(options) => options,
            _ => {
                let mut alone = Command::new(&self.python);
                let printed = command::output(alone.args(["-c", SCRIPT]))?;
                return measured(&printed, None);
            }
        };
        let file = self.folder.join("imports.mtr");
        let Launched {
            printed,
            said,
            memory,
        } = self.record(&file, options)?;
        let collector = match way {
            // Empty programs send nothing to a collector.
            EMPTY => None,
            _ => Some(Collector {
                memory,
                file: fs::metadata(&file)?.len() as f64,
                lost: child::events(said.lines())?.1 as f64,
            }),
        };
        measured(&printed, collector)
    }

    /// Records a launch.
    pub(super) fn record(&self, file: &Path, options: &[&str]) -> Result<Launched> {
        let mut command = Command::new(self.memtrace);
        command.args(["record", "--force", "-o"]).arg(file);
        command.args(options).arg("--").arg(&self.python);
        let mut child = command
            .args(["-c", SCRIPT])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(&command)))?;
        let mut memory = 0.0;
        // What it prints fits into the pipes.
        while child.try_wait()?.is_none() {
            memory = anonymous(child.id()).max(memory);
            thread::sleep(LOOK);
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.success(),
            "`{}` failed: {}: {said}",
            command::shown(&command),
            output.status
        );
        Ok(Launched {
            printed: String::from_utf8(output.stdout)?,
            said,
            memory,
        })
    }
}

fn measured(printed: &str, collector: Option<Collector>) -> Result<Measured> {
    let cpu_ns = parse_figure(&[printed.trim().to_owned()])?;
    Ok(Measured {
        cpu_s: cpu_ns / 1e9,
        collector,
    })
}

/// Resident anonymous memory of a process, bytes; 0 when it has ended (proc_pid_status(5)).
fn anonymous(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kib.map_or(0.0, |kib| kib * 1024.0)
}
