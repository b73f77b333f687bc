//! The rate of events at which memtrace keeps up: programs that do nothing but allocate, as many as are given.

use super::{
    Output,
    child::{Collector, Target},
    figures::median,
    table::{Table, column},
};
use crate::command::{compile_c_with, root};
use anyhow::{Context, Result};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

const PROCESSES: [usize; 4] = [1, 2, 4, 8];

/// What each process does: a subcommand of `xtask/bench/pairs.c`, and calls for each of its count.
struct Work {
    what: &'static str,
    command: &'static str,
    calls: u64,
}

const WORKS: [Work; 2] = [
    Work {
        what: "malloc and free",
        command: "run",
        calls: 2,
    },
    Work {
        what: "malloc of blocks that stay",
        command: "hold",
        calls: 1,
    },
];

/// A round: events a second, the share of them that was lost, and the collector's time for each, ns.
struct Measured {
    rate: f64,
    lost: f64,
    collector_ns: f64,
}

struct Bench<'a> {
    memtrace: &'a Path,
    program: PathBuf,
    recording: PathBuf,
    /// Calls of all processes together.
    events: u64,
}

/// Measures rates with about `events` events each.
pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    (rounds, events): (usize, u64),
    output: &mut Output,
) -> Result<()> {
    let bench = Bench {
        memtrace,
        program: folder.join("pairs-rate"),
        recording: folder.join("rate.mtr"),
        events,
    };
    let source = root().join("xtask/bench/pairs.c");
    compile_c_with(&["-O2", "-pthread"], &source, &bench.program)?;
    let columns = [
        column("events_per_s", "events a second", 0),
        column("lost_percent", "% lost", 2),
        column("collector_ns", "collector, ns an event", 0),
    ];
    let title = format!("programs that only allocate, median of {rounds} rounds");
    let mut table = Table::new("rate", title, &columns);
    for work in &WORKS {
        for processes in PROCESSES {
            let measured: Result<Vec<_>> = (0..rounds)
                .map(|_| bench.measure(work, processes))
                .collect();
            let measured = measured?;
            let of = |figure: fn(&Measured) -> f64| {
                median(&mut measured.iter().map(figure).collect::<Vec<_>>())
            };
            let figures = [of(|it| it.rate), of(|it| it.lost), of(|it| it.collector_ns)];
            let plural = if processes == 1 { "" } else { "es" };
            let name = format!("{}, {processes} process{plural}", work.what);
            table.row(name, &figures.map(Some));
        }
    }
    output.table(&table);
    Ok(())
}

impl Bench<'_> {
    fn measure(&self, work: &Work, processes: usize) -> Result<Measured> {
        let each = (self.events / work.calls / processes as u64).to_string();
        let targets = (0..processes).map(|_| Target::start(&self.program, &[work.command, &each]));
        let mut targets = targets.collect::<Result<Vec<_>>>()?;
        let (first, others) = targets.split_first().context("no process")?;
        let others: Vec<String> = others
            .iter()
            .map(|target| format!("--pid={}", target.id()))
            .collect();
        let options: Vec<&str> = others.iter().map(String::as_str).collect();
        let collector = Collector::attach(self.memtrace, first.id(), &self.recording, &options)?;
        let begun = Instant::now();
        for target in &mut targets {
            target.go()?;
        }
        for target in &mut targets {
            target.next()?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        for target in targets {
            target.finish()?;
        }
        let ended = collector.finish()?;
        let (recorded, lost) = ended.events()?;
        let all = (recorded + lost) as f64;
        Ok(Measured {
            rate: all / seconds,
            lost: 100.0 * lost as f64 / all,
            collector_ns: ended.cpu_s * 1e9 / recorded as f64,
        })
    }
}
