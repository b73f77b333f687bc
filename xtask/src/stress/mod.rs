//! `cargo xtask stress`: probes that are set and removed on all sides for a long time, in virtual machines, because a
//! fault of the kernel would take the host with it. The kernel must have nothing to say about it.

use crate::{
    command::{self, compile_c_with, root, target_dir},
    vm::{Machine, Processors, Session, X86_64},
};
use anyhow::{Result, bail};
use clap::Args;
use std::{collections::BTreeMap, time::Duration};

#[derive(Args)]
pub(crate) struct Options {
    /// 5.10, 6.1, 6.12, newest (of Debian's); by default all of them
    kernels: Vec<String>,
    /// Minutes on each kernel
    #[arg(long, default_value_t = 30)]
    minutes: u64,
}

const KERNELS: [&str; 4] = ["5.10", "6.1", "6.12", "newest"];

const LOAD: &str = include_str!("load.sh");

/// Ways of recording that must all have come to their end at least once.
const ROUNDS: [&str; 7] = [
    "attached",
    "one-by-one",
    "interrupted",
    "killed",
    "launched",
    "pauser-killed",
    // It lives to the end.
    "storm",
];

/// Parts of kernel messages that report a fault.
const FAULTS: [&str; 11] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Call Trace",
    "general protection",
    "uprobe",
    "rcu_sched",
    "detected stalls",
    "blocked for more than",
    "soft lockup",
    "refcount",
];

/// Time for the last rounds to end, and to boot.
const LONGEST_ROUND: Duration = Duration::from_secs(600);
const AROUND: Duration = Duration::from_secs(300);

/// `cargo xtask stress`.
///
/// # Errors
/// When not root, a machine does not come up or to its end, a round is missing, or a kernel reports a fault.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("the stress test")?;
    command::build_workspace()?;
    let storm = target_dir().join("stress/storm");
    let flags = ["-O1", "-pthread"];
    compile_c_with(&flags, &root().join("tests/targets/storm.c"), &storm)?;
    let length = Duration::from_secs(options.minutes * 60);
    let script = format!(
        "export STORM='{}' SECONDS_LONG={} LONGEST_ROUND={}\n{LOAD}",
        storm.display(),
        length.as_secs(),
        LONGEST_ROUND.as_secs()
    );
    let kernels = match options.kernels.is_empty() {
        true => KERNELS.map(str::to_owned).to_vec(),
        false => options.kernels.clone(),
    };
    let mut faulty = Vec::new();
    for name in kernels {
        let session = Session::run_on(
            &name,
            &script,
            Machine {
                architecture: &X86_64,
                processors: Processors::Parallel,
                limit: length + LONGEST_ROUND + AROUND,
            },
        )?;
        let faults = judge(&session)?;
        let verdict = match faults.is_empty() {
            true => "clean".to_owned(),
            false => format!("{} faults", faults.len()),
        };
        println!(
            "{:<32} {} min  {}  {verdict}",
            session.kernel,
            options.minutes,
            counts(&session)?
        );
        faults.iter().for_each(|fault| println!("  {fault}"));
        if !faults.is_empty() {
            faulty.push(name);
        }
    }
    if faulty.is_empty() {
        return Ok(());
    }
    bail!("not clean: {}", faulty.join(", "))
}

/// Rounds of each kind.
fn rounds(session: &Session) -> Result<BTreeMap<String, u64>> {
    let mut rounds = BTreeMap::new();
    for line in session.read("rounds")?.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        *rounds.entry(name.to_owned()).or_default() += 1;
    }
    Ok(rounds)
}

fn counts(session: &Session) -> Result<String> {
    let rounds = rounds(session)?;
    let counts = rounds.iter().map(|(name, count)| format!("{name} {count}"));
    Ok(counts.collect::<Vec<_>>().join(", "))
}

/// What is wrong, a line each.
fn judge(session: &Session) -> Result<Vec<String>> {
    let rounds = rounds(session)?;
    let missing = ROUNDS.iter().filter(|name| !rounds.contains_key(**name));
    let mut faults: Vec<_> = missing.map(|name| format!("no round `{name}`")).collect();
    let dmesg = session.read("dmesg")?;
    faults.extend(
        dmesg
            .lines()
            .filter(|line| FAULTS.iter().any(|fault| line.contains(fault)))
            .map(str::to_owned),
    );
    let running = session.read("left").unwrap_or_default();
    faults.extend(running.lines().map(|line| format!("did not end: {line}")));
    let left = session.read("uprobe_events").unwrap_or_default();
    faults.extend(left.lines().map(|line| format!("left behind: {line}")));
    Ok(faults)
}
