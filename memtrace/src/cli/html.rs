//! `memtrace html`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{diff, output::write_file, reading::READING};
use crate::{
    diff::Options,
    progress::{Progress, say},
    recording::Recording,
    render::{self, Compared, Recorded},
};

/// Write a recording as one HTML page that any browser opens offline: the verdict, memory over time, a
/// flame graph, and the lines that allocate.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace html server.mtr
  memtrace html server.mtr -o /tmp/leak.html
  memtrace html --diff good.mtr bad.mtr -o growth.html")]
pub(crate) struct HtmlArgs {
    /// The recording.
    file: PathBuf,
    /// The page to write; `-` is standard output [default: beside the recording, with the ending `.html`].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with this baseline, as `memtrace diff BASELINE RECORDING` does.
    #[arg(long, value_name = "BASELINE")]
    diff: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(short, long)]
    force: bool,
}

/// Writes the page.
///
/// # Errors
///
/// When a recording cannot be read or compared, or the page cannot be written.
pub(crate) fn run(args: &HtmlArgs) -> anyhow::Result<()> {
    let progress = Progress::begin(READING);
    let recorded = read(&args.file)?;
    progress.doing("writing the page");
    let mut page = Vec::new();
    match &args.diff {
        None => render::html(&mut page, &recorded)?,
        Some(path) => {
            progress.doing("comparing the recordings");
            let baselines = std::slice::from_ref(path);
            let comparison = diff::compared(baselines, &args.file, &Options::default())?;
            let compared = Compared {
                comparison: &comparison,
                baseline: &read(path)?,
                baseline_path: path,
            };
            render::html_comparison(&mut page, &recorded, &compared)?;
        }
    }
    drop(progress);
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| args.file.with_extension("html"));
    write_file(&output, args.force, &page)?;
    say(&format!("wrote `{}` (for a browser)", output.display()));
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Recorded> {
    Ok(Recorded::read(&Recording::open(path)?)?)
}
