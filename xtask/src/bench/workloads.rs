//! The workloads: their names, their choice, and a table of each.

use super::{
    Output,
    child::{Collector, Target},
    native, paired,
    paired::{Measured, NO_PYTHON, Subject, WAYS, Way},
    parse_figure, peers, python, servers,
};
use anyhow::{Result, bail, ensure};
use std::path::{Path, PathBuf};

/// What all workloads are measured with.
pub(super) struct Means<'a> {
    pub(super) memtrace: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) rounds: usize,
    pub(super) peers: bool,
    /// Pairs of malloc and free.
    pub(super) pairs: u64,
    /// Runs the workloads in Python.
    pub(super) python: &'a Path,
    /// A virtual environment with PyTorch.
    pub(super) torch: Option<&'a Path>,
}

/// A program that says "ready", waits for a line, and prints the figure of its work.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Other arguments untraced: enough work to be timed.
    pub(super) untraced: Option<Vec<String>>,
    pub(super) python: bool,
}

/// A row of the list.
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// In C or C++, or in Python.
    Program(Program),
    Server(servers::Server),
    /// What it needs is not installed: how to install it.
    Missing(String),
}

/// All of them, in the order of their tables.
fn all(means: &Means) -> Result<Vec<Workload>> {
    let mut all = native::workloads(means)?;
    all.extend(python::workloads(means));
    all.extend(servers::workloads());
    Ok(all)
}

/// Names of the list that are `chosen` themselves, or by what their name begins with: `pairs` for
/// `pairs-d4-t1`. All without a choice.
fn choose<'a>(names: &[&'a str], chosen: &[String]) -> Result<Vec<&'a str>> {
    let is = |name: &str, chosen: &str| {
        name.strip_prefix(chosen)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    for chosen in chosen {
        ensure!(
            names.iter().any(|name| is(name, chosen)),
            "no workload `{chosen}`; expected one of: {} (torch needs `--torch DIR`)",
            names.join(", ")
        );
    }
    let picked = names
        .iter()
        .filter(|name| chosen.is_empty() || chosen.iter().any(|one| is(name, one)));
    Ok(picked.copied().collect())
}

/// Measures the chosen workloads, each a table.
pub(super) fn run(means: &Means, chosen: &[String], output: &mut Output) -> Result<()> {
    let all = all(means)?;
    let names: Vec<&str> = all.iter().map(|workload| &*workload.name).collect();
    let chosen = choose(&names, chosen)?;
    for workload in &all {
        if chosen.contains(&&*workload.name) {
            output.table(&workload.measure(means)?);
        }
    }
    Ok(())
}

impl Workload {
    fn measure(&self, means: &Means) -> Result<super::table::Table> {
        let subject = Subject {
            name: &self.name,
            what: &self.what,
            unit: self.unit,
            rate: matches!(self.kind, Kind::Server(_)),
        };
        let mut ways = WAYS.to_vec();
        match &self.kind {
            Kind::Missing(how) => {
                // The table has a row that says so, so that a missing figure is seen.
                let refused = |_| Some(how.clone());
                let nothing = |_| bail!("not installed");
                paired::run(&subject, &[Way::Untraced], 1, refused, nothing)
            }
            Kind::Program(program) => {
                if program.python {
                    ways.push(NO_PYTHON);
                }
                if means.peers {
                    let peers = peers::for_program(program.python);
                    ways.extend(peers.into_iter().map(Way::Peer));
                }
                let missing = |way| match way {
                    Way::Peer(peer) => peer.missing(&program.program),
                    _ => None,
                };
                paired::run(&subject, &ways, means.rounds, missing, |way| {
                    program.measure(way, means)
                })
            }
            Kind::Server(server) => server.measure(&subject, &mut ways, means),
        }
    }
}

impl Program {
    pub(super) fn measure(&self, way: Way, means: &Means) -> Result<Measured> {
        let of = |arguments: &[String]| arguments.to_vec();
        let arguments = match (way, &self.untraced) {
            (Way::Untraced, Some(untraced)) => of(untraced),
            _ => of(&self.arguments),
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match way {
            Way::Untraced => {
                let mut target = Target::start(&self.program, &arguments)?;
                target.go()?;
                Ok(Measured::alone(parse_figure(&target.finish()?)?))
            }
            Way::Record(options) => {
                let mut target = Target::start(&self.program, &arguments)?;
                let file = means.folder.join("bench.mtr");
                let collector = Collector::attach(means.memtrace, target.id(), &file, options)?;
                target.go()?;
                let value = parse_figure(&target.finish()?)?;
                Measured::traced(value, way, &collector.finish()?)
            }
            Way::Peer(peer) => {
                let lines = peer.measure(&self.program, &arguments, means.folder)?;
                Ok(Measured::alone(parse_figure(&lines)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["pairs-d4-t1", "pairs-d16-t1", "redis", "python-json"];

    fn chosen(names: &[&str]) -> Result<Vec<&'static str>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        choose(&NAMES, &names)
    }

    #[test]
    fn families_and_names_choose_workloads() {
        assert_eq!(chosen(&["pairs"]).unwrap(), ["pairs-d4-t1", "pairs-d16-t1"]);
        assert_eq!(
            chosen(&["redis", "pairs-d4"]).unwrap(),
            ["pairs-d4-t1", "redis"]
        );
        assert_eq!(chosen(&[]).unwrap(), NAMES);
    }

    #[test]
    fn part_of_a_word_chooses_nothing() {
        let error = chosen(&["redis", "pair"]).unwrap_err().to_string();
        assert!(
            error.starts_with("no workload `pair`; expected one of: pairs-d4-t1, "),
            "{error}"
        );
    }
}
