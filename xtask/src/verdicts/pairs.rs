//! `cargo xtask verdicts --pairs`: programs as users write them (`tests/targets/pairs/`), with the one
//! line that leaks and without it. With it the verdict has to name the line that allocates and the
//! one that keeps, without it there must be no alarm.

mod program;
mod table;

use super::{Diagnosis, Options, Verdict, diagnosis, each, snapshots};
use crate::command::shown;
use anyhow::{Context, Result, bail};
use program::{Programs, Running, start};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use table::{PAIRS, Pair};

/// Share of the leaks that must be right in everything.
const TARGET: f64 = 0.95;

/// Classes that a control must never get.
const ALARMS: [&str; 4] = ["leak", "mapping-leak", "gpu-leak", "retention"];

/// What one run was judged to be.
struct Outcome {
    pair: &'static Pair,
    leaks: bool,
    said: Said,
}

/// What memtrace said.
struct Said {
    /// Of the process that leaks if there is one, otherwise of the first.
    class: String,
    grade: String,
    /// Each `FUNCTION FILE:LINE`.
    allocates: Option<String>,
    keeps: Option<String>,
    right_class: bool,
    right_allocates: bool,
    right_keeps: bool,
}

impl Outcome {
    fn is_right(&self) -> bool {
        let said = &self.said;
        said.right_class && said.right_allocates && said.right_keeps
    }
}

/// `cargo xtask verdicts --pairs`.
///
/// # Errors
/// When something is missing, a recording fails, or too many verdicts are wrong.
pub(super) fn run_all(options: &Options, memtrace: &Path, folder: &Path) -> Result<()> {
    let chosen = PAIRS
        .iter()
        .filter(|pair| pair.name.contains(&options.scenario));
    let (pairs, left_out): (Vec<&Pair>, Vec<&Pair>) =
        chosen.partition(|pair| !pair.needs_venv || options.venv.is_some());
    for pair in &left_out {
        println!("{:<20} left out: needs --venv", pair.name);
    }
    if pairs.is_empty() {
        bail!(
            "no pair's name contains `{}`, or it needs --venv",
            options.scenario
        );
    }
    let programs = Programs::build(&pairs, options, &folder.join("pairs"))?;
    let runs: Vec<(&Pair, bool, u64)> = options
        .seeds()
        .flat_map(|seed| pairs.iter().map(move |pair| (*pair, seed)))
        .flat_map(|(pair, seed)| [true, false].map(|leaks| (pair, leaks, seed)))
        .collect();
    let outcomes = Mutex::new(Vec::new());
    let one = |(pair, leaks, seed): &(&'static Pair, bool, u64)| {
        let load = if options.loaded { "-loaded" } else { "" };
        let mode = mode(*leaks);
        let recording = folder.join(format!("{}-{mode}-{seed}{load}.mtr", pair.name));
        if options.kept {
            if !recording.exists() {
                return Ok(());
            }
        } else {
            let program = start(pair, &programs, *leaks, *seed)?;
            record(memtrace, &program, &recording, options)?;
        }
        let said = judge(pair, *leaks, diagnosis(memtrace, &recording)?)?;
        let outcome = Outcome {
            pair,
            leaks: *leaks,
            said,
        };
        tell(&outcome, *seed);
        if options.snapshots && outcome.is_right() {
            snapshots::keep(&recording, &format!("{}-{mode}", pair.name))?;
        }
        if let Ok(mut outcomes) = outcomes.lock() {
            outcomes.push(outcome);
        }
        Ok(())
    };
    let busy = AtomicBool::new(options.loaded && !options.kept);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = each(&runs, options.jobs, one);
        busy.store(false, Ordering::Relaxed);
        done
    })?;
    let outcomes = outcomes.into_inner().unwrap_or_default();
    if outcomes.is_empty() {
        bail!("no such recording in {}", folder.display());
    }
    summary(&outcomes)
}

/// What the snapshots of those pairs are called that need no virtual environment.
#[cfg(test)]
pub(super) fn snapshot_names() -> impl Iterator<Item = String> {
    let pairs = PAIRS.iter().filter(|pair| !pair.needs_venv);
    pairs.flat_map(|pair| [true, false].map(|leaks| format!("{}-{}", pair.name, mode(leaks))))
}

const fn mode(leaks: bool) -> &'static str {
    if leaks { "leak" } else { "ok" }
}

/// Attaches to the program, with default settings but for how long.
fn record(memtrace: &Path, program: &Running, recording: &Path, options: &Options) -> Result<()> {
    let usual = if options.snapshots { 20.0 } else { 45.0 };
    let mut record = Command::new(memtrace);
    record
        .args(["record", "--force", "--duration"])
        .arg(format!("{}s", options.seconds.unwrap_or(usual)))
        .args(options.snapshots.then_some("--redact"))
        .args(["--pid", &program.id().to_string()])
        .arg("--output")
        .arg(recording)
        .stderr(Stdio::null());
    if let Some(interval) = &options.interval {
        record.args(["--interval", interval]);
    }
    let status = record.status().context("cannot start memtrace")?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(&record));
    }
    Ok(())
}

