//! `cargo xtask test`: every test, in an order that works on a bare machine.

use crate::{
    command::{self, cargo, shown},
    ebpf, setup,
};
use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// Sums of cargo's own closing lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; ignores any other.
    fn add(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else {
            return;
        };
        let words: Vec<_> = result.split([' ', ';']).filter(|w| !w.is_empty()).collect();
        for pair in words.windows(2) {
            let (Ok(count), what) = (pair[0].parse::<u64>(), pair[1]) else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// End of the names of unit tests that need root.
const AS_ROOT: &str = "_as_root";

/// `cargo xtask test`.
///
/// # Errors
/// When something is missing, a test fails, or the committed object does not fit its sources.
pub(crate) fn run(filter: Option<&str>, only_unit: bool) -> Result<()> {
    if !only_unit {
        command::need_root("the end-to-end test suite (`--unit` skips it)")?;
        setup::for_tests()?;
        command::build_workspace()?;
    }

    // Always the whole workspace: another selection has other features and would build twice.
    let mut unit = cargo();
    unit.args([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--lib",
        "--bins",
        "--",
    ])
    .args(filter);
    if only_unit && !command::is_root() {
        println!("tests that need root (names ending in `{AS_ROOT}`) are skipped");
        unit.args(["--skip", AS_ROOT]);
    }
    // Most end-to-end tests need the machine for themselves and wait for one another; those that mostly sleep do not.
    let mut end_to_end = cargo();
    end_to_end
        .args(["test", "--workspace", "--no-fail-fast", "--test", "*", "--"])
        .arg("--test-threads=4")
        .args(filter);

    let mut counts = Counts::default();
    let mut broken = Vec::new();
    let mut suites = vec![&mut unit];
    if !only_unit {
        suites.push(&mut end_to_end);
    }
    for suite in suites {
        if !tee(suite, &mut counts)? {
            broken.push(shown(suite));
        }
    }
    let object = if only_unit { Ok(()) } else { ebpf::check() };

    if counts.ignored > 0 {
        println!("{} ignored", counts.ignored);
    }
    println!("{} passed, {} failed", counts.passed, counts.failed);
    object?;
    if !broken.is_empty() {
        bail!("failed: `{}`", broken.join("`, `"));
    }
    if counts.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// Runs a suite, passing its output on and counting; whether it succeeded.
fn tee(suite: &mut Command, counts: &mut Counts) -> Result<bool> {
    eprintln!("$ {}", shown(suite));
    let mut child = suite
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(suite)))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            counts.add(&line);
        }
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn closing_lines_are_summed_and_nothing_else() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        counts.add("test ten::passed ... ok");
        counts.add("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.20s");
        assert_eq!(
            counts,
            Counts {
                passed: 5,
                failed: 1,
                ignored: 1
            }
        );
    }
}
