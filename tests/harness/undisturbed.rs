//! One program, run untraced and traced: what can be seen of it must be the same.

use crate::{
    Bench, DEADLINE,
    descendants::Descendants,
    record::{BEGUN, command, report},
    report::Report,
    running::{Finished, Running, shell_code},
    targets, until,
};
use memtrace_common::loss::{Effect, Reason};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::Write,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

/// How much longer a traced run may take than the untraced one, beside [`DEADLINE`].
const SLOWER: u32 = 20;

/// A program and what it does without memtrace.
pub struct Case<'a> {
    /// A file of `targets/undisturbed/`, and its arguments.
    pub program: &'a str,
    /// As a shell says it.
    pub status: i32,
    pub stdout: &'a str,
    /// Whether another tracer keeps memtrace from holding some process.
    pub gaps: bool,
}

/// How memtrace comes to the program.
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
    /// Runs it untraced, where it must do what it is said to do, and then traced.
    ///
    /// # Panics
    /// Where a run differs, leaves a process behind or does not end in time.
    #[track_caller]
    pub fn run(&self, tracings: &[Tracing]) {
        let bench = Bench::new();
        let descendants = Descendants::new();
        let run = Run::new(&bench, self, "untraced");
        let start = Instant::now();
        let outcome = run.untraced();
        let deadline = DEADLINE + start.elapsed() * SLOWER;
        assert_eq!(
            (outcome.status, outcome.stdout.as_str()),
            (self.status, self.stdout),
            "untraced\n{}",
            outcome.stderr
        );
        descendants.expect_none();
        for &tracing in tracings {
            let run = Run::new(&bench, self, &format!("{tracing:?}"));
            let (traced, recording) = run.traced(tracing, deadline);
            assert_eq!(traced, outcome, "{tracing:?}\n{}", recording.stderr);
            recording.expect_complete(self.gaps);
            descendants.expect_none();
        }
    }
}

/// What memtrace says of a run.
struct Recorded {
    report: Report,
    stderr: String,
}

impl Recorded {
    /// Something was recorded, and of every process.
    #[track_caller]
    fn expect_complete(&self, gaps: bool) {
        assert!(self.report.received > 0, "nothing was recorded");
        let untraced = |reason: &Reason| reason.effect() == Effect::Untraced;
        let lost = Reason::ALL.into_iter().filter(untraced);
        let lost = lost.map(|reason| (reason.name(), self.report.loss(reason)));
        let lost: Vec<_> = lost.filter(|(_, count)| *count > 0).collect();
        assert!(gaps || lost.is_empty(), "{lost:?}\n{}", self.stderr);
    }
}

/// One run of a case in a folder of its own.
struct Run {
    folder: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    /// The fifo at which the case waits where it may be attached to. It holds what is written
    /// while this is open.
    answer: File,
}

impl Run {
    #[track_caller]
    fn new(bench: &Bench, case: &Case, name: &str) -> Self {
        let folder = bench.path(name);
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

    /// Lets the case go on from where it may be attached to.
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

    #[track_caller]
    fn traced(&self, tracing: Tracing, deadline: Duration) -> (Outcome, Recorded) {
        let file = self.folder.join("recording.mtr");
        let mut memtrace = command(["record", "-o"]);
        memtrace.arg(&file);
        let (outcome, recording) = match tracing {
            Tracing::Launched => {
                self.may_go_on();
                memtrace.args(["--", "env"]).args(self.words("run"));
                let both = self.start(&mut memtrace).wait_within(deadline);
                (self.outcome(&both), both)
            }
            Tracing::Attached => {
                let program = self.start(Command::new("env").args(self.words("run")));
                let asked = self.folder.join("asked");
                let pid = until("a process to attach to", || fs::read_to_string(&asked).ok());
                let memtrace = self.start(memtrace.args(["-p", pid.trim()]));
                memtrace.await_stderr(BEGUN);
                self.may_go_on();
                let program = program.wait_within(deadline);
                (self.outcome(&program), memtrace.wait().expect_code(0))
            }
        };
        let recorded = Recorded {
            report: report(&file),
            stderr: recording.stderr,
        };
        (outcome, recorded)
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
