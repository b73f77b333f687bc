//! `cargo xtask attack`: attacks on memtrace by a tenant of the machine, by the author of a recording and by a server,
//! and the rule that each must meet. Every attack is an end-to-end test; this is their list.

use crate::{command, vm};
use anyhow::{Result, bail};
use std::{collections::BTreeSet, process::Command};

/// An attack, the rule that holds against it, and its test: file of `tests/e2e/`, function.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ATTACKS: &[Row] = &[
    (
        "package's INSTALLER is a link to a 0600 file of root's",
        "not read",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is a hard link to a 0600 file of root's",
        "not read",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER leads through /proc/self/root",
        "not followed",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is a file of /proc",
        "not read",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "dist-info is a link to a 0700 folder of root's",
        "not entered",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is a FIFO",
        "not opened",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is under a write lease",
        "not waited for",
        "tenant",
        "a_lease_is_not_waited_for",
    ),
    (
        "INSTALLER is on a FUSE file system that never answers",
        "not waited for",
        "tenant",
        "a_file_system_that_does_not_answer_is_not_waited_for",
    ),
    (
        "root's HOME is a tenant's, whose .cache/memtrace is a link",
        "nothing is written",
        "tenant",
        "root_caches_nothing_in_a_tenants_home",
    ),
    (
        "only some of the named capabilities",
        "the missing one is named",
        "tenant",
        "the_named_capabilities_are_enough_and_a_missing_one_is_named",
    ),
    (
        "the process that reads symbols is killed",
        "other names stay, the recording is complete",
        "names",
        "names_survive_the_process_that_reads_them",
    ),
    (
        "2,000 forks at once",
        "all are traced",
        "forks",
        "a_storm_of_forks_is_recorded_in_full",
    ),
    (
        "very many executable mappings",
        "the program goes on, the count is exact",
        "forks",
        "very_many_executable_mappings_do_not_stop_a_program",
    ),
];

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
        .filter(|(attack, .., test)| {
            filter.is_none_or(|part| attack.contains(part) || test.contains(part))
        })
        .collect();
    let mut held = BTreeSet::new();
    let files: BTreeSet<_> = chosen.iter().map(|(_, _, file, _)| *file).collect();
    for file in files {
        let Some(binary) = binaries.get(file) else {
            bail!("no tests are built from `tests/e2e/{file}.rs`");
        };
        let tests: BTreeSet<_> = chosen
            .iter()
            .filter(|(_, _, of, _)| *of == file)
            .map(|(.., test)| *test)
            .collect();
        let output = Command::new(binary)
            .args(["--exact", "--test-threads=1"])
            .args(&tests)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            eprint!("{text}");
        }
        let passed = |test: &&&str| text.contains(&format!("test {test} ... ok"));
        held.extend(tests.iter().filter(passed).map(|test| (file, *test)));
    }
    let mut broken = Vec::new();
    for (attack, rule, file, test) in &chosen {
        let holds = held.contains(&(*file, *test));
        let mark = if holds { "held" } else { "BROKEN" };
        println!("{mark:<7} {attack:<64} {rule}");
        if !holds {
            broken.push(*attack);
        }
    }
    let count = chosen.len() - broken.len();
    println!("{count} of {} attacks held", chosen.len());
    if broken.is_empty() {
        return Ok(());
    }
    bail!("broken: {}", broken.join("; "))
}
