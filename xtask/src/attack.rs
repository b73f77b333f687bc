//! `cargo xtask attack`: attacks on memtrace by a tenant of the machine, by the author of a recording and by a server,
//! and the rule that each must meet. Every attack is an end-to-end test; this is their list.

use crate::{command, vm};
use anyhow::{Result, bail};
use std::{collections::BTreeSet, process::Command};

/// One attack.
struct Attack {
    attack: &'static str,
    rule: &'static str,
    /// File of `tests/e2e/`, function.
    test: (&'static str, &'static str),
}

const fn attack(
    attack: &'static str,
    rule: &'static str,
    file: &'static str,
    test: &'static str,
) -> Attack {
    Attack {
        attack,
        rule,
        test: (file, test),
    }
}

const ATTACKS: &[Attack] = &[];

/// `cargo xtask attack`.
///
/// # Errors
/// When not root, or an attack succeeds.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    command::need_root("the attacks")?;
    command::build_workspace()?;
    let binaries = vm::test_binaries()?;
    let chosen: Vec<_> = ATTACKS
        .iter()
        .filter(|of| filter.is_none_or(|part| of.attack.contains(part) || of.test.1.contains(part)))
        .collect();
    let mut held = BTreeSet::new();
    let files: BTreeSet<_> = chosen.iter().map(|of| of.test.0).collect();
    for file in files {
        let Some(binary) = binaries.get(file) else {
            bail!("no tests are built from `tests/e2e/{file}.rs`");
        };
        let tests = chosen.iter().filter(|of| of.test.0 == file);
        let output = Command::new(binary)
            .arg("--exact")
            .args(tests.map(|of| of.test.1))
            .args(["--test-threads=1"])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            eprint!("{text}");
        }
        held.extend(
            text.lines()
                .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"))
                .map(|test| (file, test.to_owned())),
        );
    }
    let mut broken = Vec::new();
    for of in &chosen {
        let holds = held.contains(&(of.test.0, of.test.1.to_owned()));
        let mark = if holds { "held" } else { "BROKEN" };
        println!("{mark:<7} {:<64} {}", of.attack, of.rule);
        if !holds {
            broken.push(of.attack);
        }
    }
    println!(
        "{} of {} attacks held",
        chosen.len() - broken.len(),
        chosen.len()
    );
    if broken.is_empty() {
        return Ok(());
    }
    bail!("broken: {}", broken.join("; "))
}
