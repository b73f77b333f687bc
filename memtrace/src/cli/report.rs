//! `memtrace report`, and what the reading commands have in common.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};

use super::hints;
use crate::{
    analysis::{
        suppressions::Suppressions,
        system::SystemSeries,
        verdict::{self, Diagnosis},
    },
    event::Layer,
    progress::Progress,
    recording::{At, Recording},
    render::{self, TextOptions},
    units,
    view::{By, Filter, Metric},
};

/// Shown while a command reads a recording for long.
pub(super) const READING: &str = "reading the recording";
/// Shown while the growth in it is classified.
pub(super) const JUDGING: &str = "classifying the growth";

/// Print live memory and where it was allocated.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace report server.mtr
  memtrace report --by program-line --layer heap server.mtr
  memtrace report --older 60s --format json server.mtr")]
pub(crate) struct ReportArgs {
    /// The recording.
    file: PathBuf,
    #[command(flatten)]
    select: SelectArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Group sites by python-line (the innermost line of Python), program-line (the innermost line of your program,
    /// in any language), native-site (the innermost native function that is not an allocator's), module (its file)
    /// or thread; `site` lists each with its stack.
    #[arg(long, value_name = "WHAT", default_value_t)]
    by: By,
    /// Number of sites or groups to list [default: 10 in text, all in JSON].
    #[arg(short = 'T', long, value_name = "N")]
    top: Option<usize>,
    /// Only blocks at least this old at the end, such as `60s`.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    older: Option<Duration>,
    /// Only sites with at least this many live bytes, such as `4k`.
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = units::parse_size)]
    min_size: Option<u64>,
    /// Only sites with at most this many live bytes.
    #[arg(short = 'Z', long, value_name = "SIZE", value_parser = units::parse_size)]
    max_size: Option<u64>,
    /// Order by live-bytes, live-count, alloc-bytes, alloc-count or peak (sites only).
    #[arg(long, value_name = "METRIC", default_value_t)]
    sort: Metric,
    /// Show every frame of libraries, and C++ names with parameters and template arguments; JSON always
    /// has them.
    #[arg(long)]
    full: bool,
    /// Only show stack health: how many stacks are complete, why others are not, and the remedies.
    #[arg(long, conflicts_with_all = ["by", "top", "older", "min_size", "max_size", "sort"])]
    stack_health: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Which moment, layer and process to look at.
#[derive(Debug, Args)]
pub(super) struct SelectArgs {
    /// The moment to show: end, peak, or a time since the start such as `90s` [default: the end for
    /// processes that still ran when recording stopped, the peak for those that exited].
    #[arg(long, value_name = "MOMENT", value_parser = parse_at)]
    at: Option<At>,
    /// Only this layer: vm, heap, python, cuda-driver, cuda-runtime, hip, pinned, torch-cuda or
    /// torch-cpu.
    #[arg(long, value_parser = parse_layer)]
    layer: Option<Layer>,
    /// Only this process.
    #[arg(short, long)]
    pid: Option<u32>,
    /// Show an allocator's own frames (operator new, malloc), which JSON always has.
    #[arg(long)]
    show_wrappers: bool,
    /// Show the Python interpreter's own frames, which JSON always has.
    #[arg(long)]
    show_interpreter: bool,
}

impl SelectArgs {
    pub(super) fn at(&self) -> At {
        self.at.unwrap_or_default()
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            layer: self.layer,
            pid: self.pid,
            show_wrappers: self.show_wrappers,
            show_interpreter: self.show_interpreter,
            ..Filter::default()
        }
    }
}

/// Ways to split graphs besides their stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SplitBy {
    Thread,
}

/// Prints the report.
///
/// # Errors
///
/// When the recording cannot be read, has no such moment or process, or the output fails.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let progress = Progress::begin(READING);
    let recording = Recording::open(&args.file)?;
    let filter = Filter {
        older: args.older,
        min_bytes: args.min_size,
        max_bytes: args.max_size,
        full: args.full,
        colour: hints::colour(),
        ..args.select.filter()
    };
    let snapshot = recording.snapshot(filter.moment(args.select.at()))?;
    check_pid(&snapshot, filter.pid)?;
    warn_without_layer(&snapshot, filter.layer);
    let verdicts = match args.format {
        _ if args.stack_health => Diagnosis::default(),
        Format::Json if args.by != By::Site => Diagnosis::default(),
        _ => {
            progress.doing(JUDGING);
            let machine = SystemSeries::read(&recording)?;
            verdict::diagnose(&recording, &machine, &Suppressions::default())?
        }
    };
    drop(progress);
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.format {
        Format::Json if args.stack_health => {
            render::stack_health_json(&mut out, &snapshot, &filter)?;
        }
        Format::Text if args.stack_health => render::stack_health(&mut out, &snapshot, &filter)?,
        Format::Json if args.by == By::Site => {
            render::json(&mut out, &snapshot, &filter, args.sort, args.top, &verdicts)?;
        }
        Format::Json => {
            let (by, sort, top) = (args.by, args.sort, args.top);
            render::json_groups(&mut out, &snapshot, &filter, by, sort, top)?;
        }
        Format::Text => {
            let options = TextOptions {
                filter,
                by: args.by,
                sort: args.sort,
                top: args.top.unwrap_or(TextOptions::default().top),
                path: Some(args.file.clone()),
            };
            render::text(&mut out, &snapshot, &options, &verdicts)?;
        }
    }
    Ok(())
}

