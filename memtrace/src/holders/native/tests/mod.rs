//! Real processes that print the addresses of their memory.

pub(super) mod fixture;
mod fuzz;
mod heap;
mod roots;
mod stop;

use super::*;
use crate::holders::memory::Live;
use crate::process::maps::{self, Mapping};
use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};
use tempfile::TempDir;

/// A running program.
pub(super) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl Program {
    /// Compiles and starts it.
    pub(super) fn start(
        compiler: &str,
        source: &str,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let extension = if compiler == "g++" { "cc" } else { "c" };
        let file = folder.path().join(format!("target.{extension}"));
        let program = folder.path().join("target");
        fs::write(&file, source).unwrap();
        let compiled = Command::new(compiler)
            .args(["-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(&file)
            .args(options)
            .status()
            .unwrap();
        assert!(compiled.success());
        let mut child = Command::new(program)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            _folder: folder,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output until it is ready.
    pub(super) fn until_ready(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "{lines:?}");
            match line.trim_end() {
                "ready" => return lines,
                line => lines.push(line.to_owned()),
            }
        }
    }

    /// Ends it; returns its last output.
    pub(super) fn finish(&mut self) -> Vec<String> {
        self.input.take().unwrap().write_all(b"x").unwrap();
        (&mut self.output).lines().map(Result::unwrap).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `target.cc`, and its memory as seen from outside.
pub(super) struct Target {
    pub(super) program: Program,
    pub(super) addresses: HashMap<String, Vec<u64>>,
    pub(super) memory: Live,
    pub(super) mappings: Vec<Mapping>,
    pub(super) modules: Modules,
    pub(super) blocks: Blocks,
    pub(super) taken: Vec<std::ops::Range<u64>>,
}

impl Target {
    pub(super) fn start(options: &[&str]) -> Self {
        Self::start_with(options, &[])
    }

    pub(super) fn start_with(options: &[&str], environment: &[(&str, &str)]) -> Self {
        let source = include_str!("target.cc");
        let mut program = Program::start("g++", source, options, environment);
        let mut addresses: HashMap<String, Vec<u64>> = HashMap::new();
        for line in program.until_ready() {
            let (name, address) = line.split_once(" 0x").unwrap();
            let address = u64::from_str_radix(address, 16).unwrap();
            addresses.entry(name.into()).or_default().push(address);
        }
        let memory = Live::new(program.pid());
        let mappings = maps::read(program.pid()).unwrap();
        let modules = Modules::new(program.pid(), &mappings);
        let mut builder = Builder::default();
        let taken = find_in_glibc(&memory, &mappings, &modules, &[], &mut builder);
        Self {
            program,
            addresses,
            memory,
            mappings,
            modules,
            blocks: builder.finish(),
            taken,
        }
    }

    pub(super) fn address(&self, name: &str) -> u64 {
        self.addresses[name][0]
    }

    pub(super) fn roots(&self) -> Roots {
        let pid = self.program.pid();
        Roots::new(
            pid,
            &Threads::Running(pid),
            &self.memory,
            &self.mappings,
            &self.modules,
            &self.blocks,
            &self.taken,
        )
    }
}
