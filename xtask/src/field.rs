//! `cargo xtask field`: programs as users write them (`tests/targets/field/`), most of them with a
//! known fault and without it. Judged is the first screen of `memtrace diagnose`, and its rate is
//! compared with the growth of resident memory, which a second copy shows untraced meanwhile.

mod condition;
mod program;
mod resident;
mod screen;
mod summary;
mod table;

use crate::{
    command::{self, build_memtrace, output, target_dir},
    targets::{beside_load, check, each, mode, running::Running},
};
use anyhow::{Context, Result, bail};
use condition::{Condition, LATE, LOAD};
use program::Programs;
use screen::Screen;
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};
use summary::Outcome;
use table::{CASES, Case};

/// What memtrace prints once a launched program is recorded and still runs.
const RECORDED: &str = "waiting for process";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only programs whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Recordings at a time, which sleep most of the time
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Recordings of each program, each with another seed
    #[arg(long, visible_alias = "seeds", default_value_t = 1)]
    runs: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Only one program in six, without packages: some minutes
    #[arg(long)]
    quick: bool,
    /// The interpreter of programs without packages [default: python3]
    #[arg(long)]
    python: Option<PathBuf>,
    /// Keep the recordings here, and judge those that are there already
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The memtrace to judge [default: built from this repository]
    #[arg(long, value_name = "PATH")]
    memtrace: Option<PathBuf>,
    /// Record each program also on a loaded machine, with slow probes, early, late and from its start, and compare the classes
    #[arg(long)]
    conditions: bool,
    /// Print the first screen of every wrong answer
    #[arg(long)]
    screens: bool,
}

/// A recording to make.
#[derive(Clone, Copy)]
struct Run {
    case: &'static Case,
    leaks: bool,
    seed: u64,
    condition: Condition,
}

impl Run {
    /// Of all conditions.
    fn program(&self) -> String {
        format!("{}-{}-{}", self.case.name, mode(self.leaks), self.seed)
    }

    fn name(&self) -> String {
        match self.condition {
            Condition::Usual => self.program(),
            condition => format!("{}-{}", self.program(), condition.name()),
        }
    }
}

/// `cargo xtask field`.
///
/// # Errors
/// When not root, a recording fails, a program without a fault gets an alarm, or too many answers are wrong.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    command::need_root("recording")?;
    let memtrace = match &options.memtrace {
        Some(memtrace) => memtrace.clone(),
        None => build_memtrace(false)?,
    };
    let cases = chosen(options)?;
    let folder = target_dir().join("field");
    let recordings = options
        .keep
        .clone()
        .unwrap_or_else(|| folder.join("recordings"));
    std::fs::create_dir_all(&recordings)
        .with_context(|| format!("cannot make `{}`", recordings.display()))?;
    let programs = Programs::build(&cases, options.python.as_deref(), &folder)?;
    let outcomes = Mutex::new(Vec::new());
    let one = |run: &Run| {
        let outcome = match programs.missing(run.case) {
            Some(missing) => Outcome::skipped(run, missing),
            None => judged(
                run,
                &programs,
                &memtrace,
                &recordings,
                options.keep.is_some(),
            )?,
        };
        outcome.print(options.screens);
        if let Ok(mut outcomes) = outcomes.lock() {
            outcomes.push(outcome);
        }
        Ok(())
    };
    let conditions = match options.conditions {
        true => Condition::ALL.as_slice(),
        false => &[Condition::Usual],
    };
    for &condition in conditions {
        let runs = runs(&cases, options, condition);
        let threads = if condition == Condition::Loaded {
            LOAD
        } else {
            0
        };
        beside_load(threads, || each(&runs, options.jobs, one))?;
    }
    let outcomes = outcomes.into_inner().unwrap_or_default();
    condition::print(&outcomes);
    summary::print(&outcomes)
}

