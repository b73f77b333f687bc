//! Judges answers and counts them.

use super::{Run, screen::Screen};
use crate::targets::share::Share;
use anyhow::{Result, bail};
use std::{collections::BTreeMap, fmt};

/// Share of the faults whose class and line must be right.
const TARGET: f64 = 0.9;

/// How far a rate may be from that of resident memory.
const TOLERANCE: f64 = 0.15;

/// The answer on a program.
pub(super) struct Outcome {
    run: Run,
    /// `Err`: what the machine lacks.
    answer: Result<Answer, String>,
}

struct Answer {
    screen: Screen,
    class: bool,
    /// `None`: not judged.
    line: Option<bool>,
    keeper: Option<bool>,
    misleads: bool,
    /// Bytes per second, by resident memory of the untraced copy and by memtrace.
    truth: f64,
    rate: f64,
}

impl Answer {
    /// How far memtrace's rate is off, as a part of the true one.
    fn error(&self) -> f64 {
        (self.rate - self.truth).abs() / self.truth
    }

    /// Whether it says that something is wrong.
    fn is_finding(&self) -> bool {
        !matches!(self.screen.class.as_str(), "none" | "undetermined")
    }

    /// Whether it reports a fault that the program does not have.
    fn is_alarm(&self) -> bool {
        !self.class && self.is_finding()
    }

    fn word(&self, leaks: bool) -> &'static str {
        match leaks {
            true if self.is_right() => "right",
            true if self.class_and_line() => "partly",
            true => "wrong",
            false if self.class => "quiet",
            false if self.is_alarm() => "ALARM",
            false => "unsure",
        }
    }

    /// What is wrong about a program with a fault.
    fn faults(&self) -> String {
        let parts = [
            ("class", !self.class),
            ("line", self.line == Some(false)),
            ("keeper", self.keeper == Some(false)),
            ("misleading", self.misleads),
            ("rate", self.error() > TOLERANCE),
        ];
        let wrong = parts.into_iter().filter(|(_, wrong)| *wrong);
        wrong.map(|(part, _)| format!("  {part}")).collect()
    }

    fn class_and_line(&self) -> bool {
        self.class && self.line != Some(false)
    }

    fn is_right(&self) -> bool {
        self.class_and_line()
            && self.keeper != Some(false)
            && !self.misleads
            && self.error() <= TOLERANCE
    }
}

impl Outcome {
    /// # Errors
    /// The program's source cannot be read.
    pub(super) fn new(run: &Run, screen: Screen, truth: f64, rate: f64) -> Result<Outcome> {
        let case = run.case;
        let file = case.source.rsplit('/').next().unwrap_or(case.source);
        let lines = case.lines()?;
        let says = |any: &[&str]| any.iter().any(|words| screen.says(words));
        let is_named = lines.iter().any(|line| screen.names(file, *line)) || says(case.functions);
        let is_hidden = lines.is_empty() && case.functions.is_empty();
        let classes = if run.leaks { case.classes } else { case.quiet };
        let answer = Answer {
            class: classes.contains(&screen.class.as_str()) || !run.leaks && screen.class == "none",
            line: (!is_hidden).then_some(is_named),
            keeper: (!case.keeper.is_empty()).then(|| says(case.keeper)),
            misleads: says(case.never),
            truth,
            rate,
            screen,
        };
        Ok(Outcome {
            run: *run,
            answer: Ok(answer),
        })
    }

