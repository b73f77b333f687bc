//! `cargo xtask verdicts`: records every scenario of `tests/targets/growth/`
//! with many seeds and counts how often the verdict is right.

mod pairs;
mod scenarios;
mod snapshots;

use crate::{
    command::{self, build_memtrace, output, root, run, target_dir},
    targets::{building::python, check, each, running::Running},
};
use anyhow::{Context, Result, bail};
use scenarios::{SCENARIOS, Scenario};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

/// Precision and recall that each class should reach.
const TARGET: f64 = 0.95;

/// Seconds that attaching to a program may take.
const ATTACHING: f64 = 3.0;

/// Classes that a run without growth must never get.
const ALARMS: [&str; 2] = ["leak", "mapping-leak"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Instead of scenarios, attach to warm programs with one faulty line and without it
    #[arg(long)]
    pairs: bool,
    /// Runs of each scenario
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Run only scenarios whose name contains this
    #[arg(long, visible_alias = "only", default_value = "")]
    scenario: String,
    /// Length of a recording, seconds: by default 8, for pairs 45, for their snapshots 20
    #[arg(long)]
    seconds: Option<f64>,
    /// Time between two intervals: by default 50ms, for pairs `auto`
    #[arg(long)]
    interval: Option<String>,
    /// Number of parallel runs, which sleep most of the time
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Record nothing: judge the recordings of earlier runs by the current rules
    #[arg(long)]
    kept: bool,
    /// For pairs: keep two cores busy meanwhile
    #[arg(long, requires = "pairs")]
    loaded: bool,
    /// For pairs: the virtual environment with numpy and PyTorch; without it, pairs that need them are left out
    #[arg(long, requires = "pairs")]
    venv: Option<PathBuf>,
    /// Make new recordings for the test of first screens: one of each program, if its verdict is
    /// right
    #[arg(long, conflicts_with_all = ["seeds", "kept", "loaded"])]
    snapshots: bool,
}

impl Options {
    fn seeds(&self) -> Range<u64> {
        let runs = if self.snapshots { 1 } else { self.seeds };
        self.first_seed..self.first_seed + runs
    }
}

#[derive(Deserialize)]
struct Diagnosis {
    verdicts: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    process: u32,
    scope: String,
    class: String,
    grade: String,
    evidence: Vec<Evidence>,
    frames: Vec<Frame>,
    next: Vec<String>,
    /// Bytes.
    bytes_per_s: Option<f64>,
    kept_by: Option<KeptBy>,
}

#[derive(Deserialize)]
struct KeptBy {
    how: String,
    verified: Option<bool>,
    /// The line that fills the container.
    #[serde(flatten)]
    line: Frame,
}

#[derive(Deserialize)]
struct Evidence {
    text: String,
}

#[derive(Deserialize)]
struct Frame {
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

/// The verdict on one run.
struct Outcome {
    scenario: &'static Scenario,
    seed: u64,
    class: String,
    grade: String,
    evidence: Vec<String>,
    /// A site of the class names the right function, or none need.
    blamed: bool,
}

impl Outcome {
    fn is_right(&self) -> bool {
        self.scenario.expected.contains(&self.class.as_str())
    }

    /// The class that the scenario means.
    fn meant(&self) -> &'static str {
        self.scenario.expected[0]
    }

    /// The class as the counts take it: any right one is the one that is meant.
    fn counted(&self) -> &str {
        if self.is_right() {
            self.meant()
        } else {
            &self.class
        }
    }
}

/// The programs that grow.
struct Programs {
    c: PathBuf,
    cpp: PathBuf,
    python: String,
    script: PathBuf,
}

/// `cargo xtask verdicts`.
///
/// # Errors
/// When not root, something is missing, a recording fails, or a class is below its target.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    command::need_root("recording")?;
    let memtrace = build_memtrace(false)?;
    let mut folder = target_dir().join("verdicts");
    if options.snapshots {
        folder.push("snapshots");
    }
    std::fs::create_dir_all(&folder)?;
    let judged = match options.pairs {
        true => pairs::run_all(options, &memtrace, &folder),
        false => run_scenarios(options, &memtrace, &folder),
    };
    if options.snapshots {
        snapshots::write_texts()?;
    }
    judged
}

