//! Against the interpreters of this machine, and against memory that makes no sense.

mod fuzz;
mod live;
mod recorded;
mod torn;
mod walk;

use super::{
    super::memory::{Cached, Live},
    *,
};
use crate::process::maps;
use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Holds an object in every way there is.
const KINDS: &str = include_str!("kinds.py");

const DISTRIBUTION: &str = "/usr/bin/python3";

/// Interpreters of supported versions: the distribution's, those of pyenv, and more from a variable.
fn interpreters() -> Vec<PathBuf> {
    let pyenv = env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = pyenv.and_then(|path| fs::read_dir(path).ok());
    let mut found: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin/python3")))
        .filter(|path| path.exists())
        .collect();
    found.push(DISTRIBUTION.into());
    found.extend(
        env::var_os("MEMTRACE_PYTHONS")
            .iter()
            .flat_map(env::split_paths),
    );
    found.retain(|path| {
        let path = path.canonicalize().unwrap();
        let minor = path.to_str().unwrap().rsplit_once("python3.").unwrap().1;
        (9..15).contains(&minor.parse().unwrap())
    });
    found
}

/// A script that runs until it is dropped.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn start(interpreter: &PathBuf, text: &str) -> Script {
        let mut child = Command::new(interpreter)
            .args(["-I", "-c", text])
            .env("PYTHONUTF8", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Script {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.truncate(line.trim_end().len());
        line
    }

    /// The number of lines is in the first one.
    fn lines(&mut self) -> Vec<String> {
        let count: usize = self.line().parse().unwrap();
        (0..count).map(|_| self.line()).collect()
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.line()
    }

    fn memory(&self) -> Cached<Live> {
        Cached::new(Live::new(self.child.id()))
    }

    fn python(&self, memory: &dyn Memory) -> Python {
        let mappings = maps::read(self.child.id()).unwrap();
        match Python::open(self.child.id(), &mappings, memory) {
            Ok(python) => python.unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
