//! A launched command behaves as it would without memtrace before it.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture,
    kernel::{Loaded, children, preempts_programs_of_system_calls},
    record::{BEGUN, Record, command, report},
    running::{Running, shell_code},
    targets,
    truth::{Counts, Truth},
    until,
};
use std::{ffi::OsStr, fs, os::unix::fs::PermissionsExt};

#[test]
fn the_exit_status_is_passed_on() {
    let fixture = Fixture::new();
    for code in [0_u32, 1, 7, 255] {
        let script = format!("exit {code}");
        let report = Record::launch(&fixture, &[], ["sh", "-c", &script]).finish(code as i32);
        let process = report.processes.first().expect("one process");
        // As in waitpid(2).
        assert_eq!(process.exit_status, Some(code << 8));
    }
}

#[test]
fn death_by_a_signal_is_128_and_the_signal() {
    let fixture = Fixture::new();
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
        let script = format!("kill -{signal} $$");
        let record = Record::launch(&fixture, &[], ["sh", "-c", &script]);
        let finished = record.running.wait();
        assert_eq!(shell_code(finished.status), 128 + signal, "{finished:#?}");
        report(&record.file);
    }
}

#[test]
fn standard_input_and_output_pass_through() {
    let fixture = Fixture::new();
    let mut record = Record::launch(&fixture, &[], ["cat"]);
    record.running.send("forth and back\n");
    record.running.await_stdout("forth and back");
    record.running.close_stdin();
    let finished = record.running.wait().expect_code(0);
    assert_eq!(finished.stdout, "forth and back\n");
}

/// Ctrl-C reaches memtrace and the command alike.
fn interrupted(how: &str, code: i32) {
    let fixture = Fixture::new();
    let target = targets::program("signals.c");
    let record = Record::launch(&fixture, &[], [target.as_os_str(), how.as_ref()]);
    record.running.await_stdout("ready");
    record.running.signal_group(libc::SIGINT);
    let finished = record.running.wait();
    assert_eq!(shell_code(finished.status), code, "{finished:#?}");
    report(&record.file).expect_no_losses(0);
}

#[test]
fn ctrl_c_of_a_command_that_handles_it() {
    interrupted("handle", 42);
}

#[test]
fn ctrl_c_of_a_command_that_dies_of_it() {
    interrupted("die", 128 + libc::SIGINT);
}

#[test]
fn children_are_left_alone_with_no_follow() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let command = [
        &targets::program("exact.c"),
        &"run".into(),
        &truth,
        &targets::library("constructor.c"),
    ];
    let record = Record::launch(&fixture, &["--no-follow"], command);
    let report = record.finish(7);
    let mut truth = Truth::read(&truth);
    truth.inheritances.clear();
    let parent = *truth
        .sites
        .keys()
        .find_map(|(tgid, site)| (site == "malloc").then_some(tgid))
        .expect("the parent's own site");
    let all = truth.sites.len();
    truth.sites.retain(|(tgid, _), _| *tgid == parent);
    assert!(truth.sites.len() < all, "no child said anything");

    report.expect_exact(&truth);
    report.expect_no_losses(0);
    let tgids: Vec<_> = report
        .processes
        .iter()
        .map(|process| process.tgid)
        .collect();
    assert_eq!(tgids, [parent]);
}

#[test]
fn children_are_reported_with_their_parents() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let command = [
        &targets::program("exact.c"),
        &"run".into(),
        &truth,
        &targets::library("constructor.c"),
    ];
    let report = Record::launch(&fixture, &[], command).finish(7);
    let truth = Truth::read(&truth);
    for (tgid, site) in truth.sites.keys() {
        let process = report
            .processes
            .iter()
            .find(|process| process.tgid == *tgid);
        let process = process.unwrap_or_else(|| panic!("{tgid} ({site}) is not reported"));
        let is_child = truth.sites.contains_key(&(process.ppid, "malloc".into()));
        assert_eq!(
            is_child,
            !truth.sites.contains_key(&(*tgid, "malloc".into()))
        );
    }
}

/// More processes than CPUs on a small machine: no program of a fork, an exec or an exit is skipped because the kernel
/// preempts tasks. Without probes of malloc, which older kernels set slowly in each child.
#[test]
fn forks_that_preempt_one_another() {
    const FORKERS: u64 = 8;
    const TIMES: u64 = 50;
    let fixture = Fixture::new();
    let target = targets::program("forks.c");
    let command = [target, FORKERS.to_string().into(), TIMES.to_string().into()];
    let report = Record::launch(&fixture, &["--no-fold", "--no-heap"], command).finish(0);
    let of_system_calls: &[Reason] = if preempts_programs_of_system_calls() {
        &[Reason::OutcomeLost]
    } else {
        &[]
    };
    report.expect_no_losses_but(of_system_calls, 0);
    assert_eq!(report.processes.len() as u64, 1 + FORKERS + FORKERS * TIMES);
    assert!(
        report
            .processes
            .iter()
            .all(|process| process.exit_status == Some(0))
    );
}