fn run_scenarios(options: &Options, memtrace: &Path, folder: &Path) -> Result<()> {
    let programs = programs(folder)?;
    let runs: Vec<(&Scenario, u64)> = options
        .seeds()
        .flat_map(|seed| SCENARIOS.iter().map(move |scenario| (scenario, seed)))
        .filter(|(scenario, _)| scenario.name.contains(&options.scenario))
        .collect();
    if runs.is_empty() {
        bail!("no scenario's name contains `{}`", options.scenario);
    }
    let outcomes = Mutex::new(Vec::new());
    each(&runs, options.jobs, |(scenario, seed)| {
        let recording = folder.join(format!("{}-{seed}.mtr", scenario.name));
        if options.kept {
            if !recording.exists() {
                return Ok(());
            }
        } else {
            record(memtrace, &programs, &recording, scenario, *seed, options)?;
        }
        let outcome = judge(scenario, *seed, diagnosis(memtrace, &recording)?);
        print_outcome(&outcome);
        if options.snapshots && outcome.is_right() && outcome.blamed {
            snapshots::keep(&recording, scenario.name)?;
        }
        if let Ok(mut outcomes) = outcomes.lock() {
            outcomes.push(outcome);
        }
        Ok(())
    })?;
    let outcomes = outcomes.into_inner().unwrap_or_default();
    if outcomes.is_empty() {
        bail!("no such recording in {}", folder.display());
    }
    summary(&outcomes)
}

fn programs(folder: &Path) -> Result<Programs> {
    let sources = root().join("tests/targets/growth");
    let flags = [
        "-g",
        "-O1",
        "-fno-optimize-sibling-calls",
        "-fno-builtin",
        "-pthread",
    ];
    let (c, cpp) = (folder.join("growth-c"), folder.join("growth-cpp"));
    let compile = |compiler: &str, source: &str, binary: &Path| {
        let mut command = Command::new(compiler);
        command
            .args(flags)
            .arg("-o")
            .arg(binary)
            .arg(sources.join(source))
            .arg("-lm");
        run(&mut command).context("apt-get install gcc g++")
    };
    compile("cc", "growth.c", &c)?;
    compile("c++", "growth.cc", &cpp)?;
    Ok(Programs {
        c,
        cpp,
        python: python()?,
        script: sources.join("growth.py"),
    })
}

/// Records a run.
fn record(
    memtrace: &Path,
    programs: &Programs,
    recording: &Path,
    scenario: &Scenario,
    seed: u64,
    options: &Options,
) -> Result<()> {
    let seconds = options.seconds.unwrap_or(8.0);
    let interval = options.interval.as_deref().unwrap_or("50ms");
    let is_python = scenario.name.starts_with("py-");
    let mut program = match scenario.name {
        _ if is_python => Command::new(&programs.python),
        "new" => Command::new(&programs.cpp),
        _ => Command::new(&programs.c),
    };
    // Python's imports at start-up would make a snapshot large.
    let attaches = options.snapshots && is_python;
    // Usually a little longer than the recording, so its end is not recorded.
    let lives = match scenario.ends {
        true => seconds - 0.5,
        false if attaches => seconds + ATTACHING,
        false => seconds + 0.5,
    };
    program
        .args(is_python.then_some(&programs.script))
        .arg(scenario.name.trim_end_matches("-ended"))
        .arg(lives.to_string())
        .arg(seed.to_string())
        .arg(recording.parent().unwrap_or(recording));
    let mut record = Command::new(memtrace);
    record
        .args(["record", "--force", "--interval", interval, "-d"])
        .arg(format!("{seconds}s"))
        .args(options.snapshots.then_some("--redact"))
        .arg("-o")
        .arg(recording);
    let running = attaches.then(|| Running::start(&mut program, scenario.name));
    match running.transpose()? {
        Some(running) => {
            record.args(["--pid", &running.id().to_string()]);
            check(&mut record)
        }
        None => {
            let program = [program.get_program()]
                .into_iter()
                .chain(program.get_args());
            check(record.arg("--").args(program))
        }
    }
}

