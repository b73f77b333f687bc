//! Why a run fails: a line for people, and a few hundred bytes of JSON for programs.

use serde_json::{Value, json};

use super::{evidence, holders, stack};
use crate::{
    analysis::rounds::LEAST,
    units::size,
    view::fail_on::{Condition, Outcome, State},
};

/// The line on a condition that holds or is undetermined.
pub(crate) fn outcome(outcome: &Outcome) -> Option<String> {
    let condition = outcome.condition;
    let mut line = match outcome.state {
        State::DoesNotHold => return None,
        State::Undetermined(_) => {
            let grows = outcome.allocates.map(|frame| stack::line(frame, false));
            let grows = grows.map_or_else(String::new, |line| format!("; grows most: {line}"));
            return Some(format!(
                "undetermined: {condition}: {}{grows}",
                why(outcome)
            ));
        }
        State::Holds => match condition {
            Condition::Live(_) => "failed: live at the end".to_owned(),
            Condition::Undetermined => "failed: it is undetermined whether memory leaks".to_owned(),
            _ => format!("failed: {condition}"),
        },
    };
    let amount = outcome.measured.map(|measured| amount(outcome, measured));
    match (amount, limit(condition)) {
        (Some(amount), Some(limit)) => {
            line += &format!(
                ": {amount}, more than {}",
                self::amount(outcome, limit as f64)
            );
        }
        (Some(amount), None) => line += &format!(": {amount}"),
        (None, _) => {}
    }
    if let Some(frame) = outcome.allocates {
        line += &format!(", allocated by {}", stack::line(frame, false));
    }
    line.extend(keeper(outcome).map(|keeper| format!(", {keeper}")));
    Some(line)
}

/// All conditions, and the recording with the details if it was kept.
pub(crate) fn outcomes_json(outcomes: &[Outcome], recording: Option<&str>) -> Value {
    let conditions: Vec<Value> = outcomes.iter().map(one).collect();
    let failed = outcomes.iter().any(|of| of.state == State::Holds);
    json!({ "failed": failed, "conditions": conditions, "recording": recording })
}

fn one(outcome: &Outcome) -> Value {
    let state = match outcome.state {
        State::Holds => "failed",
        State::DoesNotHold => "passed",
        State::Undetermined(_) => "undetermined",
    };
    let is_open = matches!(outcome.state, State::Undetermined(_));
    let line = outcome.allocates.map(|frame| stack::line(frame, false));
    json!({
        "condition": outcome.condition.to_string(),
        "state": state,
        "measured": outcome.measured.map(|measured| measured.round() as i64),
        "limit": limit(outcome.condition),
        "rounds": outcome.rounds,
        "unit": match outcome.condition {
            _ if outcome.rounds.is_some() => "bytes/round",
            Condition::Leak | Condition::Undetermined | Condition::Growth(_) => "bytes/s",
            Condition::Live(_) => "bytes",
        },
        "line": line,
        "kept_by": keeper(outcome),
        "why": is_open.then(|| why(outcome)),
    })
}

fn limit(condition: Condition) -> Option<u64> {
    match condition {
        Condition::Leak | Condition::Undetermined => None,
        Condition::Growth(limit) | Condition::Live(limit) => Some(limit),
    }
}

fn amount(outcome: &Outcome, bytes: f64) -> String {
    let bytes = size(bytes.max(0.0) as u64);
    match (outcome.rounds, outcome.condition) {
        (Some(rounds), _) => format!("{bytes} in each of {rounds} rounds"),
        (None, Condition::Live(_)) => bytes,
        (None, _) => format!("{bytes}/s"),
    }
}

fn keeper(outcome: &Outcome) -> Option<String> {
    let kept = outcome.keeper?;
    let line = kept.line.as_ref().map(|line| stack::line(line, false));
    Some(holders::sentence(kept, line))
}

/// Why a condition is undetermined.
fn why(outcome: &Outcome) -> String {
    match outcome.state {
        State::Undetermined(Some(of)) => evidence::words(of),
        State::Undetermined(None) if let Some(rounds) = outcome.rounds => match outcome.allocates {
            Some(_) => format!("a line grew in some of {rounds} rounds only"),
            None => {
                format!("{rounds} rounds without lost records are known, at least {LEAST} needed")
            }
        },
        _ if matches!(outcome.condition, Condition::Live(_)) => {
            "the recording ended before the command".to_owned()
        }
        _ => "no process ran long enough to be judged".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::python;

    #[test]
    fn a_failure_has_its_amount_its_limit_and_its_line() {
        let frame = python("handle", "/srv/app.py", 12);
        let failed = Outcome {
            condition: Condition::Growth(1 << 20),
            state: State::Holds,
            measured: Some(3.0 * f64::from(1 << 20)),
            rounds: None,
            allocates: Some(&frame),
            keeper: None,
        };
        let line = outcome(&failed).unwrap();
        assert!(
            line.starts_with("failed: growth: 3.0 MiB/s, more than 1.0 MiB/s, allocated by handle"),
            "{line}"
        );
        let open = Outcome {
            state: State::Undetermined(None),
            ..failed.clone()
        };
        let line = outcome(&open).unwrap();
        assert_eq!(
            line,
            "undetermined: growth: no process ran long enough to be judged; grows most: handle  \
             /srv/app.py:12  [Python]"
        );
        let passed = Outcome {
            state: State::DoesNotHold,
            ..failed.clone()
        };
        assert_eq!(outcome(&passed), None);

        let json = outcomes_json(&[passed.clone(), failed.clone()], Some("a.mtr"));
        assert_eq!(json["failed"], true);
        assert_eq!(json["recording"], "a.mtr");
        assert_eq!(json["conditions"][0]["state"], "passed");
        assert_eq!(json["conditions"][1]["measured"], 3 << 20);
        assert_eq!(json["conditions"][1]["limit"], 1 << 20);
        assert!(json.to_string().len() < 600, "{json}");
        let by_rounds = Outcome {
            condition: Condition::Leak,
            rounds: Some(10),
            ..failed
        };
        let line = outcome(&by_rounds).unwrap();
        assert!(
            line.starts_with("failed: leak: 3.0 MiB in each of 10 rounds, allocated by handle"),
            "{line}"
        );
        assert_eq!(
            outcomes_json(&[by_rounds], None)["conditions"][0]["unit"],
            "bytes/round"
        );
        let fine = outcomes_json(&[passed, open], None);
        assert_eq!(fine["failed"], false);
    }
}
