//! Under which conditions a program is recorded: the answer should not depend on them.

use super::{Case, summary::Outcome};
use crate::targets::share::Share;
use std::collections::BTreeMap;

/// Busy threads on a loaded machine.
pub(super) const LOAD: usize = 8;

/// Seconds after a program is warm at which memtrace attaches late.
pub(super) const LATE: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    /// As the table of programs says.
    Usual,
    /// Beside [`LOAD`] busy threads.
    Loaded,
    /// Each probe is attached by itself, as on kernels before 6.10.
    Slow,
    /// Attached as soon as the program runs.
    Early,
    /// Attached [`LATE`] seconds after it is warm.
    Late,
    Launched,
}

impl Condition {
    pub(super) const ALL: [Condition; 6] = [
        Condition::Usual,
        Condition::Loaded,
        Condition::Slow,
        Condition::Early,
        Condition::Late,
        Condition::Launched,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Condition::Usual => "usual",
            Condition::Loaded => "loaded",
            Condition::Slow => "slow",
            Condition::Early => "early",
            Condition::Late => "late",
            Condition::Launched => "launched",
        }
    }

    /// Whether the program is recorded from its start.
    pub(super) fn launches(self, case: &Case) -> bool {
        match self {
            Condition::Usual | Condition::Loaded | Condition::Slow => case.launched,
            Condition::Early | Condition::Late => false,
            Condition::Launched => true,
        }
    }
}

/// Prints for each condition in how many runs the class is the usual one, and those in which it is not.
pub(super) fn print(outcomes: &[Outcome]) {
    let mut usual = BTreeMap::new();
    let mut others: BTreeMap<Condition, Vec<(&Outcome, &str)>> = BTreeMap::new();
    for outcome in outcomes {
        let Some(class) = outcome.class() else {
            continue;
        };
        match outcome.run().condition {
            Condition::Usual => {
                usual.insert(outcome.run().program(), class);
            }
            condition => others.entry(condition).or_default().push((outcome, class)),
        }
    }
    if others.is_empty() {
        return;
    }
    println!("\n| condition | the same class as usual |");
    println!("|---|---|");
    let mut all = Share::default();
    for (condition, outcomes) in &others {
        let pairs = outcomes
            .iter()
            .filter_map(|(of, class)| Some(usual.get(&of.run().program())? == class));
        let share = Share::count(pairs);
        all += share;
        println!("| {} | {share} |", condition.name());
    }
    println!("| all | {all} |\n");
    for (outcome, class) in others.values().flatten() {
        if let Some(usual) = usual.get(&outcome.run().program())
            && usual != class
        {
            println!("{}: {class}, usually {usual}", outcome.run().name());
        }
    }
}