fn diagnosis(memtrace: &Path, recording: &Path) -> Result<Diagnosis> {
    let mut diagnose = Command::new(memtrace);
    diagnose
        .args(["diagnose", "--format", "json"])
        .arg(recording);
    let found: Diagnosis = serde_json::from_str(&output(&mut diagnose)?)?;
    for process in found.verdicts.iter().filter(|of| of.scope == "process") {
        let points = process
            .next
            .iter()
            .any(|line| line.starts_with("the sites below"));
        let mut sites = found.verdicts.iter().filter(|of| of.scope != "process");
        let has_sites = sites.any(|of| of.process == process.process && of.class == process.class);
        if points && !has_sites {
            bail!(
                "{}: the verdict `{}` points to sites, and there are none",
                recording.display(),
                process.class
            );
        }
    }
    Ok(found)
}

fn judge(scenario: &'static Scenario, seed: u64, diagnosis: Diagnosis) -> Outcome {
    let wanted = if scenario.child { 2 } else { 1 };
    let of_process = diagnosis
        .verdicts
        .into_iter()
        .filter(|verdict| verdict.process == wanted);
    let (own, sites): (Vec<_>, Vec<_>) = of_process.partition(|verdict| verdict.scope == "process");
    let own = own.into_iter().next();
    let (class, grade, evidence) = match own {
        Some(verdict) => {
            let evidence = verdict.evidence.into_iter().map(|of| of.text);
            (verdict.class, verdict.grade, evidence.collect())
        }
        None => ("missing".into(), String::new(), vec![]),
    };
    let blamed = scenario.blamed.is_empty()
        || sites.iter().filter(|site| site.class == class).any(|site| {
            let names = site
                .frames
                .iter()
                .filter_map(|frame| frame.function.as_deref());
            names.into_iter().any(|name| name.contains(scenario.blamed))
        });
    Outcome {
        scenario,
        seed,
        class,
        grade,
        evidence,
        blamed,
    }
}

fn print_outcome(outcome: &Outcome) {
    let Outcome {
        scenario,
        seed,
        class,
        grade,
        ..
    } = outcome;
    let right = match (outcome.is_right(), outcome.blamed) {
        (true, true) => "",
        (true, false) => "  WRONG SITE",
        (false, _) => "  WRONG",
    };
    println!(
        "{:<20} seed {seed:<3} {class} ({grade}){right}",
        scenario.name
    );
    if !right.is_empty() {
        for line in &outcome.evidence {
            println!("    {line}");
        }
    }
}

/// Prints precision and recall of each class.
fn summary(outcomes: &[Outcome]) -> Result<()> {
    let classes: BTreeSet<&str> = outcomes.iter().map(Outcome::meant).collect();
    let mut below = Vec::new();
    println!(
        "\n{:<16}{:>6}{:>12}{:>12}",
        "class", "runs", "recall", "precision"
    );
    for class in classes {
        let of = |outcome: &&Outcome| outcome.meant() == class;
        let runs = outcomes.iter().filter(of).count();
        let right = outcomes
            .iter()
            .filter(of)
            .filter(|o| o.counted() == class)
            .count();
        let called = outcomes.iter().filter(|o| o.counted() == class).count();
        let share = |all: usize| {
            if all == 0 {
                0.0
            } else {
                right as f64 / all as f64
            }
        };
        let (recall, precision) = (share(runs), share(called));
        println!(
            "{class:<16}{runs:>6}{:>11.1}%{:>11.1}%",
            recall * 100.0,
            precision * 100.0
        );
        if recall < TARGET || precision < TARGET {
            below.push(class);
        }
    }
    let alarms = outcomes.iter().filter(|o| {
        !o.scenario
            .expected
            .iter()
            .any(|class| ALARMS.contains(class))
            && ALARMS.contains(&o.class.as_str())
    });
    let sites = outcomes.iter().filter(|o| o.is_right() && !o.blamed);
    let (alarms, sites) = (alarms.count(), sites.count());
    println!("leaks seen where nothing grows: {alarms}; wrong site blamed: {sites}");
    let mut grades: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|o| o.is_right()) {
        *grades.entry(&outcome.grade).or_default() += 1;
    }
    println!("grades of right verdicts: {grades:?}");
    if alarms > 0 {
        bail!("{alarms} false alarms");
    }
    if !below.is_empty() {
        bail!("below {:.0} %: {}", TARGET * 100.0, below.join(", "));
    }
    Ok(())
}
