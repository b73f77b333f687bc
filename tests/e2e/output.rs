//! The file of a recording while it is written: it is renamed, removed, replaced or limited, and memtrace killed.

use memtrace_tests::{
    Fixture,
    record::{self, BEGUN, Record, report, try_report},
    report::Report,
    running::{Finished, Running},
    targets,
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// What a recording may lack of its end when memtrace is killed.
const LOST: Duration = Duration::from_secs(1);

/// A recording of a program that has allocated this often.
struct Recorded {
    record: Record,
    target: Running,
    allocated: u64,
}

const TIMES: u64 = 100;

impl Recorded {
    fn new(fixture: &Fixture) -> Self {
        let target = Running::start(&mut Command::new(targets::program("named.c")));
        target.await_stdout("ready");
        let record = Record::attach(fixture, target.pid(), &[]);
        let mut of = Self {
            record,
            target,
            allocated: 0,
        };
        of.allocate();
        of
    }

    fn allocate(&mut self) {
        self.target.send(&"1".repeat(TIMES as usize));
        self.target.send("\n");
        self.allocated += TIMES;
        let answer = format!("allocated {}", self.allocated);
        self.target.await_stdout(&answer);
    }

    /// Ends it as Ctrl-C does.
    fn end(mut self) -> Finished {
        self.record.running.signal(libc::SIGINT);
        let finished = self.record.running.wait().expect_code(0);
        self.target.expect_alive();
        finished
    }
}

/// Allocations of the program.
fn count(report: &Report) -> u64 {
    let sites = report.sites.iter();
    let own = sites.filter(|site| site.layer == "heap" && site.name() == Some("first"));
    own.map(|site| site.counts.alloc_count).sum()
}

#[test]
fn a_kill_costs_at_most_the_last_second() {
    let fixture = Fixture::new();
    let mut recorded = Recorded::new(&fixture);
    thread::sleep(LOST);
    recorded.record.running.signal(libc::SIGKILL);
    let status = recorded.record.running.end();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    let report = report(&recorded.record.file);
    let heap = report.total(recorded.target.pid(), "heap");
    assert_eq!(heap.alloc_bytes, TIMES * 1001);
}

#[test]
fn a_renamed_recording_is_complete() {
    let fixture = Fixture::new();
    let mut recorded = Recorded::new(&fixture);
    let (file, renamed) = (recorded.record.file.clone(), fixture.path("renamed.mtr"));
    fs::rename(&file, &renamed).expect("own files");
    recorded.allocate();
    let finished = recorded.end();
    assert!(finished.stderr.contains("was renamed"), "{finished:#?}");
    assert_eq!(count(&report(&renamed)), 2 * TIMES);
    assert!(!file.exists());
}

#[test]
fn a_removed_recording_is_written_again() {
    let fixture = Fixture::new();
    let mut recorded = Recorded::new(&fixture);
    let file = recorded.record.file.clone();
    fs::remove_file(&file).expect("own file");
    recorded.record.running.await_stderr("memtrace: ");
    recorded.allocate();
    let finished = recorded.end();
    assert!(finished.stderr.contains("was removed"), "{finished:#?}");
    assert_eq!(count(&report(&file)), 2 * TIMES);
}

/// The folder is a tenant's, or one where everybody may write.
#[test]
fn nothing_that_took_the_name_of_a_recording_is_written() {
    let fixture = Fixture::new();
    let mut recorded = Recorded::new(&fixture);
    let (file, of_root) = (recorded.record.file.clone(), fixture.path("of_root"));
    fs::write(&of_root, "untouched").expect("own file");
    fs::remove_file(&file).expect("own file");
    symlink(&of_root, &file).expect("a link");
    recorded.allocate();
    let finished = recorded.end();
    assert_eq!(fs::read_to_string(&of_root).expect("own file"), "untouched");
    assert!(fs::read_link(&file).is_ok_and(|to| to == of_root));
    let mut recovered = OsString::from(&file);
    recovered.push(".recovered");
    let recovered = PathBuf::from(recovered);
    assert!(
        finished.stderr.contains(&*recovered.to_string_lossy()),
        "{finished:#?}"
    );
    assert_eq!(count(&report(&recovered)), 2 * TIMES);
}

/// `record` of a command below a limit of the shell's.
fn limited(file: &Path, limit: &str, command: &[&OsStr]) -> Running {
    let mut shell = Command::new("bash");
    shell
        .arg("-c")
        .arg(format!("ulimit {limit}; exec \"$0\" \"$@\""))
        .arg(targets::memtrace())
        .args(["record", "-o"])
        .arg(file)
        .args(["--interval", "100ms", "--"])
        .args(command);
    let running = Running::start(&mut shell);
    running.await_stderr(BEGUN);
    running
}

#[test]
fn a_limit_on_files_ends_the_recording_with_a_line() {
    let fixture = Fixture::new();
    let file = fixture.path("limited.mtr");
    // Allocates at ever new places until its input ends.
    let code = "import os\nkept, number = [], 0\nos.set_blocking(0, False)\n\
        def ended():\n    try:\n        return os.read(0, 1) == b''\n    except BlockingIOError:\n        return False\n\
        while not ended():\n    number += 1\n    \
        exec(f'def f{number}(): return bytearray(2000)\\nkept.append(f{number}())')\n\
        os._exit(0)";
    let mut running = limited(
        &file,
        "-f 1000",
        &[
            targets::interpreter().as_ref(),
            "-c".as_ref(),
            code.as_ref(),
        ],
    );
    running.await_stderr("memtrace: waiting for process");
    running.close_stdin();
    let finished = running.wait();
    assert!(
        finished.status.code().is_some_and(|code| code != 0),
        "{finished:#?}"
    );
    assert!(finished.stderr.contains("cannot write"), "{finished:#?}");
    let size = fs::metadata(&file).expect("a recording").len();
    assert!(size <= 1_024_000, "{size}");
    assert!(try_report(&file).is_ok_and(|report| report.received > 0));
}

#[test]
fn a_small_stack_is_enough() {
    let fixture = Fixture::new();
    let file = fixture.path("limited.mtr");
    limited(&file, "-s 64", &["true".as_ref()])
        .wait()
        .expect_code(0);
    let report = record::memtrace(["report", &*file.to_string_lossy()]).expect_code(0);
    assert!(report.stdout.contains("normally"), "{report:#?}");
}