fn judge(pair: &Pair, leaks: bool, diagnosis: Diagnosis) -> Result<Said> {
    let (processes, sites): (Vec<Verdict>, Vec<Verdict>) = diagnosis
        .verdicts
        .into_iter()
        .partition(|verdict| verdict.scope == "process");
    // Of a control any alarm counts, whichever process it is about.
    let alarm = |verdict: &&Verdict| ALARMS.contains(&verdict.class.as_str());
    let Some(headline) = processes.iter().find(|verdict| verdict.class == "leak") else {
        let first = processes.iter().find(alarm).or(processes.first());
        let right_class = !leaks && !processes.iter().any(|verdict| alarm(&verdict));
        return Ok(Said {
            class: first.map_or("missing".into(), |verdict| verdict.class.clone()),
            grade: first.map_or(String::new(), |verdict| verdict.grade.clone()),
            allocates: None,
            keeps: None,
            right_class,
            right_allocates: !leaks,
            right_keeps: !leaks,
        });
    };
    let marks = pair.marks()?;
    // As the headline does: sites of one line together, the fastest growing first.
    let mut lines: BTreeMap<Option<String>, (f64, Vec<&Verdict>)> = BTreeMap::new();
    let of_process = |site: &&Verdict| site.process == headline.process && site.class == "leak";
    for site in sites.iter().filter(of_process) {
        let own = site.frames.iter().find(|frame| marks.is_own(frame));
        let of_line = lines.entry(own.map(ToString::to_string)).or_default();
        of_line.0 += site.bytes_per_s.unwrap_or(0.0);
        of_line.1.push(site);
    }
    let fastest = lines
        .into_values()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(vec![], |(_, sites)| sites);
    let allocates = fastest
        .first()
        .and_then(|site| site.frames.iter().find(|frame| marks.is_own(frame)));
    // What is kept by no container has no line.
    let mut kept_by = fastest.iter().filter_map(|site| site.kept_by.as_ref());
    let keeps = kept_by.find(|line| line.function.is_some());
    Ok(Said {
        class: headline.class.clone(),
        grade: headline.grade.clone(),
        allocates: allocates.map(ToString::to_string),
        keeps: keeps.map(ToString::to_string),
        right_class: leaks,
        right_allocates: allocates.is_some_and(|frame| marks.allocates(frame)),
        right_keeps: match keeps {
            Some(frame) => marks.keeps(frame),
            None => pair.keeps.is_none(),
        },
    })
}

fn tell(outcome: &Outcome, seed: u64) {
    let Outcome { pair, leaks, said } = outcome;
    let right = |right| if right { "" } else { " WRONG" };
    let line = |of: &Option<String>| of.clone().unwrap_or("-".into());
    let mode = mode(*leaks);
    print!(
        "{:<20} {mode:<5} seed {seed:<3} {} ({}){}",
        pair.name,
        said.class,
        said.grade,
        right(said.right_class)
    );
    if *leaks && said.right_class {
        print!(
            "  allocates {}{}  keeps {}{}",
            line(&said.allocates),
            right(said.right_allocates),
            line(&said.keeps),
            right(said.right_keeps)
        );
    }
    println!();
}

/// Prints how often each pair was right, and all together.
fn summary(outcomes: &[Outcome]) -> Result<()> {
    println!(
        "\n{:<20}{:>8}{:>8}{:>12}{:>8}{:>8}{:>10}",
        "pair", "leaks", "class", "allocates", "keeps", "all", "controls"
    );
    let (mut all_leaks, mut all_right, mut controls, mut quiet) = (0, 0, 0, 0);
    for pair in PAIRS {
        let of = |leaks| {
            let same = move |outcome: &&Outcome| outcome.pair.name == pair.name;
            let mode = move |outcome: &&Outcome| outcome.leaks == leaks;
            outcomes.iter().filter(same).filter(mode)
        };
        let (leaks, of_control) = (of(true).count(), of(false).count());
        if leaks + of_control == 0 {
            continue;
        }
        let count = |right: fn(&Said) -> bool| of(true).filter(|of| right(&of.said)).count();
        let right = of(true).filter(|of| of.is_right()).count();
        let of_quiet = of(false).filter(|of| of.said.right_class).count();
        println!(
            "{:<20}{leaks:>8}{:>8}{:>12}{:>8}{right:>8}{:>10}",
            pair.name,
            count(|said| said.right_class),
            count(|said| said.right_allocates),
            count(|said| said.right_keeps),
            format!("{of_quiet}/{of_control}")
        );
        all_leaks += leaks;
        all_right += right;
        controls += of_control;
        quiet += of_quiet;
    }
    println!(
        "leaks right in everything: {all_right} of {all_leaks}; quiet controls: {quiet} of {controls}"
    );
    if quiet < controls {
        bail!("{} false alarms", controls - quiet);
    }
    if (all_right as f64) < TARGET * all_leaks as f64 {
        bail!("fewer than {:.0} % of the leaks right", TARGET * 100.0);
    }
    Ok(())
}
