//! Conditions on which a run fails (`memtrace run --fail-on`), and whether they hold for a recording.

use std::{collections::HashSet, fmt, str::FromStr};

use super::{
    Filter,
    findings::{self, Finding, Named, findings},
};
use crate::{
    analysis::rounds::{LEAST, Rounds},
    analysis::verdict::{Class, Diagnosis, Evidence, Keeper, Scope, Verdict},
    event::Layer,
    frames::{Frame, own_line},
    ledger::ProcessId,
    recording::{Origin, Snapshot},
    units,
};

/// A condition on which a run fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// A verdict is `leak` or `gpu-leak`.
    Leak,
    /// Whether there is such a verdict cannot be decided.
    Undetermined,
    /// The processes together grow by more than this, bytes per second.
    Growth(u64),
    /// More than this is live at the end, bytes.
    Live(u64),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a condition; give `leak`, `undetermined`, `growth=SIZE/s` such as \
                 `growth=1m/s`, or `live=SIZE` such as `live=100m`"
            )
        };
        match text.split_once('=') {
            None if text == "leak" => Ok(Self::Leak),
            None if text == "undetermined" => Ok(Self::Undetermined),
            Some(("growth", rate)) => {
                let size = rate.strip_suffix("/s").ok_or_else(wrong)?;
                units::parse_size(size).map(Self::Growth)
            }
            Some(("live", size)) => units::parse_size(size).map(Self::Live),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leak => "leak",
            Self::Undetermined => "undetermined",
            Self::Growth(_) => "growth",
            Self::Live(_) => "live",
        })
    }
}

/// Whether a condition holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State<'a> {
    Holds,
    DoesNotHold,
    /// With the reason, if the recording has one. Otherwise no process ran long enough or, for live memory, the command ran
    /// longer than the recording.
    Undetermined(Option<&'a Evidence>),
}

/// What conditions are compared with.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) found: Diagnosis,
    /// The recording at its end.
    pub(crate) end: Snapshot,
    /// If the command reported rounds.
    pub(crate) rounds: Option<Rounds>,
}

/// A condition and what was found.
#[derive(Clone, Debug)]
pub(crate) struct Outcome<'a> {
    pub(crate) condition: Condition,
    pub(crate) state: State<'a>,
    /// Bytes, bytes per second, or bytes per round.
    pub(crate) measured: Option<f64>,
    /// The number of rounds, if it was decided by them.
    pub(crate) rounds: Option<usize>,
    /// The line that allocates most of it; of a condition that is undetermined, the line whose memory grows most.
    pub(crate) allocates: Option<&'a Frame>,
    pub(crate) keeper: Option<&'a Keeper>,
}

/// Compares a recording with a condition.
pub(crate) fn check(condition: Condition, judged: &Judged) -> Outcome<'_> {
    match (condition, &judged.rounds) {
        (Condition::Leak, Some(rounds)) => leak_of_rounds(rounds, &judged.found),
        (Condition::Leak, None) => leak(&judged.found),
        (Condition::Undetermined, _) => undetermined(check(Condition::Leak, judged)),
        (Condition::Growth(limit), _) => growth(limit, &judged.found),
        (Condition::Live(limit), _) => live(limit, &judged.end),
    }
}

/// Whether `leak` is undetermined.
fn undetermined(leak: Outcome<'_>) -> Outcome<'_> {
    let is_open = matches!(leak.state, State::Undetermined(_));
    Outcome {
        condition: Condition::Undetermined,
        state: match is_open {
            true => State::Holds,
            false => State::DoesNotHold,
        },
        measured: None,
        allocates: leak.allocates.filter(|_| is_open),
        keeper: None,
        ..leak
    }
}

/// What a program keeps of each round is exact: no trend is needed.
fn leak_of_rounds<'a>(rounds: &'a Rounds, found: &Diagnosis) -> Outcome<'a> {
    let is_known = rounds.number >= LEAST && found.lost == 0.0;
    let largest = rounds.kept.first().filter(|_| is_known);
    let shown = largest.or(rounds.perhaps.first().filter(|_| is_known));
    Outcome {
        condition: Condition::Leak,
        state: match (largest, shown) {
            (Some(_), _) => State::Holds,
            (None, None) if is_known => State::DoesNotHold,
            _ => State::Undetermined(None),
        },
        measured: is_known.then(|| rounds.per_round() as f64),
        rounds: Some(rounds.number),
        allocates: shown.and_then(|kept| kept.line.as_ref()),
        keeper: shown.and_then(|kept| kept.keeper.as_ref()),
    }
}

