//! Attaching to and detaching from busy processes, over and over: they keep working, and no trace of it remains in them
//! or in the kernel.

use memtrace_tests::{
    Fixture,
    kernel::{Loaded, patched_bytes},
    progress::Progress,
    record::Record,
    running::Running,
    storm::Storm,
    targets,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    time::Duration,
};

/// A thread that memtrace holds is released after 5 s whatever happens. On a busy machine, shorter pauses are mostly
/// spent waiting for a processor.
const LONGEST_GAP: Duration = Duration::from_secs(3);

/// How often: `MEMTRACE_ATTACHES`. Each time takes seconds, most of them the kernel's.
fn times() -> u32 {
    let given = std::env::var("MEMTRACE_ATTACHES").ok();
    given.map_or(8, |times| times.parse().expect("a number"))
}

fn attach_and_detach(command: &mut Command) {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let mut target = Running::start(command.arg(progress.path()));
    progress.await_rounds(1);
    for time in 1..=times() {
        let record = Record::attach(&fixture, target.pid(), &[]);
        let loaded = Loaded::by(record.running.pid());
        assert!(
            patched_bytes(target.pid()) > 0,
            "no breakpoint: nothing is traced"
        );
        progress.await_rounds(10);
        let report = record.stop();
        assert!(
            report.total(target.pid(), "heap").alloc_count > 0,
            "time {time}"
        );

        loaded.expect_gone();
        target.expect_alive();
        assert_eq!(
            patched_bytes(target.pid()),
            0,
            "breakpoints left, time {time}"
        );
        progress.await_rounds(10);
    }
}

#[test]
fn again_and_again_to_a_busy_multithreaded_program() {
    attach_and_detach(&mut Command::new(targets::program("busy.cc")));
}

#[test]
fn again_and_again_to_a_busy_python() {
    attach_and_detach(&mut targets::python("busy.py"));
}

#[test]
fn a_bystander_has_unmodified_code() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let busy = targets::program("busy.cc");
    let traced = Running::start(Command::new(&busy).arg(progress.path()));
    // One started before tracing, and one started while tracing: the same program and the same libraries.
    let before_progress = fixture.path("before");
    let meanwhile_progress = fixture.path("meanwhile");
    for path in [&before_progress, &meanwhile_progress] {
        std::fs::write(path, [0; 16]).expect("the folder is writable");
    }
    let before = Running::start(Command::new(&busy).arg(&before_progress));
    progress.await_rounds(1);

    let record = Record::attach(&fixture, traced.pid(), &[]);
    let meanwhile = Running::start(Command::new(&busy).arg(&meanwhile_progress));
    progress.await_rounds(50);
    assert!(
        patched_bytes(traced.pid()) > 0,
        "no breakpoint: nothing is traced"
    );
    assert_eq!(patched_bytes(before.pid()), 0);
    assert_eq!(patched_bytes(meanwhile.pid()), 0);
    let report = record.stop();
    let tgids: Vec<_> = report
        .processes
        .iter()
        .map(|process| process.tgid)
        .collect();
    assert_eq!(tgids, [traced.pid()]);
}

#[test]
fn two_processes_in_one_recording() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let first = Running::start(Command::new(targets::program("busy.cc")).arg(progress.path()));
    progress.await_rounds(1);
    let other = fixture.path("other");
    std::fs::write(&other, [0; 16]).expect("the folder is writable");
    let second = Running::start(targets::python("busy.py").arg(&other));

    let record = Record::attach(&fixture, first.pid(), &["-p", &second.pid().to_string()]);
    progress.await_rounds(50);
    memtrace_tests::until("rounds of the second", || {
        let bytes = std::fs::read(&other).ok()?;
        (bytes.iter().any(|&byte| byte != 0)).then_some(())
    });
    let report = record.stop();
    for target in [&first, &second] {
        assert!(report.total(target.pid(), "heap").alloc_count > 0);
    }
}

#[test]
fn again_and_again_to_a_job_that_makes_processes_all_the_time() {
    let fixture = Fixture::new();
    let storm = Storm::new(&fixture);
    let mut running = storm.start();
    let pid = storm.pid();
    storm.mark().longest_gap();
    for time in 1..=times().div_ceil(4) {
        let stay: BTreeSet<u32> = storm.pids().into_iter().collect();
        let mark = storm.mark();
        let record = Record::attach(&fixture, pid, &["--no-fold"]);
        let loaded = Loaded::by(record.running.pid());
        // While probes are being set, and then while it is recorded.
        let gap = mark.longest_gap().max(storm.mark().longest_gap());
        let report = record.stop();
        assert!(gap <= LONGEST_GAP, "time {time}: {gap:?}");
        let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
        for process in &report.processes {
            *seen.entry(process.tgid).or_default() += 1;
        }
        for pid in &stay {
            assert_eq!(seen.get(pid), Some(&1), "time {time}, process {pid}");
        }
        assert!(seen.len() > stay.len(), "time {time}: no other was seen");
        loaded.expect_gone();
        running.expect_alive();
    }
}