    pub(super) fn skipped(run: &Run, missing: &str) -> Outcome {
        Outcome {
            run: *run,
            answer: Err(missing.to_owned()),
        }
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// `None`: it was not recorded.
    pub(super) fn class(&self) -> Option<&str> {
        Some(&self.answer.as_ref().ok()?.screen.class)
    }

    /// Prints a line, and with `screens` the first screen if it is not right.
    pub(super) fn print(&self, screens: bool) {
        let name = self.run.name();
        let answer = match &self.answer {
            Ok(answer) => answer,
            Err(missing) => return println!("skipped  {name:<28} {missing}"),
        };
        let kib = |bytes: f64| bytes / 1024.0;
        let word = answer.word(self.run.leaks);
        let wrong = if self.run.leaks {
            answer.faults()
        } else {
            String::new()
        };
        println!(
            "{word:<8} {name:<28} {:<14} {:>8.1} KiB/s, untraced {:>8.1}{wrong}",
            answer.screen.class,
            kib(answer.rate),
            kib(answer.truth)
        );
        if screens && !matches!(word, "right" | "quiet") {
            for line in answer.screen.text.lines() {
                println!("         | {line}");
            }
            println!("         truth: {}", self.run.case.truth);
        }
    }
}

/// The answers of one row of the table.
#[derive(Default)]
struct Row<'a> {
    faults: Vec<&'a Answer>,
    controls: Vec<&'a Answer>,
}

impl<'a> Row<'a> {
    fn add(&mut self, leaks: bool, answer: &'a Answer) {
        match leaks {
            true => self.faults.push(answer),
            false => self.controls.push(answer),
        }
    }

    /// Of the programs with a fault, those for which it is true.
    fn share(&self, is_true: impl Fn(&Answer) -> Option<bool>) -> Share {
        Share::count(self.faults.iter().filter_map(|answer| is_true(answer)))
    }

    fn quiet(&self) -> Share {
        Share::count(self.controls.iter().map(|answer| answer.class))
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            self.share(|answer| Some(answer.is_right())),
            self.share(|answer| Some(answer.class)),
            self.share(|answer| answer.line),
            self.share(|answer| answer.keeper),
            self.share(|answer| Some(answer.error() <= TOLERANCE)),
            self.quiet(),
        ];
        shares
            .iter()
            .try_for_each(|share| write!(out, " {share} |"))
    }
}

/// Prints shares by language and by kind, each with its 95 % interval.
///
/// # Errors
/// An alarm about a program without a fault, or too many wrong answers.
pub(super) fn print(outcomes: &[Outcome]) -> Result<()> {
    let mut all = Row::default();
    let mut languages: BTreeMap<&str, Row> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, Row> = BTreeMap::new();
    let judged = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome, outcome.answer.as_ref().ok()?)));
    for (Outcome { run, .. }, answer) in judged {
        let Run { case, leaks, .. } = *run;
        all.add(leaks, answer);
        languages
            .entry(case.language)
            .or_default()
            .add(leaks, answer);
        kinds.entry(case.kind).or_default().add(leaks, answer);
    }
    println!(
        "\n| | right | class (recall) | line | keeper | rate within 15 % | quiet without the fault |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, row) in languages.iter().chain(&kinds).chain([(&"all", &all)]) {
        println!("| {name} |{row}");
    }
    println!("\nprecision: {}", precision(&all));
    if let Some(errors) = median_error(&all) {
        println!("rate: median error {:.1} %", 100.0 * errors);
    }
    let skipped = outcomes
        .iter()
        .filter(|outcome| outcome.answer.is_err())
        .count();
    println!("skipped: {skipped} of {}", outcomes.len());
    let alarms = all.controls.iter().filter(|answer| answer.is_alarm());
    let alarms = alarms.count();
    if alarms > 0 {
        bail!("{alarms} false alarms");
    }
    if !all
        .share(|answer| Some(answer.class_and_line()))
        .reaches(TARGET)
    {
        bail!(
            "class and line are right in fewer than {:.0} %",
            100.0 * TARGET
        );
    }
    Ok(())
}

/// Of the answers that say that something is wrong, those about programs with a fault.
fn precision(all: &Row) -> Share {
    let called = all
        .faults
        .iter()
        .filter(|answer| answer.is_finding())
        .count();
    let alarms = all
        .controls
        .iter()
        .filter(|answer| answer.is_alarm())
        .count();
    Share::new(called, called + alarms)
}

fn median_error(all: &Row) -> Option<f64> {
    let mut errors: Vec<f64> = all.faults.iter().map(|answer| answer.error()).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied()
}
