//! `memtrace export`.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};

use super::{
    hints,
    output::write_file,
    reading::{READING, SelectArgs, SplitBy, check_pid, warn_without_layer},
};
use crate::{
    event::Layer,
    progress::{Progress, say},
    recording::{Recording, Snapshot},
    render,
    view::{Filter, Metric},
};

/// Write a recording for other tools.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace export --format collapsed --layer heap server.mtr -o server.collapsed
  memtrace export --format pprof --layer heap server.mtr -o server.pb.gz
  memtrace export --format perfetto server.mtr -o server.pftrace
  memtrace export --format json --at 90s server.mtr")]
pub(crate) struct ExportArgs {
    /// The recording.
    file: PathBuf,
    /// Output format. Layers overlap: choose one with `--layer` before you add values up.
    #[arg(long, value_enum)]
    format: Format,
    /// The metric of collapsed stacks (live-bytes by default) and of speedscope (live-bytes and alloc-bytes by
    /// default): live-bytes, live-count, alloc-bytes, alloc-count or peak.
    #[arg(long)]
    metric: Option<Metric>,
    /// The file to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// In collapsed stacks, speedscope and Firefox, separate threads by name; pprof, OTLP, CSV and JSON always have them.
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
    /// Collapsed stacks of one metric (`process;layer;root;…;leaf value`).
    Collapsed,
    /// A profile for pprof, with every layer, as a label.
    Pprof,
    /// A file for speedscope, with a profile for each layer.
    Speedscope,
    /// A profile for Firefox Profiler, with a track for each layer of each process.
    Firefox,
    /// A trace for Perfetto, with a heap profile for each layer of each process, and memory over time.
    Perfetto,
    /// OpenTelemetry's profiles, with every layer, as an attribute.
    Otlp,
    /// A table with a row for each site.
    Csv,
    /// Everything at one moment.
    Json,
}

impl Format {
    /// As on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// A name for a file of a binary format.
    fn example(self) -> &'static str {
        match self {
            Format::Perfetto => "profile.pftrace",
            Format::Otlp => "profile.otlp",
            _ => "profile.pb.gz",
        }
    }
}

/// Writes the export.
///
/// # Errors
///
/// When the recording cannot be read or the output cannot be written.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    check(args)?;
    let progress = Progress::begin(READING);
    let recording = Recording::open(&args.file)?;
    let snapshot = recording.snapshot(args.select.at(recording.meta()))?;
    let filter = args.select.filter();
    check_pid(&snapshot, filter.pid)?;
    warn_without_layer(&snapshot, filter.layer);
    match &args.output {
        Some(path) => {
            progress.doing("writing the export");
            let mut content = Vec::new();
            write(&mut content, args, &recording, &snapshot)?;
            write_file(path, args.force, &content)?;
            drop(progress);
            if let Some(next) = next(args.format, path) {
                hints::next(&next);
            }
            Ok(())
        }
        None => {
            drop(progress);
            let mut out = io::BufWriter::new(io::stdout().lock());
            write(&mut out, args, &recording, &snapshot)
        }
    }
}

/// How to open what was written.
fn next(format: Format, path: &Path) -> Option<String> {
    let file = hints::file(path);
    match format {
        Format::Collapsed => Some(format!("inferno-flamegraph {file} > flamegraph.svg")),
        Format::Pprof => Some(format!("go tool pprof -http=: {file}")),
        Format::Speedscope => Some(format!("open {file} on https://www.speedscope.app")),
        Format::Firefox => Some(format!("load {file} on https://profiler.firefox.com")),
        Format::Perfetto => Some(format!("open {file} on https://ui.perfetto.dev")),
        Format::Otlp | Format::Csv | Format::Json => None,
    }
}

