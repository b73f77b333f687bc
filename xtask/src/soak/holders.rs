//! `cargo xtask soak --holders`: searches programs that replace thousands of containers and nodes a second. Every answer
//! must be true and confirmed by a search of the stopped program, and every stop short.

use super::judge;
use crate::{
    command::{self, build_memtrace, root, target_dir},
    targets::{building, running::Running},
};
use anyhow::{Context, Error, Result, ensure};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// A program of `tests/targets/`. Its first line ends with what to search for.
struct Program {
    name: &'static str,
    source: &'static str,
    argument: &'static str,
    /// What keeps everything that is searched for: a part of each right path.
    keeper: &'static str,
}

static PROGRAMS: [Program; 5] = [
    Program {
        name: "Python",
        source: "python/mutating.py",
        argument: "",
        keeper: "__main__.cache['sessions'][i]",
    },
    Program {
        name: "PyTorch",
        source: "searched/tensors.py",
        argument: "",
        keeper: "__main__.history['losses'][i]",
    },
    Program {
        name: "C++ map",
        source: "searched/nodes.cc",
        argument: "map",
        keeper: "nodes: sessions",
    },
    Program {
        name: "C++ list",
        source: "searched/nodes.cc",
        argument: "list",
        keeper: "nodes: jobs",
    },
    // The objects of scripts are in a heap that memtrace does not look into.
    Program {
        name: "Node",
        source: "searched/buffers.js",
        argument: "",
        keeper: "Node.js (V8)",
    },
];

/// Least share of the blocks that must have a path, and the longest stop allowed.
const FOUND: f64 = 0.95;
const LONGEST_STOP: Duration = Duration::from_millis(5);

/// Searches of the stopped program to confirm a path: one that is stopped in the middle of a change has another way then.
const CONFIRMATIONS: usize = 3;

/// Which programs to search.
pub(super) struct Selection<'a> {
    /// By name.
    pub(super) only: Option<&'a str>,
    pub(super) pythons: &'a [PathBuf],
    /// One with PyTorch.
    pub(super) torch: Option<&'a Path>,
}

impl Selection<'_> {
    fn programs(&self) -> impl Iterator<Item = &'static Program> {
        let is_selected = |program: &&Program| self.only.is_none_or(|only| program.name == only);
        PROGRAMS.iter().filter(is_selected)
    }

    /// The interpreters for a program; `None` in a list: it needs none.
    fn interpreters(&self, program: &Program) -> Vec<Option<PathBuf>> {
        match program.name {
            "Python" => self.pythons.iter().cloned().map(Some).collect(),
            "PyTorch" => self
                .torch
                .map(|torch| Some(torch.into()))
                .into_iter()
                .collect(),
            "Node" => command::find("node").map(Some).into_iter().collect(),
            _ => vec![None],
        }
    }
}

/// The results of searching one process.
#[derive(Default)]
struct Outcome {
    /// Addresses and types that were searched for, and those with the right path.
    sought: u32,
    found: u32,
    wrong: Vec<String>,
    /// Why searches failed.
    errors: Vec<String>,
    /// The longest of each search.
    stops: Vec<Duration>,
}

/// Searches each program this many times, and as often while it is stopped.
///
/// # Errors
/// When a program cannot be started, or a bound does not hold.
pub(super) fn run(runs: u32, selection: &Selection<'_>, debug: bool) -> Result<()> {
    command::need_root("a search of another process")?;
    let memtrace = build_memtrace(!debug)?;
    let folder = target_dir().join("soak");
    fs::create_dir_all(&folder)?;
    let mut judged = Vec::new();
    let mut sum = Outcome::default();
    for program in selection.programs() {
        let found = selection.interpreters(program);
        if found.is_empty() {
            println!(
                "{}: skipped: there is no interpreter (`--torch`, apt-get install nodejs)",
                program.name
            );
        }
        for interpreter in found {
            let name = match &interpreter {
                Some(interpreter) => format!("{} ({})", program.name, interpreter.display()),
                None => program.name.to_owned(),
            };
            let command = program.command(&folder, interpreter.as_deref())?;
            let outcome = search(&memtrace, program, command, runs)?;
            outcome.print(&name);
            judged.extend(outcome.judged(&name));
            sum.add_all(outcome);
        }
    }
    ensure!(!judged.is_empty(), "no program was searched");
    sum.print("all");
    judge(&judged)
}

impl Program {
    /// Builds it.
    fn command(&self, folder: &Path, interpreter: Option<&Path>) -> Result<Command> {
        let source = root().join("tests/targets").join(self.source);
        let mut command = match interpreter {
            Some(interpreter) => {
                let mut command = Command::new(interpreter);
                command.arg(&source);
                command
            }
            None => {
                building::build(&source, folder, Path::new(""))?;
                Command::new(building::binary(&source, folder))
            }
        };
        if self.name == "Node" {
            let library = folder.join("address.so");
            let source = source.with_file_name("address.c");
            command::compile_c_with(&["-shared", "-fPIC"], &source, &library)?;
            command.arg(library);
        }
        if !self.argument.is_empty() {
            command.arg(self.argument);
        }
        command.stdin(Stdio::piped());
        Ok(command)
    }