fn leak(found: &Diagnosis) -> Outcome<'_> {
    let growing: HashSet<ProcessId> = found
        .verdicts
        .iter()
        .filter(|of| of.scope == Scope::Process)
        .filter(|of| !matches!(of.class, Class::None | Class::ProcessLeak))
        .map(|of| of.process)
        .collect();
    // What a process without growth that matters allocates does not matter either.
    let leaks = found
        .verdicts
        .iter()
        .filter(|verdict| verdict.class.is_leak() && growing.contains(&verdict.process));
    let rate = |scope: fn(&Scope) -> bool| {
        let rates = leaks.clone().filter(|verdict| scope(&verdict.scope));
        rates
            .filter_map(|verdict| verdict.rate)
            .reduce(|a, b| a + b)
    };
    let of_sites = rate(|scope| matches!(scope, Scope::Site(_)));
    let largest = largest_site(leaks.clone());
    let state = match leaks.clone().next() {
        Some(_) => State::Holds,
        None => or_undetermined(found),
    };
    let is_open = matches!(state, State::Undetermined(_));
    let allocates = match largest {
        Some(verdict) => line(verdict, found),
        None if is_open => grows_most(found),
        None => None,
    };
    Outcome {
        condition: Condition::Leak,
        state,
        measured: of_sites.or_else(|| rate(|scope| *scope == Scope::Process)),
        rounds: None,
        allocates,
        keeper: largest.and_then(|verdict| verdict.keeper.as_ref()),
    }
}

/// The line that the first screen of a diagnosis names first.
fn grows_most(found: &Diagnosis) -> Option<&Frame> {
    let findings = findings(found, &Filter::default());
    findings.iter().find_map(|of| match of.lines.first() {
        Some(line) => line.allocates,
        None => match of.named {
            Some(Named::Largest { line, .. }) => Some(line),
            _ => None,
        },
    })
}

/// The rates that a report has for the processes, added up.
fn growth(limit: u64, found: &Diagnosis) -> Outcome<'_> {
    let findings = findings(found, &Filter::default());
    let own = findings.iter().filter(|finding| {
        let of_machine = finding.verdict.class.is_of_machine();
        !of_machine && findings::place(finding.verdict).is_none()
    });
    let rates = own.filter_map(Finding::rate);
    let rate: f64 = rates.filter(|rate| *rate > 0.0).sum();
    let line = findings
        .iter()
        .find(|finding| findings::place(finding.verdict).is_none())
        .and_then(|finding| finding.lines.first());
    Outcome {
        condition: Condition::Growth(limit),
        state: match rate > limit as f64 {
            true => State::Holds,
            false => or_undetermined(found),
        },
        measured: Some(rate),
        rounds: None,
        allocates: line.and_then(|line| line.allocates),
        keeper: line.and_then(|line| line.keeper),
    }
}

