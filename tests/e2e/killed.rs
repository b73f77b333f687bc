//! kill -9 of memtrace while it records: what was recorded stays readable up
//! to the last interval, and the target does not suffer.

use memtrace_tests::{
    Bench,
    kernel::{patched_bytes, stopped_children},
    progress::Progress,
    record::{Record, report, try_report},
    report::Report,
    running::Running,
    targets, until,
};
use std::{os::unix::process::ExitStatusExt, process::Command};

const OPTIONS: [&str; 2] = ["--interval", "200ms"];

/// Waits for an interval in the file, kills memtrace and opens the file again.
fn kill(record: &mut Record, pid: u32, progress: &Progress) {
    progress.await_rounds(1);
    let seen = until("an interval in the recording", || {
        // Before its first interval there is nothing to report.
        let report = try_report(&record.file).ok()?;
        let count = allocations(&report);
        (count > 0).then_some(count)
    });
    record.running.signal(libc::SIGKILL);
    assert_eq!(record.running.end().signal(), Some(libc::SIGKILL));
    let report = report(&record.file);
    assert!(allocations(&report) >= seen);
    assert!(report.processes.iter().any(|process| process.tgid == pid));
    assert!(!report.sites("heap").is_empty(), "totals without sites");
}

/// Heap allocations of all processes.
fn allocations(report: &Report) -> u64 {
    let heaps = report.totals.iter().filter(|total| total.layer == "heap");
    heaps.map(|total| total.alloc_count).sum()
}

#[test]
fn attached_to_a_busy_program() {
    let bench = Bench::new();
    let progress = Progress::new(&bench);
    let mut target = Running::start(Command::new(targets::program("busy.cc")).arg(progress.path()));
    let mut record = Record::attach(&bench, target.pid(), &OPTIONS);
    kill(&mut record, target.pid(), &progress);
    target.expect_alive();
    until("the end of every breakpoint", || {
        (patched_bytes(target.pid()) == 0).then_some(())
    });
    progress.await_rounds(100);
}

#[test]
fn around_a_launched_program() {
    let bench = Bench::new();
    let progress = Progress::new(&bench);
    let target = targets::program("busy.cc");
    let mut record = Record::launch(&bench, &OPTIONS, [&target, progress.path()]);
    let pid = progress.pid();
    kill(&mut record, pid, &progress);
    progress.await_rounds(100);
}

/// Children are stopped at their first instruction until memtrace has seen to
/// them: one that waits at the moment of the kill must not wait for ever.
#[test]
fn no_forked_child_stays_stopped() {
    let bench = Bench::new();
    let forker = targets::program("forker.c");
    for _ in 0..3 {
        let progress = Progress::new(&bench);
        let mut target = Running::start(Command::new(&forker).arg(progress.path()));
        let mut record = Record::attach(&bench, target.pid(), &OPTIONS);
        kill(&mut record, target.pid(), &progress);
        progress.await_rounds(20);
        target.expect_alive();
        until("no stopped child", || {
            stopped_children(target.pid()).is_empty().then_some(())
        });
    }
}

#[test]
fn no_forked_child_of_a_launched_program_stays_stopped() {
    let bench = Bench::new();
    let progress = Progress::new(&bench);
    let mut record = Record::launch(
        &bench,
        &OPTIONS,
        [&targets::program("forker.c"), progress.path()],
    );
    let pid = progress.pid();
    kill(&mut record, pid, &progress);
    progress.await_rounds(20);
    until("no stopped child", || {
        stopped_children(pid).is_empty().then_some(())
    });
}
