//! `memtrace export`.

use std::{io, path::PathBuf};

use clap::{Args, ValueEnum};

use super::report::{SplitBy, write_file};
use crate::{
    recording::{At, Recording, Snapshot},
    render,
    view::{Filter, Metric},
};

/// Write a recording for other tools.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace export --format collapsed --metric alloc-bytes server.mtr -o server.collapsed
  memtrace export --format json --at 90s server.mtr")]
pub(crate) struct ExportArgs {
    /// The recording.
    file: PathBuf,
    /// Output format: collapsed stacks of one metric, or everything at one moment as JSON.
    #[arg(long, value_enum)]
    format: Format,
    /// The metric of collapsed stacks.
    #[arg(long, default_value_t)]
    metric: Metric,
    /// The file to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// In collapsed stacks, show an allocator's own frames; JSON always has them.
    #[arg(long)]
    show_wrappers: bool,
    /// In collapsed stacks, show the Python interpreter's own frames; JSON always has them.
    #[arg(long)]
    show_interpreter: bool,
    /// In collapsed stacks, separate threads by name; JSON always does.
    #[arg(long, value_enum)]
    by: Option<SplitBy>,
    /// The moment to export: end, peak, or a time since the start such as `90s`.
    #[arg(long, value_name = "MOMENT", value_parser = super::report::parse_at)]
    at: Option<At>,
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
    let snapshot = recording.snapshot(args.at.unwrap_or_default())?;
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
                show_wrappers: args.show_wrappers,
                show_interpreter: args.show_interpreter,
                by_thread: args.by == Some(SplitBy::Thread),
                ..Filter::default()
            };
            render::collapsed(out, snapshot, &filter, args.metric)?;
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
