//! The cost of tracing for a program apart from its allocations: signals, and new threads,
//! processes and programs, which have to be followed.

use super::{
    Output,
    child::{Collector, Target},
    figures::median,
    table::{Table, column},
};
use crate::command::{compile_c, root};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// An event of `xtask/bench/disturbance.c`, and how many of it one round has.
const EVENTS: [(&str, u32); 4] = [
    ("signal to itself", 50_000),
    ("thread, joined", 5_000),
    ("fork and wait", 1_000),
    ("fork, exec and wait", 300),
];

struct Bench<'a> {
    memtrace: &'a Path,
    program: PathBuf,
    recording: PathBuf,
}

pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    rounds: usize,
    output: &mut Output,
) -> Result<()> {
    let bench = Bench {
        memtrace,
        program: folder.join("disturbance"),
        recording: folder.join("disturbance.mtr"),
    };
    compile_c(&root().join("xtask/bench/disturbance.c"), &bench.program)?;
    let mut figures = EVENTS.map(|_| [vec![], vec![]]);
    for round in 1..=rounds {
        for traced in [false, true] {
            for (figures, ns) in figures.iter_mut().zip(bench.measure(traced)?) {
                figures[usize::from(traced)].push(ns);
            }
        }
        eprintln!("round {round} of {rounds} done");
    }
    let columns = [
        column("untraced_per_s", "no tracing", 0),
        column("traced_per_s", "memtrace record", 0),
        column("times_untraced", "× as long", 2),
    ];
    let title = format!("traced events per second, median of {rounds} rounds");
    let mut table = Table::new("disturbance", title, &columns);
    for ((name, _), [none, traced]) in EVENTS.iter().zip(&mut figures) {
        let (none, traced) = (median(none), median(traced));
        table.row(*name, &[1e9 / none, 1e9 / traced, traced / none].map(Some));
    }
    output.table(&table);
    Ok(())
}

impl Bench<'_> {
    /// Nanoseconds per event of each kind.
    fn measure(&self, traced: bool) -> Result<[f64; EVENTS.len()]> {
        let counts = EVENTS.map(|(_, count)| count.to_string());
        let mut target = Target::start(&self.program, &counts.each_ref().map(String::as_str))?;
        let collector = match traced {
            true => Some(Collector::attach(
                self.memtrace,
                target.id(),
                &self.recording,
                &[],
            )?),
            false => None,
        };
        target.go()?;
        let lines = target.finish()?;
        if let Some(collector) = collector {
            collector.finish()?;
        }
        let figures: Vec<f64> = lines
            .iter()
            .map(|line| line.parse())
            .collect::<Result<_, _>>()
            .context("the target printed something other than ns per event")?;
        ensure!(figures.iter().all(|ns| *ns > 0.0), "an event took no time");
        figures
            .try_into()
            .ok()
            .context("the target did not measure every event")
    }
}
