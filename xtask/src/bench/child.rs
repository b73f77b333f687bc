//! The two processes of a measurement: the target, which waits for a byte on stdin before it works,
//! and the collector, which announces on stderr when it records.

use crate::command;
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs::File,
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
};

/// Beginning of memtrace's line when the probes are in place.
const RECORDING: &str = "memtrace: recording";

/// Killed when dropped before its end.
pub(crate) struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Target {
    /// Starts it and waits until it reports that it is ready.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Result<Target> {
        let mut target = Target::spawn(Command::new(program).args(arguments))?;
        target.expect("ready")?;
        Ok(target)
    }

    /// Starts it with another tool, whose own lines are skipped, and whose messages go into a file.
    pub(super) fn start_with(tool: &mut Command, messages: &Path) -> Result<Target> {
        let mut target = Target::spawn(tool.stderr(File::create(messages)?))?;
        while target.line()? != "ready" {}
        Ok(target)
    }

    fn spawn(command: &mut Command) -> Result<Target> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(command)))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the target has no stdout")?;
        let stdout = BufReader::new(stdout).lines();
        Ok(Target {
            child,
            stdin,
            stdout,
        })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.stdout.next().context("the target ended early")??)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it work.
    pub(crate) fn go(&mut self) -> Result<()> {
        let stdin = self
            .stdin
            .as_mut()
            .context("the target's stdin is closed")?;
        stdin.write_all(b"\n")?;
        stdin.flush()?;
        Ok(())
    }

    /// Writes a line to it and waits for its answer.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String> {
        let stdin = self
            .stdin
            .as_mut()
            .context("the target's stdin is closed")?;
        writeln!(stdin, "{line}")?;
        stdin.flush()?;
        self.line()
    }

    /// Waits for its next line.
    pub(super) fn next(&mut self) -> Result<()> {
        self.line().map(drop)
    }

    /// Waits for one line.
    pub(crate) fn expect(&mut self, expected: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(
            line == expected,
            "the target printed `{line}`, expected `{expected}`"
        );
        Ok(())
    }

    /// Closes its stdin, waits for its end and returns the lines it printed since.
    pub(crate) fn finish(mut self) -> Result<Vec<String>> {
        self.stdin = None;
        let lines = self.stdout.by_ref().collect::<Result<Vec<_>, _>>()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the target failed: {status}");
        Ok(lines)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Both fail on a target that has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `memtrace record`. Interrupted when dropped before its end.
pub(crate) struct Collector {
    child: Option<Child>,
    /// Processor time that the start took, seconds.
    start_s: f64,
    stderr: Lines<BufReader<ChildStderr>>,
}

/// Results of an ended process.
pub(crate) struct Ended {
    /// User and system time since it recorded, seconds.
    pub(crate) cpu_s: f64,
    /// The lines after the one that announced the recording.
    pub(crate) stderr: Vec<String>,
}

impl Ended {
    /// Events recorded and lost, from memtrace's last figures.
    pub(crate) fn events(&self) -> Result<(u64, u64)> {
        events(self.stderr.iter().map(String::as_str))
    }
}

/// Events recorded and lost, from memtrace's lines.
pub(super) fn events<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<(u64, u64)> {
    let events = lines.into_iter().find_map(parse_events);
    events.context("memtrace printed no line `memtrace: N events recorded, M lost`")
}

/// `memtrace: N events recorded, M lost`, where N can have commas, and more can follow.
fn parse_events(line: &str) -> Option<(u64, u64)> {
    let line = line.strip_prefix("memtrace: ")?;
    let number = |text: &str| text.replace(',', "").parse().ok();
    let (recorded, rest) = match line.strip_prefix("nothing was allocated or freed meanwhile, ") {
        Some(rest) => (0, rest),
        None => {
            let (recorded, rest) = line.split_once(" recorded, ")?;
            (number(recorded.split_once(" event")?.0)?, rest)
        }
    };
    Some((recorded, number(rest.split_once(" lost")?.0)?))
}

impl Collector {
    /// Attaches to a process and waits until it records.
    pub(crate) fn attach(
        memtrace: &Path,
        pid: u32,
        file: &Path,
        options: &[&str],
    ) -> Result<Collector> {
        let mut child = Command::new(memtrace)
            .args(["record", "--force", "-p", &pid.to_string(), "-o"])
            .arg(file)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", memtrace.display()))?;
        let stderr = child.stderr.take().context("memtrace has no stderr")?;
        let mut stderr = BufReader::new(stderr).lines();
        let mut said = Vec::new();
        loop {
            match stderr.next().transpose()? {
                Some(line) if line.starts_with(RECORDING) => break,
                Some(line) => said.push(line),
                None => {
                    child.wait()?;
                    bail!("memtrace did not start recording: {}", said.join(" / "));
                }
            }
        }
        let mut collector = Collector {
            child: Some(child),
            start_s: 0.0,
            stderr,
        };
        collector.start_s = cpu_s(collector.id()?)?;
        Ok(collector)
    }

    pub(crate) fn id(&self) -> Result<u32> {
        let child = self.child.as_ref();
        Ok(child.context("memtrace was already waited for")?.id())
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn interrupt(mut self) -> Result<Ended> {
        self.signal();
        self.wait()
    }

    /// Waits for its end, which comes with the target's.
    pub(crate) fn finish(mut self) -> Result<Ended> {
        self.wait()
    }

    fn signal(&self) {
        if let Some(child) = &self.child {
            // SAFETY: a plain system call; the child has not been waited for, so the id is its own.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
        }
    }

    fn wait(&mut self) -> Result<Ended> {
        let stderr = self.stderr.by_ref().collect::<Result<Vec<_>, _>>()?;
        let child = self
            .child
            .take()
            .context("memtrace was already waited for")?;
        let ended = command::wait(&child)?;
        ensure!(
            ended.succeeded,
            "memtrace failed (wait status {}): {}",
            ended.wait_status,
            stderr.join(" / ")
        );
        Ok(Ended {
            cpu_s: ended.cpu_s - self.start_s,
            stderr,
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.signal();
        if let Some(child) = &mut self.child {
            // Nothing can be done about an error here; the one that led here is reported.
            let _ = child.wait();
        }
    }
}

/// Processor time that a process has had so far, without children's, seconds.
fn cpu_s(pid: u32) -> Result<f64> {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both pointers are to live variables.
    let read = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    ensure!(read, "cannot read the CPU time of process {pid}");
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::parse_events;

    #[test]
    fn events_are_found_in_their_line_only() {
        let parsed = |line| parse_events(line);
        assert_eq!(
            parsed("memtrace: 640,003 events recorded, 12 lost; 3 stacks end early"),
            Some((640_003, 12))
        );
        assert_eq!(parsed("memtrace: 1 event recorded, 0 lost"), Some((1, 0)));
        assert_eq!(
            parsed("memtrace: nothing was allocated or freed meanwhile, 7 lost"),
            Some((0, 7))
        );
        assert_eq!(parsed("memtrace: next: memtrace diagnose a.mtr"), None);
    }
}
