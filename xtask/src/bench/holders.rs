//! The cost of a search for holders: its time and memory, and the longest stop of the process.

use super::{
    Output,
    child::Target,
    table::{Table, column},
};
use crate::command::{self, compile_c, root};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

/// Objects of the Python heap, and blocks of the program in C.
const OBJECTS: &str = "5000000";
const BLOCKS: &str = "20000000";

/// A row for each program; PyTorch's only with a virtual environment that has it.
pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    environment: Option<&Path>,
    output: &mut Output,
) -> Result<()> {
    let columns = [
        column("seconds", "seconds", 2),
        column("cpu_s", "CPU s", 2),
        column("memory_mib", "own memory, MiB", 0),
        column("longest_stop_ms", "longest stop, ms", 3),
    ];
    let mut table = Table::new("holders", "memtrace holders", &columns);
    let sources = root().join("xtask/bench");
    let script = |name: &str| sources.join(name).display().to_string();
    let answer = folder.join("holders.json");
    let mut one = |what: &str, program: &Path, arguments: &[&str], sought: &str| {
        let target = Target::start(program, arguments)?;
        let child = Command::new(memtrace)
            .args(["holders", "--format=json", sought, "-p"])
            .arg(target.id().to_string())
            .stdout(File::create(&answer)?)
            .spawn()?;
        let ended = command::wait(&child)?;
        ensure!(ended.succeeded, "`memtrace holders` failed");
        target.finish()?;
        let answer: Value = serde_json::from_reader(File::open(&answer)?)?;
        let seconds = |name: &str| -> Result<f64> {
            let nanoseconds = answer[name].as_f64();
            Ok(nanoseconds.with_context(|| format!("no `{name}`"))? / 1e9)
        };
        let figures = [
            seconds("took_ns")?,
            ended.cpu_s,
            ended.memory / f64::from(1 << 20),
            seconds("longest_stop_ns")? * 1e3,
        ];
        table.row(what, &figures.map(Some));
        anyhow::Ok(())
    };
    let python = match environment {
        Some(environment) => environment.join("bin/python"),
        None => PathBuf::from("/usr/bin/python3"),
    };
    let heap = script("holders.py");
    one(
        "Python, 5 million objects",
        &python,
        &[&heap, OBJECTS],
        "--type=Session",
    )?;
    if environment.is_some() {
        let tensors = script("holders_torch.py");
        one(
            "PyTorch, 10 GiB of tensors",
            &python,
            &[&tensors],
            "--type=Tensor",
        )?;
    }
    let program = folder.join("holders");
    compile_c(&sources.join("holders.c"), &program)?;
    one("C, 20 million blocks", &program, &[BLOCKS], "--lost")?;
    output.table(&table);
    Ok(())
}
