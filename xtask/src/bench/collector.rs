//! The cost of tracing for memtrace itself: the ledger's memory, the growth of the recording, and
//! the reading of figures, all according to its own reports.

use super::{
    Output,
    child::{Collector, Target},
    table::{Table, column},
};
use crate::command::{compile_c, root};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Interval of the runs whose file size is measured, and the number of intervals in each.
const SHORT_INTERVAL: &str = "100ms";
const INTERVALS_PER_SECOND: u64 = 10;
const SECONDS: [u64; 2] = [2, 6];
/// Intervals of an hour at memtrace's default of one a second.
const INTERVALS_PER_HOUR: f64 = 3600.0;

pub(super) struct Own<'a> {
    memtrace: &'a Path,
    folder: &'a Path,
    pairs: PathBuf,
}

impl<'a> Own<'a> {
    pub(super) fn new(memtrace: &'a Path, folder: &'a Path) -> Result<Own<'a>> {
        let pairs = folder.join("pairs");
        compile_c(&root().join("xtask/bench/pairs.c"), &pairs)?;
        Ok(Own {
            memtrace,
            folder,
            pairs,
        })
    }

    /// Bytes that the ledger needs for one live allocation.
    pub(super) fn ledger(&self, blocks: u64, output: &mut Output) -> Result<()> {
        let mut target = Target::start(&self.pairs, &["hold", &blocks.to_string()])?;
        let file = self.folder.join("hold.mtr");
        let collector = Collector::attach(self.memtrace, target.id(), &file, &["-v"])?;
        target.go()?;
        target.expect("held")?;
        let ended = collector.interrupt()?;
        target.finish()?;
        let (outstanding, bytes) = ended
            .stderr
            .iter()
            .find_map(|line| parse_ledger(line))
            .context("memtrace -v printed no line `ledger: N outstanding, B bytes`")?;
        ensure!(outstanding > 0, "the ledger is empty");
        let columns = [
            column("bytes", "bytes per allocation", 1),
            column("outstanding", "outstanding", 0),
            column("made", "made", 0),
        ];
        let mut table = Table::new("ledger", "memory of the ledger", &columns);
        let figures = [
            bytes as f64 / outstanding as f64,
            outstanding as f64,
            blocks as f64,
        ];
        table.row("live allocations", &figures.map(Some));
        output.table(&table);
        Ok(())
    }

    /// Growth of a recording over time, from the difference of a long and a short one.
    pub(super) fn growth(&self, output: &mut Output) -> Result<()> {
        let mut sizes = [0u64; 2];
        for (size, seconds) in sizes.iter_mut().zip(SECONDS) {
            let mut target = Target::start(&self.pairs, &["steady", &seconds.to_string()])?;
            let file = self.folder.join("steady.mtr");
            let options = ["--interval", SHORT_INTERVAL];
            let collector = Collector::attach(self.memtrace, target.id(), &file, &options)?;
            target.go()?;
            target.finish()?;
            collector.finish()?;
            *size = fs::metadata(&file)
                .with_context(|| format!("no recording `{}`", file.display()))?
                .len();
        }
        let intervals = (SECONDS[1] - SECONDS[0]) * INTERVALS_PER_SECOND;
        let each = sizes[1].saturating_sub(sizes[0]) as f64 / intervals as f64;
        let columns = [
            column("mb_per_hour", "MB per hour", 1),
            column("bytes_per_interval", "bytes per interval", 0),
            column("bytes", "bytes at the end", 0),
        ];
        let title = format!(
            "growth of the recording, one interval a second (measured: {SHORT_INTERVAL} for {} s)",
            SECONDS[1]
        );
        let mut table = Table::new("recording", title, &columns);
        let figures = [each * INTERVALS_PER_HOUR / 1e6, each, sizes[1] as f64];
        table.row("100 sites changing", &figures.map(Some));
        output.table(&table);
        Ok(())
    }

    /// Cost of reading the figures of processes, machine and control groups.
    pub(super) fn samples(&self, output: &mut Output) -> Result<()> {
        let mut target = Target::start(&self.pairs, &["steady", &SECONDS[1].to_string()])?;
        let file = self.folder.join("samples.mtr");
        let options = ["-v", "--interval", SHORT_INTERVAL];
        let collector = Collector::attach(self.memtrace, target.id(), &file, &options)?;
        target.go()?;
        target.finish()?;
        let ended = collector.finish()?;
        let costs = ended.stderr.iter().find_map(|line| parse_samples(line));
        let costs = costs.context("memtrace -v printed no line `samples: NAME N of T ns, …`")?;
        let columns = [
            column("ns", "ns", 0),
            column("percent", "% of a CPU at one a second", 4),
        ];
        let title = format!("samples every {SHORT_INTERVAL}, of one process with few mappings");
        let mut table = Table::new("samples", title, &columns);
        // There are none of "process" if each was cheap enough to be one "with mappings".
        let read: Vec<_> = costs.into_iter().filter(|cost| cost.1 > 0).collect();
        ensure!(!read.is_empty(), "nothing was read");
        for (name, _, ns) in read {
            table.row(name, &[Some(ns as f64), Some(ns as f64 / 1e9 * 100.0)]);
        }
        output.table(&table);
        Ok(())
    }
}

/// `ledger: N outstanding, B bytes`, anywhere in the line.
fn parse_ledger(line: &str) -> Option<(u64, u64)> {
    let (_, figures) = line.split_once("ledger: ")?;
    let (outstanding, bytes) = figures.split_once(" outstanding, ")?;
    let bytes = bytes.split_once(" bytes")?.0;
    Some((outstanding.parse().ok()?, bytes.parse().ok()?))
}

/// `samples: NAME N of T ns, …`, wherever in the line: names, counts and times.
fn parse_samples(line: &str) -> Option<Vec<(&str, u64, u64)>> {
    let (_, costs) = line.split_once("samples: ")?;
    let costs = costs.split(", ").map(|cost| {
        let (start, ns) = cost.strip_suffix(" ns")?.split_once(" of ")?;
        let (name, count) = start.rsplit_once(' ')?;
        Some((name, count.parse().ok()?, ns.parse().ok()?))
    });
    costs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_line_is_found_behind_a_prefix() {
        assert_eq!(
            parse_ledger("memtrace: ledger: 2000000 outstanding, 96000000 bytes"),
            Some((2_000_000, 96_000_000))
        );
        assert_eq!(parse_ledger("memtrace: recording"), None);
    }

    #[test]
    fn the_line_of_samples_has_names_counts_and_times() {
        assert_eq!(
            parse_samples("samples: process 3 of 80 ns, control groups 1 of 9 ns"),
            Some(vec![("process", 3, 80), ("control groups", 1, 9)])
        );
        assert_eq!(parse_samples("samples: process 3"), None);
        assert_eq!(parse_samples("memtrace: recording"), None);
    }
}
