//! A program that runs beside memtrace, and ends with the process that started it.

use anyhow::{Context, Result, bail};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A program that is killed, with its descendants, when this is dropped.
pub(crate) struct Running {
    child: Child,
    /// Kept open: the program may print more.
    stdout: BufReader<ChildStdout>,
    /// The line that says that it is warm.
    line: String,
}

impl Running {
    /// Starts a program and waits for the line that it prints once it is warm.
    ///
    /// # Errors
    /// It cannot be started, or prints nothing.
    pub(crate) fn start(command: &mut Command, name: &str) -> Result<Running> {
        let mut running = Running::spawn(command, name)?;
        running.stdout.read_line(&mut running.line)?;
        if running.line.is_empty() {
            bail!("{name} ended before it was warm");
        }
        Ok(running)
    }

    /// Starts a program.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn spawn(command: &mut Command, name: &str) -> Result<Running> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("no standard output")?;
        Ok(Running {
            child,
            stdout: BufReader::new(stdout),
            line: String::new(),
        })
    }

    /// What it printed once it was warm.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The program and its descendants, parents first.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut found = vec![self.id()];
        let mut next = 0;
        while let Some(&process) = found.get(next) {
            found.extend(children(process));
            next += 1;
        }
        found
    }

    /// Kills the descendants, youngest first.
    pub(crate) fn end_descendants(&self) {
        for &process in self.processes()[1..].iter().rev() {
            // SAFETY: kill takes two numbers. One that has ended cannot be killed, and need not be.
            unsafe { libc::kill(process.cast_signed(), libc::SIGKILL) };
        }
    }
}

/// The processes that a process's threads started: none if it has ended.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return vec![];
    };
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_descendants();
        // One that has ended by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
