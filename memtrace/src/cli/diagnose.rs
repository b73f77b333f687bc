//! `memtrace diagnose`.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::{
    hints,
    reading::{JUDGING, READING, check_pid},
};
use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    progress::Progress,
    recording::{At, Recording},
    render,
    view::Filter,
};

/// Classify the memory growth in a recording, name the sites behind it, and suggest what to do.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace diagnose server.mtr
  memtrace diagnose --pid 1234 --full server.mtr
  memtrace diagnose --format markdown server.mtr > ticket.md
  memtrace diagnose --suppressions lsan.supp --format json server.mtr")]
pub(crate) struct DiagnoseArgs {
    /// The recording.
    file: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Only the findings, which fit on one screen: no tables, and no evidence.
    #[arg(long, conflicts_with = "format")]
    short: bool,
    /// Only this process.
    #[arg(short, long)]
    pid: Option<u32>,
    /// Show every frame of libraries, and C++ names with parameters and template arguments; JSON always
    /// has them.
    #[arg(long)]
    full: bool,
    /// Hide the sites listed in this file. Format as for LeakSanitizer: lines `leak:PATTERN`, matched
    /// against the functions, source files and modules of a stack.
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
    /// The findings with their evidence, for a ticket
    Markdown,
}

/// Prints the verdicts.
///
/// # Errors
///
/// When the recording or the suppressions cannot be read, or the output fails.
pub(crate) fn run(args: &DiagnoseArgs) -> anyhow::Result<()> {
    let suppressions = suppressions(args.suppressions.as_deref())?;
    let progress = Progress::begin(READING);
    let recording = Recording::open(&args.file)?;
    if args.pid.is_some() {
        check_pid(&recording.snapshot(At::End)?, args.pid)?;
    }
    progress.doing(JUDGING);
    let found = verdict::diagnose(&recording, &SystemSeries::read(&recording)?, &suppressions)?;
    let filter = Filter {
        pid: args.pid,
        full: args.full,
        colour: hints::colour(),
        ..Filter::default()
    };
    let cut_off = recording.cut_off()?;
    drop(progress);
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.format {
        Format::Text if args.short => {
            render::first_screen(&mut out, &found, cut_off, &filter)?;
            let file = hints::file(&args.file);
            hints::next(&format!("memtrace diagnose {file}"));
        }
        Format::Text => {
            render::diagnosis(&mut out, &found, cut_off, &filter)?;
            hints::next(&format!("memtrace report {}", hints::file(&args.file)));
        }
        Format::Json => render::diagnosis_json(&mut out, &found, cut_off, &filter)?,
        Format::Markdown => {
            render::markdown(&mut out, recording.meta(), &found, cut_off, &filter)?;
        }
    }
    Ok(())
}

/// The suppressions of a file; none without one.
///
/// # Errors
/// It cannot be read, or is not such a file.
pub(super) fn suppressions(file: Option<&Path>) -> anyhow::Result<Suppressions> {
    let Some(path) = file else {
        return Ok(Suppressions::default());
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    Suppressions::parse(&text)
        .with_context(|| format!("`{}` is not a suppressions file", path.display()))
}
