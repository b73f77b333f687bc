//! `memtrace report`.

use std::{io, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    hints,
    reading::{JUDGING, READING, SelectArgs, check_pid, warn_without_layer},
};
use crate::{
    analysis::{
        suppressions::Suppressions,
        system::SystemSeries,
        verdict::{self, Diagnosis},
    },
    progress::Progress,
    recording::Recording,
    render::{self, TextOptions},
    units,
    view::{By, Filter, Metric},
};

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
    let snapshot = recording.snapshot(filter.moment(args.select.at(recording.meta())))?;
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{event::Layer, recording::At, view::fixture};

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
        let meta = fixture::snapshot().meta;
        assert_eq!(args.select.at(&meta), At::Time(90_000_000_000));
        let chosen = args.select.filter();
        assert_eq!(chosen.layer, Some(Layer::Vm));
        assert_eq!((chosen.pid, args.top), (Some(7), Some(3)));
        assert_eq!(args.older, Some(Duration::from_secs(300)));
        assert_eq!((args.min_size, args.max_size), (Some(4096), Some(1 << 20)));
        assert_eq!(args.sort, Metric::Peak);
        let plain = parse(&["a.mtr"]).unwrap();
        assert_eq!((plain.select.at(&meta), plain.by), (At::Default, By::Site));
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
}