/// Blocks of malloc and its relatives, and arenas of Python: the layers that do not overlap.
fn live(limit: u64, end: &Snapshot) -> Outcome<'_> {
    let counts = |layer| matches!(layer, Layer::Heap | Layer::Python);
    let layers = end.layers.iter().filter(|of| counts(of.layer));
    let bytes: u64 = layers.map(|of| of.totals.totals.live_bytes).sum();
    let sites = end.sites.iter().filter(|of| counts(of.key.layer));
    let largest = sites.max_by_key(|site| site.totals.live_bytes);
    let line = largest.and_then(|site| {
        let frames: Vec<&Frame> = end.stacks.get(site.key.stack).of_caller().collect();
        own_line(&frames)
    });
    let goes_on = end
        .processes
        .iter()
        .any(|of| of.row.origin == Origin::Launched && of.row.ended_ns.is_none());
    Outcome {
        condition: Condition::Live(limit),
        state: match bytes > limit {
            true if goes_on => State::Undetermined(None),
            true => State::Holds,
            false => State::DoesNotHold,
        },
        measured: Some(bytes as f64),
        rounds: None,
        allocates: line,
        keeper: None,
    }
}

/// For a condition on verdicts that no verdict fulfils.
fn or_undetermined(found: &Diagnosis) -> State<'_> {
    let mut of_processes = found
        .verdicts
        .iter()
        .filter(|verdict| verdict.scope == Scope::Process)
        .peekable();
    if of_processes.peek().is_none() {
        return State::Undetermined(None);
    }
    match of_processes.find(|verdict| verdict.class == Class::Undetermined) {
        Some(verdict) => State::Undetermined(verdict.evidence.first()),
        None => State::DoesNotHold,
    }
}

fn largest_site<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Option<&'a Verdict> {
    let sites = verdicts.filter(|verdict| matches!(verdict.scope, Scope::Site(_)));
    let rate = |verdict: &Verdict| verdict.rate.unwrap_or(0.0);
    sites.max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

