//! A program that runs beside memtrace, and ends with whoever started it.

use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A program that is killed when this is dropped.
pub(super) struct Running {
    child: Child,
    /// Kept open: the program may print more.
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program and waits for the line that it prints once it is warm.
    ///
    /// # Errors
    /// It cannot be started, or prints nothing.
    pub(super) fn start(command: &mut Command, name: &str) -> Result<Running> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut running = Running {
            child,
            stdout: BufReader::new(stdout),
        };
        let mut line = String::new();
        running.stdout.read_line(&mut line)?;
        if line.is_empty() {
            bail!("{name} ended before it was warm");
        }
        Ok(running)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
