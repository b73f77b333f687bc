//! `cargo xtask soak --holders`: searches a Python that replaces thousands of containers a second. Every answer must
//! be true, and every stop short.

use super::judge;
use crate::command::{self, build_memtrace, root};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The objects of `tests/targets/python/mutating.py`, and their path.
const SOUGHT: &str = "--type=Leak";
const PATH: &str = "__main__.cache['sessions'][i]";

/// Least share of searches with an answer, and the longest stop allowed.
const FOUND: f64 = 0.95;
const LONGEST_STOP: Duration = Duration::from_millis(5);

/// The results of searching one process.
#[derive(Default)]
struct Outcome {
    found: u32,
    wrong: Vec<String>,
    /// Why searches failed.
    errors: Vec<String>,
    /// The longest of each search.
    stops: Vec<Duration>,
}

/// Searches a process of each interpreter this many times.
///
/// # Errors
/// When a program cannot be started, or a bound does not hold.
pub(super) fn run(runs: u32, pythons: &[PathBuf], debug: bool) -> Result<()> {
    command::need_root("a search of another process")?;
    let memtrace = build_memtrace(!debug)?;
    let mut judged = Vec::new();
    for python in pythons {
        let mut outcome = search(&memtrace, python, runs)?;
        outcome.stops.sort_unstable();
        let median = outcome.stops.get(outcome.stops.len() / 2);
        let longest = outcome.stops.last().copied().unwrap_or_default();
        println!(
            "{}: found in {} of {runs} searches, {} wrong, stopped for {:.1?} at most (median {:.1?})",
            python.display(),
            outcome.found,
            outcome.wrong.len(),
            longest,
            median.copied().unwrap_or_default(),
        );
        for said in outcome.wrong.iter().chain(&outcome.errors) {
            println!("  {said}");
        }
        let name = python.display();
        judged.extend([
            (outcome.wrong.is_empty(), format!("{name}: no wrong path")),
            (
                f64::from(outcome.found) >= FOUND * f64::from(runs),
                format!("{name}: found in at least {:.0} %", FOUND * 100.0),
            ),
            (
                longest <= LONGEST_STOP,
                format!("{name}: stopped for at most {LONGEST_STOP:?}"),
            ),
        ]);
    }
    judge(&judged)
}

/// Ends with its input.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn search(memtrace: &Path, python: &Path, runs: u32) -> Result<Outcome> {
    let mut target = Target(
        Command::new(python)
            .arg(root().join("tests/targets/python/mutating.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", python.display()))?,
    );
    let mut line = String::new();
    if let Some(stdout) = target.0.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    ensure!(line.trim() == "ready", "the program did not begin");
    let mut outcome = Outcome::default();
    for _ in 0..runs {
        let answer = Command::new(memtrace)
            .args(["holders", "--format=json", SOUGHT, "-p"])
            .arg(target.0.id().to_string())
            .output()?;
        if !answer.status.success() {
            let said = String::from_utf8_lossy(&answer.stderr);
            outcome.errors.push(said.trim().to_owned());
            continue;
        }
        outcome.add(&serde_json::from_slice(&answer.stdout)?)?;
    }
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, answer: &Value) -> Result<()> {
        let stop = answer["longest_stop_ns"].as_u64();
        let stop = stop.context("no `longest_stop_ns` in the answer")?;
        self.stops.push(Duration::from_nanos(stop));
        let ways = answer["sought"][0]["ways"].as_array();
        let mut is_found = false;
        for way in ways.context("no `ways` in the answer")? {
            let steps = way["path"].as_array().into_iter().flatten();
            let path: String = steps.filter_map(|step| step["name"].as_str()).collect();
            match path == PATH {
                true => is_found = true,
                false => self.wrong.push(format!("{}: {path}", way["how"])),
            }
        }
        self.found += u32::from(is_found);
        Ok(())
    }
}