/// Refuses options that the format does not have.
fn check(args: &ExportArgs) -> anyhow::Result<()> {
    let chooses = args.select.filter();
    let chooses = chooses.layer.is_some() || chooses.pid.is_some();
    match args.format {
        Format::Json if chooses || args.metric.is_some() => anyhow::bail!(
            "`--format json` exports everything; leave out `--layer`, `--pid` and `--metric`, or choose another format"
        ),
        Format::Firefox if args.metric.is_some() => anyhow::bail!(
            "`--format firefox` has live and allocated bytes; leave out `--metric`, and choose one in the viewer"
        ),
        Format::Pprof | Format::Perfetto | Format::Otlp if args.metric.is_some() => anyhow::bail!(
            "`--format {}` has every metric but the peak; leave out `--metric`, and choose one in the viewer",
            args.format.name()
        ),
        Format::Perfetto if args.by.is_some() => anyhow::bail!(
            "`--format perfetto` does not separate threads; leave out `--by`, or choose another format"
        ),
        Format::Csv if args.metric.is_some() => {
            anyhow::bail!("`--format csv` has a column for each metric; leave out `--metric`")
        }
        Format::Pprof | Format::Perfetto | Format::Otlp
            if args.output.is_none() && io::stdout().is_terminal() =>
        {
            anyhow::bail!(
                "`--format {}` is binary, and standard output is a terminal; name a file, as in `-o {}`",
                args.format.name(),
                args.format.example()
            )
        }
        _ => Ok(()),
    }
}

fn write(
    out: &mut impl io::Write,
    args: &ExportArgs,
    recording: &Recording,
    snapshot: &Snapshot,
) -> anyhow::Result<()> {
    let filter = Filter {
        by_thread: args.by == Some(SplitBy::Thread),
        ..args.select.filter()
    };
    match args.format {
        Format::Collapsed => {
            let metric = args.metric.unwrap_or_default();
            if render::collapsed(out, snapshot, &filter, metric)? == 0 {
                say(&format!(
                    "nothing to export: no selected site has any {metric}"
                ));
            }
        }
        Format::Pprof => {
            let sites = render::pprof(out, snapshot, &filter)?;
            say_if_nothing(sites);
            say_if_layers_overlap(snapshot, &filter, "layer");
        }
        Format::Speedscope => {
            let metrics = args.metric.map(|metric| vec![metric]);
            let metrics = metrics.unwrap_or(vec![Metric::LiveBytes, Metric::AllocBytes]);
            say_if_nothing(render::speedscope(out, snapshot, &filter, &metrics)?);
        }
        Format::Perfetto => {
            let course = render::Course::read(recording, snapshot)?;
            say_if_nothing(render::perfetto(out, snapshot, &filter, &course)?);
        }
        Format::Otlp => {
            say_if_nothing(render::otlp(out, snapshot, &filter)?);
            say_if_layers_overlap(snapshot, &filter, "memtrace.layer");
        }
        Format::Firefox => say_if_nothing(render::firefox(out, snapshot, &filter)?),
        Format::Csv => say_if_nothing(render::csv(out, snapshot, &filter)?),
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

fn say_if_nothing(sites: usize) {
    if sites == 0 {
        say("nothing to export: no memory was allocated at any selected site");
    }
}

/// A viewer adds up whatever a profile contains.
fn say_if_layers_overlap(snapshot: &Snapshot, filter: &Filter, label: &str) {
    let sites = snapshot.sites.iter().map(|site| site.key.layer);
    let layers: BTreeSet<&str> = sites.map(Layer::name).collect();
    if filter.layer.is_none() && layers.len() > 1 {
        let layers = Vec::from_iter(layers).join(", ");
        say(&format!(
            "the layers {layers} overlap: choose one, with `--layer` or by the label `{label}` in the viewer"
        ));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        export: ExportArgs,
    }

    #[test]
    fn options_that_a_format_does_not_have_are_refused() {
        let checked = |line: &str| {
            let line = format!("export a.mtr -o out --format {line}");
            check(&Cli::parse_from(line.split(' ')).export)
        };
        for line in [
            "json --layer heap",
            "json --pid 7",
            "json --metric peak",
            "pprof --metric peak",
            "perfetto --metric peak",
            "otlp --metric peak",
            "firefox --metric peak",
            "csv --metric peak",
        ] {
            let error = checked(line).unwrap_err().to_string();
            let (_, option) = line.split_once(' ').unwrap();
            let option = option.split(' ').next().unwrap();
            assert!(error.contains(option), "{line}: {error}");
        }
        for line in [
            "json",
            "collapsed --metric peak --layer vm",
            "speedscope --metric peak --by thread",
            "pprof --layer heap --pid 7",
            "perfetto --layer heap --pid 7",
            "otlp --layer heap --pid 7",
            "firefox --layer heap",
            "csv --pid 7",
        ] {
            checked(line).unwrap();
        }
    }
}