fn line<'a>(verdict: &Verdict, found: &'a Diagnosis) -> Option<&'a Frame> {
    let Scope::Site(key) = &verdict.scope else {
        return None;
    };
    let frames: Vec<&Frame> = found.stacks.get(key.stack).of_caller().collect();
    own_line(&frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        analysis::{rounds::Kept, verdict::Grade},
        ledger::ProcessId,
        recording::fixture::heap_site,
        view::fixture,
    };

    fn verdict(class: Class, rate: Option<f64>) -> Verdict {
        Verdict {
            process: ProcessId(1),
            tgid: 7,
            scope: Scope::Process,
            class,
            grade: Grade::B,
            evidence: vec![],
            runner_up: None,
            next: vec![],
            rate,
            blocks: None,
            caller: None,
            keeper: None,
            absent: None,
            runtime: None,
        }
    }

    fn found(verdicts: Vec<Verdict>) -> Diagnosis {
        Diagnosis {
            verdicts,
            ..Diagnosis::default()
        }
    }

    #[test]
    fn conditions_are_read() {
        let read = |text: &str| text.parse::<Condition>();
        assert_eq!(read("leak"), Ok(Condition::Leak));
        assert_eq!(read("undetermined"), Ok(Condition::Undetermined));
        assert_eq!(read("growth=1m/s"), Ok(Condition::Growth(1 << 20)));
        assert_eq!(read("live=100k"), Ok(Condition::Live(100 << 10)));
        for wrong in [
            "",
            "leaks",
            "leak=1",
            "growth",
            "growth=1m",
            "growth=x/s",
            "live=",
            "live=x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_leak_fails_and_what_is_open_does_not() {
        let holds = |verdicts| leak(&found(verdicts)).state == State::Holds;
        assert!(holds(vec![verdict(Class::Leak, Some(10.0))]));
        assert!(holds(vec![
            verdict(Class::Undetermined, None),
            verdict(Class::GpuLeak, Some(10.0))
        ]));
        let state = |verdicts| {
            let found = found(verdicts);
            let state = leak(&found).state;
            match state {
                State::Holds => "holds",
                State::DoesNotHold => "does not hold",
                State::Undetermined(_) => "undetermined",
            }
        };
        assert_eq!(
            state(vec![verdict(Class::Cache, Some(10.0))]),
            "does not hold"
        );
        assert_eq!(
            state(vec![verdict(Class::Undetermined, None)]),
            "undetermined"
        );
        let one_is_open = vec![
            verdict(Class::None, None),
            verdict(Class::Undetermined, None),
        ];
        assert_eq!(state(one_is_open), "undetermined");
        // A line that leaks too little for its process to grow.
        let beside = |class| {
            let site = Verdict {
                scope: Scope::Site(heap_site(1)),
                ..verdict(Class::Leak, Some(10.0))
            };
            state(vec![verdict(class, None), site])
        };
        assert_eq!(beside(Class::None), "does not hold");
        assert_eq!(beside(Class::ProcessLeak), "does not hold");
        assert_eq!(beside(Class::FdLeak), "holds");
        assert_eq!(state(vec![]), "undetermined");
        let is_open = |verdicts| undetermined(leak(&found(verdicts))).state == State::Holds;
        assert!(is_open(vec![verdict(Class::Undetermined, None)]));
        assert!(!is_open(vec![verdict(Class::None, None)]));
        assert!(!is_open(vec![verdict(Class::Leak, Some(10.0))]));
    }

    #[test]
    fn rounds_decide_if_there_are_enough() {
        let of = |number, kept: usize, perhaps: usize, lost| {
            let kept_by_line = Kept {
                line: None,
                keeper: None,
                per_round: 10,
            };
            let rounds = Rounds {
                number,
                kept: vec![kept_by_line.clone(); kept],
                perhaps: vec![kept_by_line; perhaps],
            };
            let found = Diagnosis {
                lost,
                ..Diagnosis::default()
            };
            match leak_of_rounds(&rounds, &found).state {
                State::Holds => "holds",
                State::DoesNotHold => "does not hold",
                State::Undetermined(_) => "undetermined",
            }
        };
        assert_eq!(of(LEAST, 1, 1, 0.0), "holds");
        assert_eq!(of(LEAST, 0, 0, 0.0), "does not hold");
        assert_eq!(of(LEAST, 0, 1, 0.0), "undetermined");
        assert_eq!(of(LEAST - 1, 0, 0, 0.0), "undetermined");
        assert_eq!(of(LEAST, 1, 0, 0.001), "undetermined");
    }

    #[test]
    fn the_growth_of_all_processes_counts_but_not_that_of_the_machine() {
        let found = found(vec![
            verdict(Class::Leak, Some(600.0)),
            verdict(Class::Cache, Some(500.0)),
            verdict(Class::None, Some(-900.0)),
            verdict(Class::Kernel, Some(1e9)),
        ]);
        let of = growth(1000, &found);
        assert_eq!((of.state, of.measured), (State::Holds, Some(1100.0)));
        assert_eq!(growth(1100, &found).state, State::DoesNotHold);
    }

    #[test]
    fn live_memory_is_that_of_layers_that_do_not_overlap() {
        let snapshot = fixture::snapshot();
        let layers = snapshot.layers.iter();
        let heap = layers.filter(|of| matches!(of.layer, Layer::Heap | Layer::Python));
        let bytes: u64 = heap.map(|of| of.totals.totals.live_bytes).sum();
        assert!(bytes > 0);
        assert_eq!(live(bytes - 1, &snapshot).state, State::Holds);
        assert_eq!(live(bytes, &snapshot).state, State::DoesNotHold);
        assert!(live(bytes, &snapshot).allocates.is_some());
    }

    #[test]
    fn live_memory_of_a_command_that_goes_on_is_undetermined() {
        let mut snapshot = fixture::snapshot();
        let launched = &mut snapshot.processes[0].row;
        (launched.origin, launched.ended_ns) = (Origin::Launched, None);
        assert_eq!(live(0, &snapshot).state, State::Undetermined(None));
        assert_eq!(live(u64::MAX, &snapshot).state, State::DoesNotHold);
        snapshot.processes[0].row.ended_ns = Some(1);
        assert_eq!(live(0, &snapshot).state, State::Holds);
    }
}