fn runs(cases: &[&'static Case], options: &Options, condition: Condition) -> Vec<Run> {
    let seeds = options.first_seed..options.first_seed + options.runs;
    let programs = seeds.flat_map(|seed| cases.iter().map(move |case| (*case, seed)));
    let run = |(case, seed): (&'static Case, u64)| {
        case.modes().map(move |leaks| Run {
            case,
            leaks,
            seed,
            condition,
        })
    };
    programs.flat_map(run).collect()
}

fn chosen(options: &Options) -> Result<Vec<&'static Case>> {
    let named = CASES.iter().copied().flatten();
    let named = named.filter(|case| case.name.contains(&options.only));
    let cases: Vec<&Case> = match options.quick {
        true => named
            .filter(|case| case.packages.is_none())
            .step_by(6)
            .collect(),
        false => named.collect(),
    };
    if cases.is_empty() {
        bail!("no program's name contains `{}`", options.only);
    }
    Ok(cases)
}

/// Records a program, unless its recording is kept already, and judges memtrace's answer.
fn judged(
    run: &Run,
    programs: &Programs,
    memtrace: &Path,
    recordings: &Path,
    keep: bool,
) -> Result<Outcome> {
    let recording = recordings.join(format!("{}.mtr", run.name()));
    let growth = recording.with_extension("growth");
    let truth = match std::fs::read_to_string(&growth) {
        Ok(text) if keep && recording.exists() => text.trim().parse()?,
        _ => {
            let truth = record(run, programs, memtrace, &recording)
                .with_context(|| format!("program `{}`", run.name()))?;
            std::fs::write(&growth, truth.to_string())?;
            truth
        }
    };
    let mut diagnose = Command::new(memtrace);
    diagnose.arg("diagnose").arg(&recording);
    let screen = Screen::read(&output(&mut diagnose)?);
    let rate = screen::rate(&output(diagnose.args(["--format", "json"]))?)?;
    if !keep {
        std::fs::remove_file(&recording)?;
    }
    Outcome::new(run, screen, truth, rate)
}

/// Records one copy of a program while another grows untraced: bytes per second of the latter.
fn record(run: &Run, programs: &Programs, memtrace: &Path, recording: &Path) -> Result<f64> {
    let Run {
        case,
        leaks,
        seed,
        condition,
    } = *run;
    let untraced = Running::start(&mut programs.command(case, leaks, seed), case.name)?;
    let seconds = f64::from(case.seconds);
    let mut record = Command::new(memtrace);
    record
        .args(["record", "--force", "--duration"])
        .arg(format!("{}s", case.seconds))
        .arg("--output")
        .arg(recording);
    if condition == Condition::Slow {
        record.arg("--one-by-one");
    }
    let mut program = programs.command(case, leaks, seed);
    thread::scope(|scope| {
        let truth = scope.spawn(|| resident::growth(&untraced, seconds));
        if condition.launches(case) {
            launch(&mut record, program, case.name)?;
        } else {
            let traced = match condition {
                Condition::Early => Running::spawn(&mut program, case.name)?,
                _ => Running::start(&mut program, case.name)?,
            };
            if condition == Condition::Late {
                thread::sleep(Duration::from_secs(LATE));
            }
            check(record.args(["--pid", &traced.id().to_string()]))?;
        }
        match truth.join() {
            Ok(truth) => truth,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Records a program from its start, and ends it after the recording.
fn launch(record: &mut Command, program: Command, name: &str) -> Result<()> {
    record
        .arg("--")
        .arg(program.get_program())
        .args(program.get_args());
    for (variable, value) in program.get_envs() {
        if let Some(value) = value {
            record.env(variable, value);
        }
    }
    let mut running = Running::start(record.stderr(Stdio::piped()), name)?;
    let messages = running.child().stderr.take().context("no standard error")?;
    for message in BufReader::new(messages).lines() {
        if message?.contains(RECORDED) {
            running.end_descendants();
        }
    }
    // Its status is that of the program that was just killed.
    running.child().wait()?;
    Ok(())
}
