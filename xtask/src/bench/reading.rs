//! Reading large recordings: the time and the memory that each command takes.

use super::{
    Output,
    child::{Collector, Target},
    imports::Imports,
    table::{Table, column},
    workloads::Means,
};
use crate::command::{self, root};
use anyhow::{Result, ensure};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// Allocations and releases of an iteration of `xtask/bench/python.py regex`, about.
const EVENTS_OF_AN_ITERATION: u64 = 2_300;

/// Commands that read one recording; their output goes to a file.
const COMMANDS: [&[&str]; 3] = [&["report"], &["diagnose"], &["flamegraph", "--output=-"]];

/// A recording and a name for it.
struct Recorded {
    what: String,
    file: PathBuf,
}

/// Records a program with about `events` events, and launches of `import torch` if there is a PyTorch.
pub(super) fn run(means: &Means, events: u64, output: &mut Output) -> Result<()> {
    let columns = [
        column("seconds", "seconds", 2),
        column("memory_mib", "at most resident, MiB", 0),
    ];
    let mut table = Table::new("reading", "reading recordings", &columns);
    let mut one = |what: String, arguments: &[&str], files: &[&Path]| {
        let answer = File::create(means.folder.join("answer"))?;
        let mut command = Command::new(means.memtrace);
        let begun = Instant::now();
        let child = command
            .args(arguments)
            .args(files)
            .stdout(answer)
            .stderr(Stdio::null())
            .spawn()?;
        let ended = command::wait(&child)?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(ended.succeeded, "`{}` failed", command::shown(&command));
        let memory = ended.memory / f64::from(1 << 20);
        table.row(what, &[Some(seconds), Some(memory)]);
        anyhow::Ok(())
    };
    let mut all = vec![busy(means, events)?];
    if let Some(imports) = Imports::new(means) {
        all.extend(launches(means, &imports)?);
    }
    for recorded in &all {
        let size = fs::metadata(&recorded.file)?.len() as f64 / 1e6;
        for arguments in COMMANDS {
            let command = arguments.first().copied().unwrap_or_default();
            let what = format!("{command}: {} ({size:.1} MB)", recorded.what);
            one(what, arguments, &[&recorded.file])?;
        }
    }
    if let [_, baseline, others @ ..] = &*all {
        for other in others {
            let what = format!("diff: {} with {}", baseline.what, other.what);
            one(what, &["diff"], &[&baseline.file, &other.file])?;
        }
    }
    output.table(&table);
    Ok(())
}

/// A Python that compiles and applies regular expressions.
fn busy(means: &Means, events: u64) -> Result<Recorded> {
    let file = means.folder.join("busy.mtr");
    let script = root().join("xtask/bench/python.py").display().to_string();
    let iterations = events.div_ceil(EVENTS_OF_AN_ITERATION).to_string();
    let mut target = Target::start(means.python, &[&script, "regex", &iterations])?;
    let collector = Collector::attach(means.memtrace, target.id(), &file, &[])?;
    target.go()?;
    target.finish()?;
    let (recorded, lost) = collector.finish()?.events()?;
    let what = format!("{:.1} million events, {lost} lost", recorded as f64 / 1e6);
    Ok(Recorded { what, file })
}

/// Launches of `import torch`: two alike, and one without Python frames.
fn launches(means: &Means, imports: &Imports) -> Result<Vec<Recorded>> {
    let launches: [(&str, &str, &[&str]); 3] = [
        ("import torch", "imports.mtr", &[]),
        ("import torch, again", "imports-again.mtr", &[]),
        (
            "import torch, --no-python",
            "imports-no-python.mtr",
            &["--no-python"],
        ),
    ];
    let launches = launches.into_iter().map(|(what, file, options)| {
        let file = means.folder.join(file);
        imports.record(&file, options)?;
        Ok(Recorded {
            what: what.to_owned(),
            file,
        })
    });
    launches.collect()
}
