//! `cargo xtask verdicts --pairs`: programs as users write them (`tests/targets/pairs/`), with and
//! without the one line that leaks. With it, the verdict has to name the line that allocates and the
//! one that keeps; without it, there must be no alarm. Also states of a GPU's memory that are not
//! leaks.

mod program;
mod table;

use super::{Diagnosis, KeptBy, Options, Verdict, diagnosis, snapshots};
use crate::targets::{beside_load, check, each, running::Running, share::Share};
use anyhow::{Result, bail};
use program::{Programs, start};
use std::{collections::BTreeMap, path::Path, process::Command, sync::Mutex};
use table::{PAIRS, Pair};

/// Share of the leaks that must be right in everything, and of those that something keeps, that must show the path.
const TARGET: f64 = 0.95;

/// Classes that a control must never get.
const ALARMS: [&str; 6] = [
    "leak",
    "mapping-leak",
    "thread-leak",
    "gpu-leak",
    "pinned",
    "retention",
];

/// The verdict on one run.
struct Outcome {
    pair: &'static Pair,
    leaks: bool,
    said: Said,
}

/// memtrace's answer.
struct Said {
    /// That of the leaking process if there is one, otherwise of the first.
    class: String,
    grade: String,
    /// Each `FUNCTION FILE:LINE`.
    allocates: Option<String>,
    keeps: Option<String>,
    /// `kept_by.how` of the line that allocates.
    how: Option<String>,
    right_class: bool,
    right_allocates: bool,
    right_keeps: bool,
    /// The path was seen, and each of its references read again.
    proven: bool,
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
        .flat_map(|(pair, seed)| pair.modes().map(move |leaks| (pair, leaks, seed)))
        .collect();
    let outcomes = Mutex::new(Vec::new());
    let one = |(pair, leaks, seed): &(&'static Pair, bool, u64)| {
        let load = if options.loaded { "-loaded" } else { "" };
        let name = pair.name_of(*leaks);
        let recording = folder.join(format!("{name}-{seed}{load}.mtr"));
        if options.kept {
            if !recording.exists() {
                return Ok(());
            }
        } else {
            let program = start(pair, &programs, *leaks, *seed)?;
            record(memtrace, pair, &program, &recording, options)?;
        }
        let said = judge(pair, *leaks, diagnosis(memtrace, &recording)?)?;
        let outcome = Outcome {
            pair,
            leaks: *leaks,
            said,
        };
        print_outcome(&outcome, *seed);
        if options.snapshots && outcome.is_right() {
            snapshots::keep(&recording, &name)?;
        }
        if let Ok(mut outcomes) = outcomes.lock() {
            outcomes.push(outcome);
        }
        Ok(())
    };
    let threads = if options.loaded && !options.kept {
        2
    } else {
        0
    };
    beside_load(threads, || each(&runs, options.jobs, one))?;
    let outcomes = outcomes.into_inner().unwrap_or_default();
    if outcomes.is_empty() {
        bail!("no such recording in {}", folder.display());
    }
    summary(&outcomes)
}

/// The names of the snapshots.
#[cfg(test)]
pub(super) fn snapshot_names() -> impl Iterator<Item = String> {
    let names = |pair: &'static Pair| pair.modes().map(|leaks| pair.name_of(leaks));
    PAIRS.iter().flat_map(names)
}

/// Attaches to the program, with default settings but for how long.
fn record(
    memtrace: &Path,
    pair: &Pair,
    program: &Running,
    recording: &Path,
    options: &Options,
) -> Result<()> {
    let (usual, coarse) = match options.snapshots {
        true => pair.snapshot_length(),
        false => (45.0, None),
    };
    let mut record = Command::new(memtrace);
    record
        .args(["record", "--force", "--duration"])
        .arg(format!("{}s", options.seconds.unwrap_or(usual)))
        .args(options.snapshots.then_some("--redact"))
        .args(["--pid", &program.id().to_string()])
        .arg("--output")
        .arg(recording);
    if let Some(interval) = options.interval.as_deref().or(coarse) {
        record.args(["--interval", interval]);
    }
    check(&mut record)
}

