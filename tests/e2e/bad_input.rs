//! Impossible requests fail clearly: one line, a nonzero status, no panic, and no effect on the target.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture,
    record::{self, Record, memtrace, report, try_report},
    running::{Finished, Running},
    targets, until,
};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

/// One line on stderr with these words in it, and failure.
#[track_caller]
fn expect_refusal(finished: &Finished, words: &[&str]) {
    assert!(
        finished.status.code().is_some_and(|code| code != 0),
        "{finished:#?}"
    );
    // Progress is for terminals.
    let mut lines = finished
        .stderr
        .lines()
        .filter(|line| !line.trim().is_empty());
    let line = lines.next().unwrap_or_default().to_lowercase();
    assert_eq!(lines.next(), None, "more than one line: {finished:#?}");
    assert!(!line.contains("panicked"), "{line}");
    for word in words {
        assert!(
            line.contains(&word.to_lowercase()),
            "`{word}` is not in `{line}`"
        );
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}

#[test]
fn no_such_process() {
    let fixture = Fixture::new();
    let output = fixture.path("none.mtr");
    // Beyond the largest pid that a kernel gives (PID_MAX_LIMIT).
    let finished = memtrace(["record", "-p", "4194305", "-o", text(&output)]);
    expect_refusal(&finished, &["4194305"]);
    assert!(!output.exists(), "a recording of nothing");
}

#[test]
fn neither_process_nor_command() {
    let _fixture = Fixture::new();
    let finished = memtrace(["record"]);
    assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
    assert!(
        finished.stderr.contains("--pid") || finished.stderr.contains("COMMAND"),
        "{finished:#?}"
    );
}

#[test]
fn both_process_and_command() {
    let _fixture = Fixture::new();
    let finished = memtrace(["record", "-p", "1", "--", "true"]);
    assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
    assert!(
        finished.stderr.contains("cannot be used with"),
        "{finished:#?}"
    );
}

#[test]
fn without_privileges() {
    const NOBODY: u32 = 65534;
    let fixture = Fixture::new();
    // A place where anybody may run it, whatever the permissions of the build folder.
    let program = fixture.path("memtrace");
    fs::copy(targets::memtrace(), &program).expect("room for a copy");
    let own = fixture.path("own");
    fs::create_dir(&own).expect("a folder");
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).expect("root may chown");

    let mut command = Command::new(program);
    command
        .args(["record", "--", "true"])
        .current_dir(own)
        .uid(NOBODY)
        .gid(NOBODY);
    expect_refusal(&Running::start(&mut command).wait(), &["CAP_", "sudo"]);
}

#[test]
fn a_program_that_is_not_found() {
    let fixture = Fixture::new();
    let finished = Record::launch(&fixture, &[], ["/no/such/program"])
        .running
        .wait();
    expect_refusal(&finished, &["/no/such/program"]);
    let finished = Record::launch(&fixture, &[], ["no-such-program"])
        .running
        .wait();
    expect_refusal(&finished, &["no-such-program"]);
}

#[test]
fn a_program_that_may_not_be_run() {
    let fixture = Fixture::new();
    let path = fixture.path("data");
    fs::write(&path, "not a program").expect("the folder is writable");
    let finished = Record::launch(&fixture, &[], [&path]).running.wait();
    expect_refusal(&finished, &[text(&path)]);
}

#[test]
fn an_output_that_exists() {
    let fixture = Fixture::new();
    let output = recording(&fixture);
    let before = fs::read(&output).expect("a recording");
    let finished = memtrace(["record", "-o", text(&output), "--", "true"]);
    expect_refusal(&finished, &[text(&output), "exists", "--force"]);
    assert_eq!(fs::read(&output).expect("it is still there"), before);
    // A forgotten name: `-o` takes the program.
    let program = fixture.path("train.sh");
    fs::write(&program, "#!/bin/sh").expect("the folder is writable");
    let finished = memtrace(["record", "-f", "-o", text(&program), "--", "true"]);
    expect_refusal(&finished, &[text(&program), "not a recording"]);
    assert_eq!(fs::read(&program).expect("it is still there"), b"#!/bin/sh");
}

