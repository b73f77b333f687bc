//! Recordings made for a client: `memtrace record` beside the server, one at a time. A client that goes away ends its
//! recording; the recorded process is not affected.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// Seconds of a recording at most.
pub(super) const LONGEST: u64 = 600;

/// Lines of its messages that an answer has.
const LINES: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The pid of `memtrace record`, while it is not reaped.
    running: Option<i32>,
    is_closed: bool,
}

/// Arguments of the tool.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pid: u32,
    seconds: u64,
    output: Option<PathBuf>,
    heap: Option<bool>,
}

impl Recorder {
    /// Records, and returns when the file is complete.
    pub(super) fn record(&self, of: &Request) -> anyhow::Result<(String, Value)> {
        ensure!(
            (1..=LONGEST).contains(&of.seconds),
            "`seconds` is {}, expected 1 to {LONGEST}",
            of.seconds
        );
        let output = match &of.output {
            Some(output) => std::path::absolute(output)?,
            None => std::path::absolute(format!("memtrace-{}.mtr", of.pid))?,
        };
        ensure!(
            output.extension().is_some_and(|end| end == "mtr"),
            "`{}` does not end in `.mtr`, as recordings do",
            output.display()
        );
        ensure!(
            !output.exists(),
            "`{}` exists: name another file as `output`",
            output.display()
        );
        let program = std::env::current_exe().context("cannot find memtrace's own program")?;
        let mut command = Command::new(program);
        command.args(["record", "-p", &of.pid.to_string()]);
        command
            .args(["-d", &format!("{}s", of.seconds), "-o"])
            .arg(&output);
        if of.heap == Some(false) {
            command.arg("--no-heap");
        }
        // Standard output belongs to the protocol.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = {
            let mut state = self.state();
            ensure!(!state.is_closed, "the server ends: nothing was recorded");
            let child = command.spawn().context("cannot start `memtrace record`")?;
            state.running = Some(child.id().cast_signed());
            child
        };
        let ended = self.wait(child)?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let lines: Vec<&str> = said
            .lines()
            .map(|line| line.trim_start_matches("memtrace: "))
            .collect();
        let lines = lines[lines.len().saturating_sub(LINES)..].join("\n");
        if !ended.status.success() {
            bail!("nothing was recorded: {lines}");
        }
        let file = output.display().to_string();
        let text = format!("{lines}\nnext: call `diagnose` with this file: {file}");
        Ok((text, json!({ "file": file, "messages": lines })))
    }

    /// The child's messages and its end. It is reaped under the lock, so that no signal meets another process.
    fn wait(&self, mut child: std::process::Child) -> anyhow::Result<std::process::Output> {
        let mut stderr = Vec::new();
        if let Some(mut messages) = child.stderr.take() {
            std::io::Read::read_to_end(&mut messages, &mut stderr)
                .context("cannot read the messages of `memtrace record`")?;
        }
        let mut state = self.state();
        state.running = None;
        let status = child.wait().context("cannot wait for `memtrace record`")?;
        Ok(std::process::Output {
            status,
            stdout: Vec::new(),
            stderr,
        })
    }

    /// Ends the recording that runs, as Ctrl-C does.
    pub(super) fn interrupt(&self) {
        interrupt(&self.state());
    }

    /// Ends the recording that runs, and refuses others.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        interrupt(&state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interrupt(state: &State) {
    if let Some(pid) = state.running {
        // SAFETY: no memory is involved; the child is not reaped while the state is locked.
        unsafe { libc::kill(pid, libc::SIGINT) };
    }
}
