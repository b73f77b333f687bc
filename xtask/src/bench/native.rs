//! Workloads in C and C++.

use super::workloads::{Kind, Means, Program, Workload};
use crate::command::{self, compile_c_with, find, root};
use anyhow::Result;
use std::{path::PathBuf, process::Command};

/// Frames below a thread's first, and threads.
const DEPTHS: [u32; 3] = [4, 16, 64];
const THREADS: [u32; 3] = [1, 2, 4];

/// Numbers of forked processes that wait. The kernel goes through the probes of all of them at each hit.
const CHILDREN: [u32; 3] = [1, 8, 32];

/// Untraced, a pair takes less than a hundredth of the time.
const MORE_UNTRACED: u64 = 10;

/// A chain is nine calls, a pair two.
const PAIRS_PER_CHAIN: u64 = 5;

/// Containers: a subcommand of `xtask/bench/containers.cpp`, and its description.
const CONTAINERS: [(&str, &str); 2] = [
    ("map", "C++, a map of strings that grows and shrinks"),
    ("strings", "C++, strings that grow"),
];

/// `xtask/bench/pairs.c`, compiled.
pub(super) struct Pairs {
    program: PathBuf,
    /// Pairs of malloc and free in a run.
    count: u64,
}

impl Pairs {
    pub(super) fn build(means: &Means) -> Result<Pairs> {
        let program = means.folder.join("pairs-O2");
        let source = root().join("xtask/bench/pairs.c");
        compile_c_with(&["-O2", "-pthread"], &source, &program)?;
        Ok(Pairs {
            program,
            count: means.pairs,
        })
    }

    /// Pairs, `depth` frames below each thread's first.
    pub(super) fn run(&self, depth: u32, threads: u32) -> Program {
        self.with_children(depth, threads, 0)
    }

    /// The same, while so many forked children wait.
    fn with_children(&self, depth: u32, threads: u32, children: u32) -> Program {
        let rest = [depth, threads, children].map(|count| count.to_string());
        self.program("run", self.count, &rest)
    }

    /// Chains of realloc.
    pub(super) fn realloc(&self) -> Program {
        self.program("realloc", self.count / PAIRS_PER_CHAIN + 1, &[])
    }

    fn program(&self, first: &str, count: u64, rest: &[String]) -> Program {
        let arguments = |count: u64| {
            let mut arguments = vec![first.to_owned(), count.to_string()];
            arguments.extend_from_slice(rest);
            arguments
        };
        Program {
            program: self.program.clone(),
            arguments: arguments(count),
            untraced: Some(arguments(count * MORE_UNTRACED)),
            python: false,
        }
    }
}

/// Builds their programs.
pub(super) fn workloads(means: &Means) -> Result<Vec<Workload>> {
    let pairs = Pairs::build(means)?;
    let mut all = Vec::new();
    for threads in THREADS {
        for depth in DEPTHS {
            let plural = if threads == 1 { "" } else { "s" };
            all.push(Workload {
                name: format!("pairs-d{depth}-t{threads}"),
                what: format!("malloc(64) and free, {depth} frames deep, {threads} thread{plural}"),
                unit: "ns per pair of a thread",
                kind: Kind::Program(pairs.run(depth, threads)),
            });
        }
    }
    for children in CHILDREN {
        all.push(Workload {
            name: format!("children-{children}"),
            what: format!(
                "malloc(64) and free, 4 frames deep, while {children} forked children wait"
            ),
            unit: "ns per pair",
            kind: Kind::Program(pairs.with_children(4, 1, children)),
        });
    }
    all.push(Workload {
        name: "realloc".to_owned(),
        what: "malloc, 7 × realloc and free".to_owned(),
        unit: "ns per chain",
        kind: Kind::Program(pairs.realloc()),
    });
    let containers = means.folder.join("containers");
    let compiler = find("c++");
    if let Some(compiler) = &compiler {
        let mut compile = Command::new(compiler);
        compile.args(["-g", "-O2", "-o"]).arg(&containers);
        command::run(compile.arg(root().join("xtask/bench/containers.cpp")))?;
    }
    for (name, what) in CONTAINERS {
        let kind = match compiler {
            Some(_) => Kind::Program(Program {
                program: containers.clone(),
                arguments: vec![name.to_owned(), means.pairs.to_string()],
                untraced: None,
                python: false,
            }),
            None => Kind::Missing("not installed: `apt-get install g++`".to_owned()),
        };
        all.push(Workload {
            name: format!("containers-{name}"),
            what: what.to_owned(),
            unit: "ns per operation",
            kind,
        });
    }
    Ok(all)
}