#[test]
fn an_argument_that_is_not_text() {
    let fixture = Fixture::new();
    let output = fixture.path("recording.mtr");
    let arguments = ["record", "-o", text(&output), "--", "echo"].map(OsStr::new);
    let argument = OsStr::from_bytes(b"caf\xe9");
    let finished = memtrace(arguments.into_iter().chain([argument])).expect_code(0);
    assert!(finished.stdout.starts_with("caf"), "{finished:#?}");
    assert!(output.exists());
}

#[test]
fn a_name_that_would_control_the_terminal() {
    let finished = memtrace(["report", "/no/\u{1b}[2J\nmemtrace: 0 lost"]);
    expect_refusal(&finished, &["/no/\\u{1b}[2J\\nmemtrace: 0 lost"]);
}

#[test]
fn an_output_that_cannot_be_written() {
    let fixture = Fixture::new();
    let folder = fixture.folder();
    let finished = memtrace(["record", "-f", "-o", text(folder), "--", "true"]);
    expect_refusal(&finished, &[text(folder)]);
    let missing = fixture.path("missing/file.mtr");
    let finished = memtrace(["record", "-o", text(&missing), "--", "true"]);
    expect_refusal(&finished, &[text(&missing)]);
    // Root may write anywhere unless the file system itself refuses.
    let refused = Path::new("/proc/recording.mtr");
    let finished = memtrace(["record", "-o", text(refused), "--", "true"]);
    expect_refusal(&finished, &[text(refused)]);
}

/// A recording that is whole.
fn recording(fixture: &Fixture) -> PathBuf {
    let record = Record::launch(fixture, &[], ["true"]);
    let file = record.file.clone();
    record.finish(0);
    file
}

#[test]
fn recordings_cut_short() {
    let fixture = Fixture::new();
    let whole = fs::read(recording(&fixture)).expect("a recording");
    for length in [0, 1, 50, 100, 4096, whole.len() / 2] {
        let path = fixture.path(&format!("cut-{length}"));
        fs::write(&path, &whole[..length]).expect("the folder is writable");
        let finished = try_report(&path).expect_err("half a recording");
        expect_refusal(&finished, &[text(&path)]);
    }
}

#[test]
fn files_that_are_not_recordings() {
    let fixture = Fixture::new();
    let missing = fixture.path("missing");
    expect_refusal(
        &try_report(&missing).expect_err("no file"),
        &[text(&missing)],
    );
    let folder = fixture.folder();
    expect_refusal(&try_report(folder).expect_err("a folder"), &[text(folder)]);
    let prose = fixture.path("prose");
    fs::write(&prose, "Call me Ishmael. ".repeat(1000)).expect("the folder is writable");
    expect_refusal(
        &try_report(&prose).expect_err("prose"),
        &[text(&prose), "recording"],
    );
    let foreign = fixture.path("foreign");
    sql(&foreign, "CREATE TABLE things (name)");
    expect_refusal(
        &try_report(&foreign).expect_err("foreign"),
        &[text(&foreign), "recording"],
    );
}

#[test]
fn a_recording_of_a_newer_memtrace() {
    let fixture = Fixture::new();
    let file = recording(&fixture);
    let before = report(&file);
    sql(&file, "PRAGMA user_version = 1000000");
    // One that only has additions is read.
    assert_eq!(report(&file).processes.len(), before.processes.len());
    sql(&file, "UPDATE recording SET min_reader = 1000000");
    let finished = try_report(&file).expect_err("from the future");
    expect_refusal(&finished, &[text(&file), "newer"]);
}

/// Runs a statement on a database with Python's SQLite.
fn sql(database: &Path, statement: &str) {
    const SCRIPT: &str =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()";
    let mut python = Command::new(targets::interpreter());
    python.args(["-c", SCRIPT]).arg(database).arg(statement);
    Running::start(&mut python).wait().expect_code(0);
}

#[test]
fn a_static_program_without_symbols() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::stripped_static("overload.c");
    let command = [&target, &truth, &"8".into(), &"100000".into()];
    let Record { running, file } = Record::launch(&fixture, &[], command);
    let finished = running.wait().expect_code(0);
    let mut lines = finished.stderr.lines();
    let said = lines.find(|line| line.contains("symbol") && line.contains("overload"));
    assert!(said.is_some(), "{finished:#?}");
    assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
    // System calls are traced with or without symbols.
    let report = report(&file);
    let process = report.processes.first().expect("one process");
    assert!(report.total(process.tgid, "vm").alloc_bytes > 0);
    assert_eq!(report.total(process.tgid, "heap").alloc_count, 0);
}

