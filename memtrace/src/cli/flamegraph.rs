//! `memtrace flamegraph`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    output::write_file,
    reading::{JUDGING, READING, SelectArgs, SplitBy, check_pid, warn_without_layer},
};
use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    progress::{Progress, say},
    recording::Recording,
    render,
    view::{Filter, Metric},
};

/// Pictures and pages that flame graphs are not.
const OTHER_TYPES: [&str; 9] = [
    "bmp", "gif", "htm", "html", "jpeg", "jpg", "pdf", "png", "webp",
];

/// Draw one layer (the largest, but vm only if there is no other) as an SVG flame graph.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace flamegraph server.mtr
  memtrace flamegraph --metric peak --at peak server.mtr -o peak.svg
  memtrace flamegraph --inverted server.mtr -o callers.svg
  memtrace flamegraph --layer torch-cuda --by thread train.mtr -o gpu.svg")]
pub(crate) struct FlamegraphArgs {
    /// The recording.
    file: PathBuf,
    /// The SVG file to write; `-` is standard output [default: beside the recording, with the ending `.svg`].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The metric to draw: live-bytes, live-count, alloc-bytes, alloc-count or peak.
    #[arg(long, default_value_t)]
    metric: Metric,
    /// Draw the allocating functions first, and their callers above them.
    #[arg(long)]
    inverted: bool,
    /// Separate threads by name, below their process.
    #[arg(long, value_enum)]
    by: Option<SplitBy>,
    #[command(flatten)]
    select: SelectArgs,
    /// Overwrite an existing file.
    #[arg(short, long)]
    force: bool,
}

/// A name of another type would mislead whoever opens the file.
pub(super) fn check_name(path: &Path) -> anyhow::Result<()> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    if OTHER_TYPES.contains(&&*extension.to_ascii_lowercase()) {
        let (path, svg) = (path.display(), path.with_extension("svg"));
        anyhow::bail!(
            "a flame graph is an SVG picture, and `{path}` has another ending; name it `{}`",
            svg.display()
        );
    }
    Ok(())
}

/// Writes the flame graph.
///
/// # Errors
///
/// When the recording cannot be read, has nothing to draw, or the output cannot be written.
pub(crate) fn run(args: &FlamegraphArgs) -> anyhow::Result<()> {
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| args.file.with_extension("svg"));
    check_name(&output)?;
    let progress = Progress::begin(READING);
    let recording = Recording::open(&args.file)?;
    let snapshot = recording.snapshot(args.select.at(recording.meta()))?;
    let filter = Filter {
        by_thread: args.by == Some(SplitBy::Thread),
        inverted: args.inverted,
        ..args.select.filter()
    };
    check_pid(&snapshot, filter.pid)?;
    warn_without_layer(&snapshot, filter.layer);
    progress.doing(JUDGING);
    let machine = SystemSeries::read(&recording)?;
    let found = verdict::diagnose(&recording, &machine, &Suppressions::default())?;
    progress.doing("drawing the flame graph");
    let mut svg = Vec::new();
    let (layer, others) = render::flamegraph(&mut svg, &snapshot, &found, &filter, args.metric)?;
    drop(progress);
    write_file(&output, args.force, &svg)?;
    let others: Vec<&str> = others.iter().map(|layer| layer.name()).collect();
    let others = match others.is_empty() {
        true => String::new(),
        false => format!(
            "; other layers (choose one with --layer): {}",
            others.join(", ")
        ),
    };
    let (layer, path) = (layer.name(), output.display());
    say(&format!(
        "drew layer {layer} to `{path}` (for a browser){others}"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_types_are_refused() {
        for name in ["a.html", "a.PNG", "a.svg.pdf"] {
            let error = check_name(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(".svg`"), "{error}");
        }
        for name in ["a.svg", "a", "a.b", "html"] {
            check_name(Path::new(name)).unwrap();
        }
    }
}
