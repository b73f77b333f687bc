//! Very many processes and very many mappings: the time for each, untraced and traced.

use super::{
    Output,
    figures::median,
    table::{Table, column},
};
use crate::command::{self, compile_c, root};
use anyhow::{Context, Result};
use std::{path::Path, process::Command};

/// A program of tests/targets, its arguments and what it does.
const ROWS: [(&str, &[&str], &str); 6] = [
    ("many_forks", &["2000", "1"], "2,000 forks, one at a time"),
    ("many_forks", &["2000", "8"], "2,000 forks, 8 alive"),
    ("many_forks", &["2000", "2000"], "2,000 forks, all alive"),
    (
        "many_forks",
        &["600", "8", "200", "1000"],
        "600 forks of 200 MiB in 1,000 mappings",
    ),
    (
        "many_mappings",
        &["30000", "file"],
        "30,000 executable mappings of a file",
    ),
    (
        "many_mappings",
        &["30000", "anonymous"],
        "30,000 anonymous executable mappings",
    ),
];

/// The ways of recording; `None`: untraced.
const WAYS: [Option<&[&str]>; 3] = [None, Some(&[]), Some(&["--no-stop"])];

pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    rounds: usize,
    output: &mut Output,
) -> Result<()> {
    for program in ["many_forks", "many_mappings"] {
        let source = root().join("tests/targets").join(program);
        compile_c(&source.with_extension("c"), &folder.join(program))?;
    }
    let mut figures = ROWS.map(|_| WAYS.map(|_| Vec::new()));
    for round in 1..=rounds {
        for ((program, arguments, _), figures) in ROWS.iter().zip(&mut figures) {
            for (options, figures) in WAYS.iter().zip(figures) {
                let program = folder.join(program);
                let mut command = match options {
                    None => Command::new(&program),
                    Some(options) => {
                        let mut record = Command::new(memtrace);
                        record.args(["record", "--force", "-o"]);
                        record.arg(folder.join("forks.mtr")).args(*options);
                        record.arg("--").arg(&program);
                        record
                    }
                };
                let printed = command::output(command.args(*arguments))?;
                let ns: f64 = printed.trim().parse().context("no time was printed")?;
                figures.push(ns);
            }
        }
        eprintln!("round {round} of {rounds} done");
    }
    let columns = [
        column("untraced_us", "no tracing", 0),
        column("traced_us", "memtrace record", 0),
        column("no_stop_us", "--no-stop", 0),
        column("added_us", "added", 0),
        column("times_untraced", "× as long", 1),
    ];
    let title = format!("µs for each, median of {rounds} rounds");
    let mut table = Table::new("forks", title, &columns);
    for ((.., name), figures) in ROWS.iter().zip(&mut figures) {
        let [none, traced, no_stop] = figures.each_mut().map(|ns| median(ns) / 1e3);
        let row = [none, traced, no_stop, traced - none, traced / none];
        table.row(*name, &row.map(Some));
    }
    output.table(&table);
    Ok(())
}