/// Processes that end while memtrace attaches to them, at whatever point.
#[test]
fn targets_that_end_during_attach() {
    let fixture = Fixture::new();
    for round in 0..20_u32 {
        let mut target = Command::new("sh");
        // Lives from nothing to some tens of milliseconds.
        target.args(["-c", "i=0; while [ $i -lt $0 ]; do i=$((i+1)); done"]);
        let target = Running::start(target.arg((round * round * 500).to_string()));
        let output = fixture.path("short.mtr");
        let pid = target.pid().to_string();
        let mut command = record::command(["record", "-f", "-p", &pid, "-o", text(&output)]);
        let running = Running::start(&mut command);
        target.wait().expect_code(0);
        let finished = running.wait();
        assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
        match finished.status.code() {
            Some(0) => drop(report(&output)),
            _ => expect_refusal(&finished, &[&pid]),
        }
    }
}

#[test]
fn pids_without_a_process() {
    let _fixture = Fixture::new();
    for pid in ["0", "-5", "1x", "", "99999999999"] {
        let finished = memtrace(["record", "-p", pid]);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        assert!(
            finished.stderr.contains("expected a process ID"),
            "{finished:#?}"
        );
    }
}

#[test]
fn a_kernel_thread() {
    let fixture = Fixture::new();
    let output = fixture.path("none.mtr");
    // kthreadd, the parent of all others (kernel/kthread.c).
    let finished = memtrace(["record", "-p", "2", "-o", text(&output)]).expect_code(2);
    expect_refusal(&finished, &["2", "kthreadd", "kernel thread"]);
    assert!(!output.exists(), "a recording of nothing");
}

#[test]
fn a_zombie() {
    let fixture = Fixture::new();
    let output = fixture.path("none.mtr");
    let mut child = Command::new("true").spawn().expect("true can be run");
    let pid = child.id().to_string();
    until("the end of the child", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.contains(") Z ").then_some(())
    });
    let finished = memtrace(["record", "-p", &pid, "-o", text(&output)]).expect_code(2);
    child.wait().expect("it has ended");
    expect_refusal(&finished, &[&pid, "`true`", "zombie"]);
    assert!(!output.exists(), "a recording of nothing");
}

#[test]
fn a_process_that_is_recorded_already() {
    let fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new("cat"));
    let first = Record::attach(&fixture, target.pid(), &[]);
    let output = fixture.path("second.mtr");
    let pid = target.pid().to_string();
    let mut command = record::command(["record", "-p", &pid, "-o", text(&output)]);
    let second = Running::start(&mut command);
    // It can be recorded, but held by only one of them.
    second.await_stderr(record::BEGUN);
    second.signal(libc::SIGINT);
    let second = second.wait().expect_code(0);
    assert!(
        second.stderr.contains("is already traced by `memtrace"),
        "{second:#?}"
    );
    report(&output);
    first.stop();
    target.expect_alive();
    Record::attach(&fixture, target.pid(), &[]).stop();
}

#[test]
fn a_stopped_process() {
    let fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new("cat"));
    target.signal(libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", target.pid());
    until("the stop", || {
        fs::read_to_string(&stat)
            .ok()?
            .contains(") T ")
            .then_some(())
    });
    let record = Record::attach(&fixture, target.pid(), &[]);
    record.running.await_stderr("memtrace: process");
    record.stop();
    // Still stopped: only whoever stopped it may continue it.
    let now = fs::read_to_string(&stat).expect("it is there");
    assert!(now.contains(") T "), "{now}");
    target.signal(libc::SIGCONT);
    target.send("runs on\n");
    target.await_stdout("runs on");
    target.expect_alive();
}

