//! `memtrace export`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};

use super::report::{SelectArgs, SplitBy, check_pid, warn_without_layer, write_file};
use crate::{
    recording::{Recording, Snapshot},
    render,
    view::{Filter, Metric},
};

/// Write a recording for other tools.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace export --format collapsed --layer heap server.mtr -o server.collapsed
  memtrace export --format json --at 90s server.mtr")]
pub(crate) struct ExportArgs {
    /// The recording.
    file: PathBuf,
    /// Output format: collapsed stacks of one metric (`process;layer;root;…;leaf value`: layers overlap, so choose one
    /// with `--layer` before you add values up), or everything at one moment as JSON.
    #[arg(long, value_enum)]
    format: Format,
    /// The metric of collapsed stacks: live-bytes (the default), live-count, alloc-bytes, alloc-count or peak.
    #[arg(long)]
    metric: Option<Metric>,
    /// The file to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// In collapsed stacks, separate threads by name; JSON always does.
    #[arg(long, value_enum)]
    by: Option<SplitBy>,
    #[command(flatten)]
    select: SelectArgs,
    /// Overwrite an existing file.
    #[arg(short, long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Collapsed,
    Json,
}

/// Writes the export.
///
/// # Errors
///
/// When the recording cannot be read or the output cannot be written.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let recording = Recording::open(&args.file)?;
    let snapshot = recording.snapshot(args.select.at())?;
    let filter = args.select.filter();
    let chooses = filter.layer.is_some() || filter.pid.is_some() || args.metric.is_some();
    if let (Format::Json, true) = (args.format, chooses) {
        anyhow::bail!(
            "`--format json` exports everything; `--layer`, `--pid` and `--metric` are for `--format collapsed`"
        );
    }
    check_pid(&snapshot, filter.pid)?;
    warn_without_layer(&snapshot, filter.layer);
    match &args.output {
        Some(path) => {
            let mut content = Vec::new();
            write(&mut content, args, &recording, &snapshot)?;
            write_file(path, args.force, &content)
        }
        None => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            write(&mut out, args, &recording, &snapshot)
        }
    }
}

fn write(
    out: &mut impl io::Write,
    args: &ExportArgs,
    recording: &Recording,
    snapshot: &Snapshot,
) -> anyhow::Result<()> {
    match args.format {
        Format::Collapsed => {
            let filter = Filter {
                by_thread: args.by == Some(SplitBy::Thread),
                ..args.select.filter()
            };
            let metric = args.metric.unwrap_or_default();
            if render::collapsed(out, snapshot, &filter, metric)? == 0 {
                // A closed standard error must not be an error.
                let _ = writeln!(
                    io::stderr(),
                    "memtrace: nothing to export: no selected site has any {metric}"
                );
            }
        }
        Format::Json => {
            let mut series = render::Series {
                system: recording.system()?,
                facts: recording.facts()?,
                ..render::Series::default()
            };
            for process in &snapshot.processes {
                let id = process.row.id;
                series.memory.push((id, recording.memory(id)?));
                series.cgroups.push((id, recording.cgroup(id)?));
            }
            render::export(out, snapshot, &series)?;
        }
    }
    Ok(())
}
