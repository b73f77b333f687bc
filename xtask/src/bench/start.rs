//! The start of a launched program: how long until it runs, and until it and memtrace have ended.

use super::{
    Output,
    figures::median,
    table::{Table, column},
};
use crate::command;
use anyhow::{Context, Result};
use std::{
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// A program that prints the time, in ns, at once.
const PROGRAM: [&str; 2] = ["date", "+%s%N"];

/// Measures starts.
pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    rounds: usize,
    output: &mut Output,
) -> Result<()> {
    let columns = [
        column("runs_ms", "ms until it runs", 1),
        column("ends_ms", "ms until the end", 1),
    ];
    let title = format!("a launched program, median of {rounds} rounds");
    let mut table = Table::new("start", title, &columns);
    let mut untraced = Vec::new();
    let mut traced = Vec::new();
    for _ in 0..rounds {
        let mut program = Command::new(PROGRAM[0]);
        untraced.push(measure(program.args(&PROGRAM[1..]))?);
        let mut record = Command::new(memtrace);
        record.args(["record", "--force", "-o"]);
        record.arg(folder.join("start.mtr")).arg("--").args(PROGRAM);
        traced.push(measure(&mut record)?);
    }
    for (name, measured) in [("untraced", untraced), ("memtrace record", traced)] {
        let of = |figure: fn(&[f64; 2]) -> f64| {
            median(&mut measured.iter().map(figure).collect::<Vec<_>>())
        };
        let figures = [of(|it| it[0]), of(|it| it[1])];
        table.row(name.to_owned(), &figures.map(Some));
    }
    output.table(&table);
    Ok(())
}

/// Until the program runs and until the command has ended, ms.
fn measure(command: &mut Command) -> Result<[f64; 2]> {
    let begun = now_ns()?;
    let printed = command::output(command)?;
    let ended = now_ns()?;
    let ran: u128 = printed.trim().parse().context("no time was printed")?;
    let since = |ns: u128| ns.saturating_sub(begun) as f64 / 1e6;
    Ok([since(ran), since(ended)])
}

fn now_ns() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())
}
