//! Runs one program untraced and traced: its visible behaviour must be the same.

use crate::{
    Fixture, deadline,
    descendants::Descendants,
    record::{BEGUN, command, report},
    running::{Finished, Running, shell_code},
    targets, until,
};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::Write,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

/// How much longer a traced run may take than the untraced one, beside [`deadline`].
const SLOWER: u32 = 20;

/// A program and its behaviour without memtrace.
pub struct Case<'a> {
    /// A file of `targets/undisturbed/`, and its arguments.
    pub program: &'a str,
    /// As in a shell.
    pub status: i32,
    pub stdout: &'a str,
    /// Whether another tracer keeps memtrace from holding some process.
    pub gaps: bool,
}

/// How memtrace gets to trace the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    Launched,
    Attached,
}

/// All that a caller sees of a program.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Case<'_> {
    /// Runs it untraced, to check that it behaves as described, and then traced.
    ///
    /// # Panics
    /// If a run differs, leaves a process behind or does not end in time.
    #[track_caller]
    pub fn run(&self, tracings: &[Tracing]) {
        let fixture = Fixture::new();
        let descendants = Descendants::new();
        let run = Run::new(&fixture, self, "untraced");
        let start = Instant::now();
        let outcome = run.untraced();
        let limit = deadline() + start.elapsed() * SLOWER;
        assert_eq!(
            (outcome.status, outcome.stdout.as_str()),
            (self.status, self.stdout),
            "untraced\n{}",
            outcome.stderr
        );
        descendants.expect_none();
        for &tracing in tracings {
            let run = Run::new(&fixture, self, &format!("{tracing:?}"));
            let (traced, said) = run.traced(tracing, limit);
            assert_eq!(traced, outcome, "{tracing:?}\n{said}");
            let report = report(&run.recording());
            assert!(report.received > 0, "nothing was recorded\n{said}");
            if !self.gaps {
                report.expect_followed();
            }
            descendants.expect_none();
        }
    }
}

/// One run of a case in a folder of its own.
struct Run {
    folder: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    /// The fifo at which the case waits until memtrace may attach. It keeps its contents while this
    /// is open.
    answer: File,
}

impl Run {
    #[track_caller]
    fn new(fixture: &Fixture, case: &Case, name: &str) -> Self {
        let folder = fixture.path(name);
        fs::create_dir(&folder).unwrap();
        let answer = folder.join("answer");
        let mut mkfifo = Command::new("mkfifo");
        Running::start(mkfifo.arg(&answer)).wait().expect_code(0);
        let mut words = case.program.split(' ').map(String::from);
        let file = format!("undisturbed/{}", words.next().unwrap());
        let run = Self {
            program: match file.ends_with(".c") {
                true => targets::program(&file),
                false => targets::source(&file),
            },
            arguments: words.collect(),
            // Opened for both, it needs no reader yet.
            answer: OpenOptions::new()
                .read(true)
                .write(true)
                .open(&answer)
                .unwrap(),
            folder,
        };
        run.start(Command::new("env").args(run.words("prepare")))
            .wait()
            .expect_code(0);
        run
    }

    /// Arguments of `env` that run a step of the case in an environment of its own.
    fn words(&self, step: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            "-i".into(),
            "LANG=C.UTF-8".into(),
            "TERM=dumb".into(),
            format!("HOME={}", self.folder.display()).into(),
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".into(),
            targets::source("undisturbed/case.sh").into(),
            step.into(),
            self.program.clone().into(),
        ];
        words.extend(self.arguments.iter().map(OsString::from));
        words
    }

    #[track_caller]
    fn start(&self, command: &mut Command) -> Running {
        Running::start(command.current_dir(&self.folder))
    }

    /// Lets the case continue from the point where it may be attached to.
    #[track_caller]
    fn may_go_on(&self) {
        (&self.answer).write_all(b"\n").unwrap();
    }

    #[track_caller]
    fn untraced(&self) -> Outcome {
        self.may_go_on();
        let program = self.start(Command::new("env").args(self.words("run")));
        self.outcome(&program.wait())
    }

    /// The program's visible behaviour, and memtrace's messages.
    #[track_caller]
    fn traced(&self, tracing: Tracing, limit: Duration) -> (Outcome, String) {
        let mut memtrace = command(["record", "-o"]);
        memtrace.arg(self.recording());
        let (outcome, recording) = match tracing {
            Tracing::Launched => {
                self.may_go_on();
                memtrace.args(["--", "env"]).args(self.words("run"));
                let both = self.start(&mut memtrace).wait_within(limit);
                (self.outcome(&both), both)
            }
            Tracing::Attached => {
                let program = self.start(Command::new("env").args(self.words("run")));
                let asked = self.folder.join("asked");
                let pid = until("a process to attach to", || fs::read_to_string(&asked).ok());
                let memtrace = self.start(memtrace.args(["-p", pid.trim()]));
                memtrace.await_stderr(BEGUN);
                self.may_go_on();
                let program = program.wait_within(limit);
                (self.outcome(&program), memtrace.wait().expect_code(0))
            }
        };
        (outcome, recording.stderr)
    }

    fn recording(&self) -> PathBuf {
        self.folder.join("recording.mtr")
    }

    fn outcome(&self, finished: &Finished) -> Outcome {
        let read = |name: &str| {
            let text = fs::read_to_string(self.folder.join(name));
            let text = text.unwrap_or_else(|error| panic!("{name}: {error}\n{finished:#?}"));
            // A terminal's lines end with both.
            text.replace("\r\n", "\n")
        };
        Outcome {
            status: shell_code(finished.status),
            stdout: read("out"),
            stderr: read("err"),
        }
    }
}
