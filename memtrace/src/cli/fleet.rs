//! `memtrace fleet`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    fleet::{self, Facts, Reading},
    progress::Progress,
    recording::{Recording, budget},
    render,
    view::{
        Filter,
        findings::{Named, findings},
    },
};

/// Compare many hosts: which fact separates those whose memory grows from the others.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace fleet /srv/recordings
  memtrace fleet --format json host-*.mtr")]
pub(crate) struct FleetArgs {
    /// Recordings, and folders with recordings (`*.mtr`).
    #[arg(required = true, value_name = "RECORDING")]
    paths: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Prints the comparison.
///
/// # Errors
///
/// When no recording can be read, or the output fails.
pub(crate) fn run(args: &FleetArgs) -> anyhow::Result<()> {
    let progress = Progress::begin("judging the recordings");
    let mut readings = Vec::new();
    for path in files(&args.paths)? {
        match read(&path, None) {
            Ok(reading) => readings.push(reading),
            // A damaged file must not hide what the others say.
            Err(error) => tracing::warn!("left out `{}`: {error:#}", path.display()),
        }
    }
    anyhow::ensure!(!readings.is_empty(), "none of the recordings can be read");
    print(&readings, args.format, progress)
}

/// Compares recordings of hosts that grow, as the reader says, with recordings of others.
///
/// # Errors
///
/// When a recording cannot be read, or the output fails.
pub(super) fn compare(good: &[PathBuf], bad: &[PathBuf], format: Format) -> anyhow::Result<()> {
    let progress = Progress::begin("judging the recordings");
    let good = good.iter().map(|path| read(path, Some(false)));
    let bad = bad.iter().map(|path| read(path, Some(true)));
    let readings = good.chain(bad).collect::<Result<Vec<_>, _>>()?;
    print(&readings, format, progress)
}

fn print(readings: &[Reading], format: Format, progress: Progress) -> anyhow::Result<()> {
    let fleet = fleet::judge(readings);
    drop(progress);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = match format {
        Format::Text => render::fleet::text(&mut out, &fleet),
        Format::Json => render::fleet::json(&mut out, &fleet),
    };
    written.context("cannot write the output")
}

/// The files, and those of folders.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let within = || format!("cannot read the folder `{}`", path.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(path).with_context(within)? {
            found.push(entry.with_context(within)?.path());
        }
        found.retain(|path| path.extension().is_some_and(|is| is == "mtr") && path.is_file());
        found.sort();
        anyhow::ensure!(
            !found.is_empty(),
            "no recordings (`*.mtr`) in `{}`",
            path.display()
        );
        files.extend(found);
    }
    Ok(files)
}

fn read(path: &Path, given: Option<bool>) -> anyhow::Result<Reading> {
    // Each recording may take what one may take.
    budget::renew();
    let recording = Recording::open(path)?;
    let machine = SystemSeries::read(&recording)?;
    let found = verdict::diagnose(&recording, &machine, &Suppressions::default())?;
    let findings = findings(&found, &Filter::default());
    let first = findings.first();
    let line = first.and_then(|finding| match finding.lines.first() {
        Some(line) => line.allocates,
        None => finding.named.as_ref().map(Named::line),
    });
    let mut facts = Facts::new();
    for fact in recording.facts()? {
        facts.entry(fact.field).or_default().insert(fact.value);
    }
    Ok(Reading {
        host: recording.meta().host.clone(),
        facts,
        class: first.map_or(verdict::Class::Undetermined, |of| of.verdict.class),
        rate: first.and_then(|of| of.verdict.rate),
        line: line.cloned(),
        given,
    })
}