fn judge(pair: &Pair, leaks: bool, diagnosis: Diagnosis) -> Result<Said> {
    let (processes, sites): (Vec<Verdict>, Vec<Verdict>) = diagnosis
        .verdicts
        .into_iter()
        .partition(|verdict| verdict.scope == "process");
    // For a control, and beside a state, any alarm counts, whichever process it is about.
    let alarm = |verdict: &&Verdict| ALARMS.contains(&verdict.class.as_str());
    let alarmed = processes.iter().find(alarm);
    let expected = processes.iter().find(|of| of.class == pair.expected);
    let headline = expected.filter(|_| leaks);
    let Some(headline) = headline.filter(|_| pair.has_control) else {
        let first = alarmed.or(headline).or(processes.first());
        let right_class = alarmed.is_none() && (headline.is_some() || !leaks);
        return Ok(Said {
            class: first.map_or("missing".into(), |verdict| verdict.class.clone()),
            grade: first.map_or(String::new(), |verdict| verdict.grade.clone()),
            allocates: None,
            keeps: None,
            how: None,
            right_class,
            right_allocates: right_class,
            right_keeps: right_class,
            proven: false,
        });
    };
    let marks = pair.marks()?;
    // As the headline does: sites of one line together, the fastest growing first.
    let mut lines: BTreeMap<Option<String>, (f64, Vec<&Verdict>)> = BTreeMap::new();
    let of_process =
        |site: &&Verdict| site.process == headline.process && site.class == headline.class;
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
    // As the headline does: among the sites of a line, an observed holder counts for more than a probable one.
    let kept_by = || fastest.iter().filter_map(|site| site.kept_by.as_ref());
    let kept_by = kept_by().find(|of| of.how == "path").or(kept_by().next());
    // Memory that no container keeps has no such line: that of a leaked reference is the native code that took it.
    let keeps = kept_by
        .filter(|of| of.how != "surplus-reference")
        .map(|of| &of.line)
        .filter(|line| line.function.is_some());
    Ok(Said {
        class: headline.class.clone(),
        grade: headline.grade.clone(),
        allocates: allocates.map(ToString::to_string),
        keeps: keeps.map(ToString::to_string),
        how: kept_by.map(|of| of.how.clone()),
        right_class: true,
        right_allocates: allocates.is_some_and(|frame| marks.allocates(frame)),
        right_keeps: match keeps {
            Some(frame) => marks.keeps(frame),
            None => pair.keeps.is_none(),
        },
        proven: kept_by.is_some_and(KeptBy::is_proven),
    })
}

impl KeptBy {
    fn is_proven(&self) -> bool {
        self.how == "path" && self.verified == Some(true)
    }
}

fn print_outcome(outcome: &Outcome, seed: u64) {
    let Outcome { pair, leaks, said } = outcome;
    let right = |right| if right { "" } else { " WRONG" };
    let line = |of: &Option<String>| of.clone().unwrap_or("-".into());
    print!(
        "{:<25} seed {seed:<3} {} ({}){}",
        pair.name_of(*leaks),
        said.class,
        said.grade,
        right(said.right_class)
    );
    if *leaks && pair.has_control && said.right_class {
        print!(
            "  allocates {}{}  keeps {}{} ({})",
            line(&said.allocates),
            right(said.right_allocates),
            line(&said.keeps),
            right(said.right_keeps),
            line(&said.how)
        );
    }
    println!();
}

/// Shares of all outcomes.
#[derive(Default)]
struct Counts {
    right: Share,
    /// Of the leaks that something keeps, those whose path was seen.
    proven: Share,
    quiet: Share,
    right_states: Share,
}

/// Prints how often each pair was right, and all together.
fn summary(outcomes: &[Outcome]) -> Result<()> {
    println!(
        "\n{:<20}{:>8}{:>8}{:>12}{:>8}{:>8}{:>8}{:>10}",
        "pair", "leaks", "class", "allocates", "keeps", "all", "path", "controls"
    );
    let mut all = Counts::default();
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
        if !pair.has_control {
            println!("{:<20}{leaks:>8}{right:>8}", pair.name);
            all.right_states += Share::new(right, leaks);
            continue;
        }
        let proven = count(|said| said.proven);
        let quiet = of(false).filter(|of| of.said.right_class).count();
        println!(
            "{:<20}{leaks:>8}{:>8}{:>12}{:>8}{right:>8}{proven:>8}{:>10}",
            pair.name,
            count(|said| said.right_class),
            count(|said| said.right_allocates),
            count(|said| said.right_keeps),
            format!("{quiet}/{of_control}")
        );
        all.right += Share::new(right, leaks);
        if pair.keeps.is_some() {
            all.proven += Share::new(proven, leaks);
        }
        all.quiet += Share::new(quiet, of_control);
    }
    all.judge()
}

impl Counts {
    fn judge(&self) -> Result<()> {
        let Self {
            right,
            proven,
            quiet,
            right_states,
        } = self;
        println!(
            "leaks right in everything: {right}; path seen, of those that something keeps: {proven}; \
             quiet controls: {quiet}; right states: {right_states}"
        );
        if !quiet.reaches(1.0) {
            bail!("{} false alarms", quiet.of - quiet.part);
        }
        let percent = TARGET * 100.0;
        if !right.reaches(TARGET) || !right_states.reaches(TARGET) {
            bail!("fewer than {percent:.0} % of the leaks or states right");
        }
        if !proven.reaches(TARGET) {
            bail!(
                "the path was seen of fewer than {percent:.0} % of the leaks that something keeps"
            );
        }
        Ok(())
    }
}
