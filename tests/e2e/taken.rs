//! Functions that another tool probes in a way that excludes other tracers.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture,
    record::{command, report},
    report::Report,
    running::Running,
    targets,
    truth::Counts,
};
use std::{path::Path, process::Command};

/// Blocks by malloc, those of them that stay, and blocks by calloc; and the messages of memtrace.
fn recorded(fixture: &Fixture, program: &Path, options: &[&str]) -> ([u64; 3], Report, String) {
    let file = fixture.path("taken.mtr");
    let mut memtrace = command(["record", "--force", "-o"]);
    memtrace.arg(&file).args(options).arg("--").arg(program);
    let finished = Running::start(&mut memtrace).wait().expect_code(0);
    let report = report(&file);
    let count = |bytes: u64, which: fn(&Counts) -> u64| {
        let sites = report.sites.iter().filter(|site| site.layer == "heap");
        let counts = sites.map(|site| &site.counts);
        let of_size = counts.filter(|it| it.alloc_bytes == bytes * it.alloc_count);
        of_size.map(which).max().unwrap_or(0)
    };
    let counts = [
        count(10, |it| it.alloc_count),
        count(10, |it| it.live_count),
        count(20, |it| it.alloc_count),
    ];
    (counts, report, finished.stderr)
}

/// Another tracer that probes malloc and calloc with a semaphore, which excludes others.
struct OtherTracer(Running);

impl OtherTracer {
    fn start(program: &Path, semaphore: &str) -> Self {
        let other = Running::start(Command::new(program).args(["probe", semaphore]));
        other.await_stdout("probed");
        Self(other)
    }

    /// The only line about its probes.
    #[track_caller]
    fn line(&self, stderr: &str) -> String {
        let lines: Vec<_> = stderr
            .lines()
            .filter(|line| line.contains("ref_ctr_offset"))
            .collect();
        let [line] = lines[..] else {
            panic!("{stderr}");
        };
        let pid = format!("({})", self.0.pid());
        for word in ["`taken-", pid.as_str(), "`malloc`", "`calloc`"] {
            assert!(line.contains(word), "no {word}: {line}");
        }
        line.to_owned()
    }

    fn end(mut self) {
        self.0.close_stdin();
        self.0.wait().expect_code(0);
    }
}

const EXACT: [u64; 3] = [500, 300, 300];

/// As bcc's tools do: the semaphore is a random number, in no memory.
#[test]
fn functions_that_another_tracer_probes_are_counted() {
    let fixture = Fixture::new();
    let program = targets::static_program("taken.c");
    let other = OtherTracer::start(&program, "0x7fa4c0de");
    for options in [&[][..], &["--one-by-one"]] {
        let (counts, report, stderr) = recorded(&fixture, &program, options);
        assert_eq!(counts, EXACT, "{stderr}");
        report.expect_followed();
        assert!(other.line(&stderr).contains("all the same"), "{stderr}");
    }
    other.end();
}

/// The kernel would change the program's memory at a semaphore that is within its file.
#[test]
fn functions_that_another_tracer_keeps_are_left_out() {
    let fixture = Fixture::new();
    let program = targets::static_program("taken.c");
    let other = OtherTracer::start(&program, "0x1000");
    let (counts, report, stderr) = recorded(&fixture, &program, &[]);
    assert_eq!(counts, [0, 0, 0], "{stderr}");
    assert_eq!(report.loss(Reason::AttachFailed), 2, "{stderr}");
    assert!(other.line(&stderr).contains("NOT recorded"), "{stderr}");
    other.end();
    let (counts, report, stderr) = recorded(&fixture, &program, &[]);
    assert_eq!(counts, EXACT, "{stderr}");
    report.expect_followed();
}
