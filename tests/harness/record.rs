//! Running memtrace: `record` beside a target or around it, `report` after it.

use crate::{
    Fixture,
    report::Report,
    running::{Finished, Running},
    targets,
};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

/// Printed by `memtrace record` once its probes are in place.
pub const BEGUN: &str = "memtrace: recording";

/// memtrace with these arguments, not yet started.
#[track_caller]
pub fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(targets::memtrace());
    command.args(arguments);
    command
}

/// Runs memtrace with these arguments to its end.
#[track_caller]
pub fn memtrace<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Finished {
    Running::start(&mut command(arguments)).wait()
}

/// The report at the recording's end.
#[track_caller]
pub fn report(recording: &Path) -> Report {
    try_report(recording).unwrap_or_else(|finished| panic!("{finished:#?}"))
}

/// The report at the recording's end, or how memtrace refused.
#[track_caller]
pub fn try_report(recording: &Path) -> Result<Report, Finished> {
    let arguments = ["--at", "end", "--format", "json"];
    let mut command = command(["report"]);
    let finished = Running::start(command.arg(recording).args(arguments)).wait();
    match finished.status.success() {
        true => Ok(Report::parse(&finished.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", finished.stdout))),
        false => Err(finished),
    }
}

/// A `memtrace record` that runs.
pub struct Record {
    pub running: Running,
    pub file: PathBuf,
}

impl Record {
    /// Attaches to a process; returns once every probe is in place.
    #[track_caller]
    pub fn attach(fixture: &Fixture, pid: u32, options: &[&str]) -> Self {
        Self::attach_to(&[pid], fixture.path("attached.mtr"), options)
    }

    /// Attaches to processes, with a recording of its own.
    #[track_caller]
    pub fn attach_to(pids: &[u32], file: PathBuf, options: &[&str]) -> Self {
        let mut command = command(["record", "-f", "-o"]);
        command.arg(&file).args(options);
        for pid in pids {
            command.arg("-p").arg(pid.to_string());
        }
        let running = Running::start(&mut command);
        running.await_stderr(BEGUN);
        Self { running, file }
    }

    /// Launches a command.
    #[track_caller]
    pub fn launch<A: AsRef<OsStr>>(
        fixture: &Fixture,
        options: &[&str],
        target: impl IntoIterator<Item = A>,
    ) -> Self {
        let file = fixture.path("launched.mtr");
        let mut command = command(["record", "-f", "-o"]);
        command.arg(&file).args(options).arg("--").args(target);
        Self {
            running: Running::start(&mut command),
            file,
        }
    }

    /// Ends an attached recording as Ctrl-C does.
    #[track_caller]
    pub fn stop(self) -> Report {
        self.running.signal(libc::SIGINT);
        self.running.wait().expect_code(0);
        report(&self.file)
    }

    /// Waits for a launched command, which must end with this status.
    #[track_caller]
    pub fn finish(self, code: i32) -> Report {
        self.running.wait().expect_code(code);
        report(&self.file)
    }
}