    /// The part of a path that stands in the source of the program: without indices, and without words in blocks.
    fn named(&self, way: &Value) -> String {
        let steps = way["path"].as_array().into_iter().flatten();
        let names = steps.filter_map(|step| step["name"].as_str());
        let named = names.filter(|name| !name.starts_with('+')).map(|name| {
            match name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'))
            {
                Some(index) if index.parse::<u64>().is_ok() => "[i]",
                _ => name,
            }
        });
        let path: String = named.collect();
        match path.contains(self.keeper) {
            true => self.keeper.to_owned(),
            false => format!("{}: {path}", way["how"]),
        }
    }

    /// For each address or type that is sought, the ways in which it is held.
    fn ways(&self, answer: &Value) -> Result<Vec<BTreeSet<String>>> {
        let sought = answer["sought"]
            .as_array()
            .context("no `sought` in the answer")?;
        let ways = sought.iter().map(|sought| {
            let ways = sought["ways"].as_array().into_iter().flatten();
            ways.map(|way| self.named(way)).collect()
        });
        Ok(ways.collect())
    }
}

fn search(memtrace: &Path, program: &Program, mut command: Command, runs: u32) -> Result<Outcome> {
    let target = Running::start(&mut command, program.name)?;
    let mut words = target.line().split_whitespace();
    ensure!(
        words.next() == Some("ready"),
        "{} did not begin",
        program.name
    );
    let sought: Vec<&str> = words.collect();
    let ask = |more: &[&str]| -> Result<Result<Value, String>> {
        let answer = Command::new(memtrace)
            .args(["holders", "--format=json", "-p", &target.id().to_string()])
            .args(sought.iter().chain(more))
            .output()?;
        if !answer.status.success() {
            return Ok(Err(String::from_utf8_lossy(&answer.stderr)
                .trim()
                .to_owned()));
        }
        Ok(Ok(serde_json::from_slice(&answer.stdout)?))
    };
    let mut outcome = Outcome::default();
    for _ in 0..runs {
        let running = match ask(&[])? {
            Ok(running) => running,
            Err(error) => {
                outcome.sought += sought.len() as u32;
                outcome.errors.push(error);
                continue;
            }
        };
        let ways = program.ways(&running)?;
        let mut confirmed = vec![BTreeSet::new(); ways.len()];
        for _ in 0..CONFIRMATIONS {
            let stopped = ask(&["--stop"])?.map_err(Error::msg)?;
            for (known, ways) in confirmed.iter_mut().zip(program.ways(&stopped)?) {
                known.extend(ways);
            }
            if ways
                .iter()
                .zip(&confirmed)
                .all(|(ways, known)| ways.is_subset(known))
            {
                break;
            }
        }
        outcome.add(program, &running, &confirmed)?;
    }
    Ok(outcome)
}

impl Outcome {
    /// `confirmed`: the ways that searches of the stopped program found.
    fn add(
        &mut self,
        program: &Program,
        running: &Value,
        confirmed: &[BTreeSet<String>],
    ) -> Result<()> {
        let stop = running["longest_stop_ns"].as_u64();
        let stop = stop.context("no `longest_stop_ns` in the answer")?;
        self.stops.push(Duration::from_nanos(stop));
        for (ways, confirmed) in program.ways(running)?.iter().zip(confirmed) {
            self.sought += 1;
            self.found += u32::from(ways.contains(program.keeper));
            for way in ways {
                if way != program.keeper {
                    self.wrong.push(way.clone());
                } else if !confirmed.contains(way) {
                    self.wrong.push(format!("{way}, but stopped {confirmed:?}"));
                }
            }
        }
        Ok(())
    }

    fn add_all(&mut self, other: Self) {
        self.sought += other.sought;
        self.found += other.found;
        self.wrong.extend(other.wrong);
        self.errors.extend(other.errors);
        self.stops.extend(other.stops);
    }

    /// Whether each bound holds.
    fn judged(&self, name: &str) -> [(bool, String); 3] {
        let longest = self.stops.iter().max().copied().unwrap_or_default();
        [
            (self.wrong.is_empty(), format!("{name}: no wrong path")),
            (
                f64::from(self.found) >= FOUND * f64::from(self.sought.max(1)),
                format!("{name}: found at least {:.0} %", FOUND * 100.0),
            ),
            (
                longest <= LONGEST_STOP,
                format!("{name}: stopped for at most {LONGEST_STOP:?}"),
            ),
        ]
    }

    fn print(&self, name: &str) {
        let mut stops = self.stops.clone();
        stops.sort_unstable();
        println!(
            "{name}: {} searches: found {} of {}, {} wrong, stopped for {:.1?} at most (median {:.1?})",
            stops.len(),
            self.found,
            self.sought,
            self.wrong.len(),
            stops.last().copied().unwrap_or_default(),
            stops.get(stops.len() / 2).copied().unwrap_or_default(),
        );
        for said in self.wrong.iter().chain(&self.errors) {
            println!("  {said}");
        }
    }
}