#[test]
fn the_default_file_is_named_after_the_program_and_private() {
    let fixture = Fixture::new();
    let mut command = command(["record", "--", "true"]);
    let finished = Running::start(command.current_dir(fixture.folder()))
        .wait()
        .expect_code(0);
    assert!(finished.stderr.contains(BEGUN), "{finished:#?}");
    let entries = fs::read_dir(fixture.folder()).expect("the folder is there");
    let names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let [name] = &names[..] else {
        panic!("one file and nothing beside it: {names:?}");
    };
    assert!(
        name.starts_with("memtrace-true-") && name.ends_with(".mtr"),
        "{name}"
    );
    let path = fixture.path(name);
    let mode = fs::metadata(&path)
        .expect("the file is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    report(&path);
}

#[test]
fn exec_by_another_thread_than_the_leader() {
    let fixture = Fixture::new();
    let report = Record::launch(&fixture, &[], [&targets::program("thread_exec.c")]).finish(5);
    let sites = report.sites("heap");
    let counts = |name: &str| {
        let of_name = sites.iter().find(|((_, site), _)| site == name);
        of_name
            .map(|(_, counts)| *counts)
            .expect("the site is reported")
    };
    assert_eq!(
        counts("after_exec"),
        Counts {
            live_bytes: 100_000,
            live_count: 1000,
            alloc_bytes: 100_000,
            alloc_count: 1000,
        }
    );
    // The memory of the old image is gone with it, its allocations still count.
    let before = counts("before_exec");
    assert_eq!((before.live_count, before.alloc_count), (0, 10));
    report.expect_no_losses(0);
}

#[test]
fn a_recording_may_end_before_its_command() {
    let fixture = Fixture::new();
    let command = ["sh", "-c", "read line; exit 3"];
    let mut record = Record::launch(&fixture, &["-d", "300ms"], command);
    // The recording ends by itself, the command only at the end of its input.
    record.running.await_stderr("memtrace: next: ");
    report(&record.file);
    record.running.close_stdin();
    record.finish(3);
}

/// Before it is attached, the command runs as any other process.
#[test]
fn a_recording_that_begins_late_attaches_to_the_command() {
    let fixture = Fixture::new();
    let script = "echo begun; read line; exit 7";
    let mut record = Record::launch(
        &fixture,
        &["--start-after", "SIGUSR1"],
        ["sh", "-c", script],
    );
    record
        .running
        .await_stderr("memtrace: recording begins at SIGUSR1");
    record.running.await_stdout("begun");
    record.running.signal(libc::SIGUSR1);
    record.running.await_stderr("memtrace: recording to");
    record.running.send("go on\n");
    let report = record.finish(7);
    let process = report.processes.first().expect("one process");
    assert_eq!(process.origin, "attached");
    assert_eq!(process.exit_status, Some(7 << 8));
}

/// The call is awaited in a command that does nothing until it is sent a line.
#[track_caller]
fn begin_at(when: &str, command: &[&OsStr], is_watched: impl Fn(u32) -> bool) {
    let fixture = Fixture::new();
    let mut record = Record::launch(&fixture, &["--start-after", when], command);
    record
        .running
        .await_stderr("memtrace: recording begins when");
    record.running.await_stdout("begun");
    let memtrace = record.running.pid();
    // The first one: memtrace starts its helpers later.
    let child = until("the command", || children(memtrace).into_iter().min());
    until("the watch", || is_watched(memtrace).then_some(()));
    assert!(!record.file.exists(), "{when}");
    record.running.send("call\n");
    record
        .running
        .await_stderr(&format!("memtrace: process {child} "));
    record.running.await_stderr("memtrace: recording to");
    record.running.send("return\n");
    let report = record.finish(7);
    let process = report.processes.first().expect("one process");
    assert_eq!(process.origin, "attached", "{when}");
}

#[test]
fn a_recording_begins_at_the_call_of_a_function() {
    let program = targets::program("awaited.c");
    begin_at("awaited_step", &[program.as_os_str()], |memtrace| {
        Loaded::by(memtrace).attached() == 1
    });
}

#[test]
fn a_recording_begins_at_a_call_or_line_of_python() {
    let script = targets::source("python/awaited.py");
    let command = [OsStr::new("/usr/bin/python3"), script.as_os_str()];
    for when in [
        "step",
        "Trainer.step",
        "awaited.py:8",
        "python/awaited.py:9",
    ] {
        begin_at(when, &command, |_| true);
    }
}

#[test]
fn a_command_that_ends_before_its_recording_keeps_its_status() {
    let fixture = Fixture::new();
    for when in ["1h", "rss>1t", "SIGUSR1", "no_such_function", "none.py:1"] {
        let record = Record::launch(&fixture, &["--start-after", when], ["sh", "-c", "exit 7"]);
        let finished = record.running.wait().expect_code(7);
        assert!(
            finished.stderr.contains("nothing was recorded"),
            "{finished:#?}"
        );
        assert!(!record.file.exists());
    }
}
