//! One workload, untraced and traced in several ways, in turns: a round has each way once, so that
//! what slows the machine down meets all of them.

use super::{
    child::Ended,
    figures::{summary, times},
    peers::Peer,
    table::{Column, Table, column},
};
use anyhow::{Context, Result, ensure};

/// A way to run a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Untraced,
    /// `memtrace record` with these options.
    Record(&'static [&'static str]),
    Peer(Peer),
}

/// Empty programs at the probes that memtrace would use.
pub(super) const EMPTY: Way = Way::Record(&["--empty-probes"]);
pub(super) const NO_PYTHON: Way = Way::Record(&["--no-python"]);
pub(super) const NO_HEAP: Way = Way::Record(&["--no-heap"]);

/// What every workload is measured with.
pub(super) const WAYS: [Way; 4] = [Way::Untraced, EMPTY, Way::Record(&[]), NO_HEAP];

impl Way {
    pub(super) fn name(self) -> String {
        match self {
            Way::Untraced => "no tracing".to_owned(),
            EMPTY => "empty probes".to_owned(),
            Way::Record(options) => [&["memtrace record"], options].concat().join(" "),
            Way::Peer(peer) => peer.name().to_owned(),
        }
    }
}

/// A measurement.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) value: f64,
    pub(super) collected: Option<Collected>,
}

/// Work of memtrace's collector.
#[derive(Clone, Copy)]
pub(super) struct Collected {
    received: u64,
    lost: u64,
    cpu_s: f64,
}

impl Measured {
    /// Of a run without memtrace.
    pub(super) fn alone(value: f64) -> Measured {
        Measured {
            value,
            collected: None,
        }
    }

    /// Events that memtrace lost.
    pub(super) fn lost(&self) -> u64 {
        self.collected.map_or(0, |collected| collected.lost)
    }

    pub(super) fn traced(value: f64, way: Way, ended: &Ended) -> Result<Measured> {
        if way == EMPTY {
            return Ok(Measured::alone(value));
        }
        let (received, lost) = ended.events()?;
        Ok(Measured {
            value,
            collected: Some(Collected {
                received,
                lost,
                cpu_s: ended.cpu_s,
            }),
        })
    }
}

/// Name, description and unit of a workload.
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) what: &'a str,
    pub(super) unit: &'a str,
    /// Whether more is better.
    pub(super) rate: bool,
}

const COLUMNS: [Column; 7] = [
    column("median", "median", 2),
    column("least", "min", 2),
    column("most", "max", 2),
    column("times_untraced", "× untraced", 2),
    column("times_empty", "× empty probes", 2),
    column("lost", "events lost", 0),
    column("collector_us_per_event", "collector, µs/event", 2),
];

/// With fewer events, the collector's own work is most of its time.
const ENOUGH_EVENTS: u64 = 10_000;

/// All measurements of one way, or why there are none.
#[derive(Default)]
struct Figures {
    values: Vec<f64>,
    collected: Vec<Collected>,
    refused: Option<String>,
}

/// The order of `count` measurements in a round. Each round begins with another: the first can find the machine as the
/// last left it.
pub(super) fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// Measures all rounds. `refused` gives a reason to leave a way out. A failure of another tool
/// becomes a remark, as it is not memtrace's.
pub(super) fn run(
    subject: &Subject,
    ways: &[Way],
    rounds: usize,
    refused: impl Fn(Way) -> Option<String>,
    mut measure: impl FnMut(Way) -> Result<Measured>,
) -> Result<Table> {
    let mut all: Vec<Figures> = ways
        .iter()
        .map(|way| Figures {
            refused: refused(*way),
            ..Figures::default()
        })
        .collect();
    for round in 0..rounds {
        for index in turns(round, ways.len()) {
            let (Some(way), Some(column)) = (ways.get(index), all.get_mut(index)) else {
                continue;
            };
            if column.refused.is_some() {
                continue;
            }
            let measured = measure(*way)
                .with_context(|| format!("workload `{}`, {}", subject.name, way.name()));
            match (measured, way) {
                (Ok(measured), _) => {
                    ensure!(measured.value > 0.0, "`{}` took no time", subject.name);
                    column.values.push(measured.value);
                    column.collected.extend(measured.collected);
                }
                (Err(error), Way::Peer(_)) => column.refused = Some(format!("failed: {error:#}")),
                (Err(error), _) => return Err(error),
            }
        }
        eprintln!("{}: round {} of {rounds} done", subject.name, round + 1);
    }
    Ok(table(subject, ways, &all, rounds))
}