/// A control group of its own, of the hierarchy that every process is in.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let unified = Path::new("/sys/fs/cgroup/unified");
        let root = match unified.exists() {
            true => unified,
            false => Path::new("/sys/fs/cgroup"),
        };
        let path = root.join(format!("memtrace-test-{}", std::process::id()));
        fs::create_dir(&path).expect("root may make control groups");
        Self(path)
    }

    fn write(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).expect("a file of the control group");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.freeze"), "0");
        // Busy until its processes are gone.
        until("the end of the group", || fs::remove_dir(&self.0).ok());
    }
}

#[test]
fn a_frozen_process() {
    let fixture = Fixture::new();
    let group = Group::new();
    let mut target = Running::start(&mut Command::new("cat"));
    group.write("cgroup.procs", &target.pid().to_string());
    group.write("cgroup.freeze", "1");
    let events = group.0.join("cgroup.events");
    until("the freeze", || {
        let events = fs::read_to_string(&events).ok()?;
        events.contains("frozen 1").then_some(())
    });
    let record = Record::attach(&fixture, target.pid(), &[]);
    let said = record.running.await_stderr("memtrace: process");
    assert!(said.contains("frozen"), "{said}");
    record.stop();
    group.write("cgroup.freeze", "0");
    target.send("runs on\n");
    target.await_stdout("runs on");
    target.close_stdin();
    target.wait().expect_code(0);
}

/// Waits until memtrace watches for Ctrl-C, which is long before it has loaded anything.
fn await_watching(memtrace: &Running) {
    let status = format!("/proc/{}/status", memtrace.pid());
    until("memtrace watches for signals", || {
        let status = fs::read_to_string(&status).ok()?;
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught >> (libc::SIGTERM - 1) & 1 == 1).then_some(())
    });
}

#[test]
fn ctrl_c_before_recording_began() {
    let fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new("cat"));
    let (output, mark) = (fixture.path("none.mtr"), fixture.path("mark"));
    let pid = target.pid().to_string();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        for arguments in [["-p", &pid].as_slice(), &["--", "touch", text(&mark)]] {
            let mut command = record::command(["record", "-o", text(&output)]);
            let running = Running::start(command.args(arguments));
            await_watching(&running);
            running.signal(signal);
            let finished = running.wait().expect_code(128 + signal);
            expect_refusal(&finished, &["before recording began"]);
            assert!(!output.exists() && !mark.exists());
        }
    }
    target.expect_alive();
}

#[test]
fn a_target_that_ends_before_recording_began() {
    let fixture = Fixture::new();
    let output = fixture.path("none.mtr");
    let target = Running::start(&mut Command::new("cat"));
    let pid = target.pid().to_string();
    let mut command = record::command(["record", "-p", &pid, "-o", text(&output)]);
    let running = Running::start(&mut command);
    await_watching(&running);
    target.signal(libc::SIGKILL);
    target.wait();
    let finished = running.wait().expect_code(2);
    let lines = finished.stderr.lines();
    let last = lines.last().unwrap_or_default();
    assert!(
        last.contains(&format!(
            "process {pid} (`cat`) ended before recording began"
        )),
        "{finished:#?}"
    );
    assert!(!output.exists(), "a recording of nothing");
}

/// Its system calls are not those of the tracepoints, and its arguments are elsewhere.
#[test]
fn a_32_bit_program() {
    let fixture = Fixture::new();
    let (source, object, program) = (fixture.path("a.s"), fixture.path("a.o"), fixture.path("a"));
    // exit(3)
    let code = ".globl _start\n_start: movl $1, %eax\nmovl $3, %ebx\nint $0x80\n";
    fs::write(&source, code).expect("the folder is writable");
    for command in [
        Command::new("as")
            .args(["--32", "-o"])
            .args([&object, &source]),
        Command::new("ld")
            .args(["-m", "elf_i386", "-o"])
            .args([&program, &object]),
    ] {
        assert!(command.status().expect("binutils").success());
    }
    let Record { running, file } = Record::launch(&fixture, &[], [&program]);
    let finished = running.wait().expect_code(3);
    assert!(finished.stderr.contains("32-bit program"), "{finished:#?}");
    assert_eq!(report(&file).loss(Reason::Program32Bit), 1);
    let shown = memtrace(["report", text(&file)]).expect_code(0);
    assert!(
        shown.stdout.contains("32-bit programs are not supported"),
        "{shown:#?}"
    );
}
