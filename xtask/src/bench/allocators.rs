//! Compares allocators that replace glibc's: their functions have other probes.

use super::{
    Output,
    figures::{median, times},
    native::Pairs,
    paired::{EMPTY, Measured, Way, turns},
    table::{Table, column},
    workloads::{Means, Program},
};
use crate::command::{self, find};
use anyhow::{Context, Result};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Preloaded libraries (`memtrace probes --file` prints the instructions probed in them), and their packages.
const PRELOADED: [[&str; 3]; 3] = [
    ["jemalloc", "libjemalloc.so.2", "libjemalloc2"],
    [
        "tcmalloc",
        "libtcmalloc_minimal.so.4",
        "libtcmalloc-minimal4",
    ],
    ["mimalloc", "libmimalloc.so.2", "libmimalloc2.0"],
];

const WAYS: [Way; 3] = [Way::Untraced, EMPTY, Way::Record(&[])];

/// Frames below the thread's first.
const DEPTH: u32 = 16;

/// An allocator and its measurements: for each of [`WAYS`] those of all rounds.
struct Allocator {
    name: &'static str,
    program: Program,
    measured: [Vec<Measured>; WAYS.len()],
}

/// Measures the same work with each of them, a table for each work.
pub(super) fn run(means: &Means, output: &mut Output) -> Result<()> {
    let pairs = Pairs::build(means)?;
    let works = [
        ("pairs", pairs.run(DEPTH, 1), "malloc(64) and free"),
        ("realloc", pairs.realloc(), "malloc, 7 × realloc and free"),
    ];
    let libraries = command::output(Command::new(ldconfig()).arg("-p"))?;
    for (name, program, what) in &works {
        output.table(&measure(means, &libraries, name, program, what)?);
    }
    Ok(())
}

/// Often not in the search path of a user who became root.
fn ldconfig() -> PathBuf {
    find("ldconfig").unwrap_or_else(|| PathBuf::from("/sbin/ldconfig"))
}

fn measure(
    means: &Means,
    libraries: &str,
    name: &str,
    program: &Program,
    what: &str,
) -> Result<Table> {
    let columns = [
        column("untraced_ns", "untraced, ns", 0),
        column("empty_ns", "empty probes, ns", 0),
        column("memtrace_ns", "memtrace, ns", 0),
        column("times_empty", "× empty probes", 2),
        column("times_glibc", "× glibc", 2),
        column("lost", "events lost", 0),
    ];
    let rounds = means.rounds;
    let title = format!("{what}, by allocator, median of {rounds} rounds");
    let mut table = Table::new(&format!("allocators-{name}"), title, &columns);
    let mut all = vec![Allocator::new("glibc", program.clone())];
    for [name, library, package] in PRELOADED {
        match path(libraries, library) {
            Some(path) => all.push(Allocator::new(name, preloaded(program, path)?)),
            None => table.remark(name, format!("not installed: `apt-get install {package}`")),
        }
    }
    for round in 0..rounds {
        for index in turns(round, all.len() * WAYS.len()) {
            let (of, way) = (index / WAYS.len(), index % WAYS.len());
            let allocator = &mut all[of];
            let figure = allocator.program.measure(WAYS[way], means);
            let figure = figure.with_context(|| format!("allocator {}", allocator.name))?;
            allocator.measured[way].push(figure);
        }
        eprintln!("allocators, {name}: round {} of {rounds} done", round + 1);
    }
    let values = |measured: &[Measured]| measured.iter().map(|one| one.value).collect::<Vec<_>>();
    let glibc = values(&all[0].measured[2]);
    for (index, allocator) in all.iter().enumerate() {
        let lost: u64 = allocator.measured[2].iter().map(Measured::lost).sum();
        let [mut untraced, mut empty, mut traced] =
            allocator.measured.each_ref().map(|it| values(it));
        let times_empty = times(&traced, &empty, false);
        let times_glibc = times(&traced, &glibc, false).filter(|_| index > 0);
        table.row(
            allocator.name,
            &[
                Some(median(&mut untraced)),
                Some(median(&mut empty)),
                Some(median(&mut traced)),
                times_empty,
                times_glibc,
                Some(lost as f64),
            ],
        );
    }
    Ok(table)
}

impl Allocator {
    fn new(name: &'static str, program: Program) -> Allocator {
        Allocator {
            name,
            program,
            measured: Default::default(),
        }
    }
}

/// The program with this library before all others.
fn preloaded(program: &Program, library: &Path) -> Result<Program> {
    let env = find("env").context("no program `env`")?;
    let with = |arguments: &[String]| {
        let own = [
            format!("LD_PRELOAD={}", library.display()),
            program.program.display().to_string(),
        ];
        [&own, arguments].concat()
    };
    Ok(Program {
        program: env,
        arguments: with(&program.arguments),
        untraced: program.untraced.as_deref().map(with),
        python: program.python,
    })
}

/// Where the linker finds a library, in the output of `ldconfig -p`: `NAME (KIND) => PATH`.
fn path<'a>(libraries: &'a str, name: &str) -> Option<&'a Path> {
    let line = libraries
        .lines()
        .find(|line| line.trim_start().split(' ').next() == Some(name))?;
    line.rsplit_once("=> ").map(|(_, path)| Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_their_whole_name() {
        let libraries = "2 libs found in cache `/etc/ld.so.cache'\n\
            \tlibjemalloc.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libjemalloc.so.2\n\
            \tlibmimalloc.so.2 (libc6,x86-64) => /lib/libmimalloc.so.2\n";
        let jemalloc = Path::new("/lib/x86_64-linux-gnu/libjemalloc.so.2");
        assert_eq!(path(libraries, "libjemalloc.so.2"), Some(jemalloc));
        assert_eq!(path(libraries, "libmimalloc.so"), None);
    }

    #[test]
    fn a_preloaded_program_keeps_its_arguments() {
        let program = Program {
            program: "/tmp/pairs".into(),
            arguments: vec!["run".to_owned(), "3".to_owned()],
            untraced: None,
            python: false,
        };
        let preloaded = preloaded(&program, Path::new("/lib/x.so")).unwrap();
        assert_eq!(
            preloaded.arguments,
            ["LD_PRELOAD=/lib/x.so", "/tmp/pairs", "run", "3"]
        );
    }
}