fn table(subject: &Subject, ways: &[Way], all: &[Figures], rounds: usize) -> Table {
    let title = format!(
        "{}: {}, {}, {rounds} round{}",
        subject.name,
        subject.what,
        subject.unit,
        if rounds == 1 { "" } else { "s" }
    );
    let mut table = Table::new(subject.name, title, &COLUMNS);
    let of = |sought: Way| {
        let found = ways.iter().position(|way| *way == sought);
        found.and_then(|index| all.get(index))
    };
    for (way, column) in ways.iter().zip(all) {
        if let Some(reason) = &column.refused {
            table.remark(way.name(), reason);
            continue;
        }
        let Some(values) = summary(&column.values) else {
            continue;
        };
        let ratio = |base: Way| {
            let base = of(base).filter(|_| base != *way)?;
            times(&column.values, &base.values, subject.rate)
        };
        let (lost, per_event) = collector(&column.collected);
        table.row(
            way.name(),
            &[
                Some(values.median),
                Some(values.least),
                Some(values.most),
                ratio(Way::Untraced),
                ratio(EMPTY),
                lost,
                per_event,
            ],
        );
    }
    table
}

/// Events lost in all rounds, and the collector's time for each that it received, µs.
fn collector(collected: &[Collected]) -> (Option<f64>, Option<f64>) {
    if collected.is_empty() {
        return (None, None);
    }
    let received: u64 = collected.iter().map(|one| one.received).sum();
    let lost: u64 = collected.iter().map(|one| one.lost).sum();
    let cpu_s: f64 = collected.iter().map(|one| one.cpu_s).sum();
    let per_event = (received >= ENOUGH_EVENTS).then(|| cpu_s * 1e6 / received as f64);
    (Some(lost as f64), per_event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SUBJECT: Subject = Subject {
        name: "pairs",
        what: "malloc and free",
        unit: "ns per pair",
        rate: false,
    };

    fn collected(received: u64, lost: u64) -> Option<Collected> {
        Some(Collected {
            received,
            lost,
            cpu_s: 0.02,
        })
    }

    #[test]
    fn ways_take_turns_and_are_compared_with_the_first_two() {
        let ways = [Way::Untraced, EMPTY, Way::Record(&[])];
        let mut order = Vec::new();
        let table = run(
            &SUBJECT,
            &ways,
            2,
            |_| None,
            |way| {
                order.push(way);
                let round = if order.len() > 3 { 2.0 } else { 1.0 };
                Ok(match way {
                    Way::Untraced => Measured::alone(10.0 * round),
                    EMPTY => Measured::alone(100.0 * round),
                    _ => Measured {
                        value: 150.0 * round,
                        collected: collected(10_000, 3),
                    },
                })
            },
        );
        let json = table.unwrap().json();
        let [first, second, third] = ways;
        assert_eq!(order, [first, second, third, second, third, first]);
        assert_eq!(
            json["title"],
            "pairs: malloc and free, ns per pair, 2 rounds"
        );
        assert_eq!(
            json["rows"][2],
            json!({
                "name": "memtrace record", "median": 225.0, "least": 150.0, "most": 300.0,
                "times_untraced": 15.0, "times_empty": 1.5, "lost": 6.0,
                "collector_us_per_event": 2.0,
            })
        );
        assert_eq!(json["rows"][0]["times_untraced"], Value::Null);
        assert_eq!(json["rows"][1]["lost"], Value::Null);
    }

    #[test]
    fn peers_that_are_missing_or_fail_get_a_remark() {
        let (heaptrack, massif) = (Way::Peer(Peer::Heaptrack), Way::Peer(Peer::Massif));
        let missing = |way| (way == massif).then(|| "not installed".to_owned());
        let mut failures = 0;
        let table = run(
            &SUBJECT,
            &[Way::Untraced, heaptrack, massif],
            2,
            missing,
            |way| match way {
                Way::Untraced => Ok(Measured::alone(1.0)),
                _ => {
                    failures += 1;
                    anyhow::bail!("no such file")
                }
            },
        );
        let rows = table.unwrap().json()["rows"].clone();
        assert_eq!(failures, 1, "a tool that failed is not tried again");
        let remark = "failed: workload `pairs`, heaptrack: no such file";
        assert_eq!(rows[1], json!({"name": "heaptrack", "remark": remark}));
        assert_eq!(
            rows[2],
            json!({"name": "massif", "remark": "not installed"})
        );
    }

    #[test]
    fn a_failure_of_memtrace_ends_the_run() {
        let fails = |way| match way {
            Way::Untraced => Ok(Measured::alone(1.0)),
            _ => anyhow::bail!("no probes"),
        };
        assert!(run(&SUBJECT, &WAYS, 1, |_| None, fails).is_err());
    }
}