/// A process that is not in the recording is a mistake, not an empty report.
pub(super) fn check_pid(
    snapshot: &crate::recording::Snapshot,
    pid: Option<u32>,
) -> anyhow::Result<()> {
    let Some(pid) = pid else { return Ok(()) };
    let rows = || snapshot.processes.iter().map(|process| &process.row);
    let known = rows().filter(|row| !row.is_group());
    let mut pids: Vec<_> = known.map(|row| row.tgid.to_string()).collect();
    if pids.contains(&pid.to_string()) {
        return Ok(());
    }
    pids.truncate(20);
    let folded: u64 = rows().filter_map(|row| row.folded).sum();
    let folded = match folded + snapshot.left_out {
        0 => String::new(),
        n => format!("; {n} short-lived ones were folded without their pids (`record --no-fold`)"),
    };
    anyhow::bail!(
        "no process {pid} in the recording at this moment, expected one of: {}{folded}",
        pids.join(", ")
    )
}

/// Says so if a layer has no memory: it may be a mistake, or its probes were not set.
pub(super) fn warn_without_layer(snapshot: &crate::recording::Snapshot, layer: Option<Layer>) {
    let names = snapshot.sites.iter().map(|site| site.key.layer.name());
    let known: BTreeSet<&str> = names.collect();
    if let Some(layer) = layer.filter(|layer| !known.contains(layer.name())) {
        let known = Vec::from_iter(known).join(", ");
        tracing::warn!(
            "no memory of the layer `{}` in the recording at this moment; it has {}",
            layer.name(),
            if known.is_empty() {
                "none at all"
            } else {
                &known
            }
        );
    }
}

/// Writes `content` to a new private file, or to standard output if its name is `-`.
pub(super) fn write_file(
    path: &std::path::Path,
    force: bool,
    content: &[u8],
) -> anyhow::Result<()> {
    if path == std::path::Path::new("-") {
        return Ok(io::stdout().lock().write_all(content)?);
    }
    Ok(crate::recording::write_private(path, force, content)?)
}

pub(super) fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "end" => Ok(At::End),
        "peak" => Ok(At::Peak),
        time => units::parse_duration(time)
            .ok()
            .and_then(|time| u64::try_from(time.as_nanos()).ok())
            .map(At::Time)
            .ok_or_else(|| {
                format!("`{text}` is not a moment; give `end`, `peak` or a time such as `90s`")
            }),
    }
}

pub(super) fn parse_layer(text: &str) -> Result<Layer, String> {
    let known = Layer::ALL.into_iter().find(|layer| layer.name() == text);
    known.ok_or_else(|| {
        let names = Layer::ALL.map(Layer::name).join(", ");
        format!("`{text}` is not a layer; give one of {names}")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        report: ReportArgs,
    }

    fn parse(arguments: &[&str]) -> Result<ReportArgs, String> {
        Cli::try_parse_from([&["report"], arguments].concat())
            .map(|cli| cli.report)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read() {
        let line = "a.mtr --at 90s --layer vm -p 7 -T 3 --older 5m -z 4k -Z 1m --sort peak";
        let args = parse(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(args.select.at(), At::Time(90_000_000_000));
        assert_eq!(args.select.layer, Some(Layer::Vm));
        assert_eq!((args.select.pid, args.top), (Some(7), Some(3)));
        assert_eq!(args.older, Some(Duration::from_secs(300)));
        assert_eq!((args.min_size, args.max_size), (Some(4096), Some(1 << 20)));
        assert_eq!(args.sort, Metric::Peak);
        let plain = parse(&["a.mtr"]).unwrap();
        assert_eq!((plain.select.at(), plain.by), (At::Default, By::Site));
        assert!(!plain.select.filter().show_interpreter);
        for (name, by) in [
            ("python-line", By::PythonLine),
            ("program-line", By::ProgramLine),
            ("native-site", By::NativeSite),
            ("module", By::Module),
            ("thread", By::Thread),
        ] {
            let args = parse(&["a.mtr", "--by", name, "--show-interpreter"]).unwrap();
            assert_eq!(args.by, by);
            assert!(args.select.filter().show_interpreter);
        }
    }

    #[test]
    fn stack_health_takes_moment_and_process_and_nothing_about_blocks() {
        let args = parse(&["a.mtr", "--stack-health", "--pid", "7", "--at", "end"]).unwrap();
        assert!(args.stack_health);
        assert!(!parse(&["a.mtr"]).unwrap().stack_health);
        for (option, value) in [
            ("--top", "5"),
            ("--older", "5"),
            ("--min-size", "5"),
            ("--max-size", "5"),
            ("--by", "module"),
        ] {
            let error = parse(&["a.mtr", "--stack-health", option, value]).unwrap_err();
            assert!(error.contains("cannot be used with"), "{error}");
        }
    }

    #[test]
    fn a_wrong_value_names_the_right_ones() {
        for (option, value, expected) in [
            ("--at", "noon", "`end`, `peak`"),
            ("--layer", "gpu", "vm, heap, python"),
            ("--by", "line", "python-line, program-line"),
            ("--sort", "size", "live-bytes, live-count"),
        ] {
            let error = parse(&["a.mtr", option, value]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_is_written_once_unless_forced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.svg");
        write_file(&path, false, b"first").unwrap();
        assert!(write_file(&path, false, b"second").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        write_file(&path, true, b"third").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"third");
    }
}
