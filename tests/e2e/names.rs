//! Names are read by a process of their own, which may be killed.

use std::fs;

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Bench,
    kernel::children,
    record::{self, Record},
    report::Report,
    targets, until,
};

/// The processes that read symbols for a recording.
fn readers(record: &Record) -> Vec<u32> {
    let is_reader = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        comm.trim() == "name-symbols" && !state.contains(") Z")
    };
    let children = children(record.running.pid()).into_iter();
    children.filter(is_reader).collect()
}

fn has(report: &Report, site: &str) -> bool {
    let mut sites = report.sites.iter();
    sites.any(|of| of.layer == "heap" && of.name() == Some(site))
}

#[test]
fn names_survive_the_process_that_reads_them() {
    let bench = Bench::new();
    let options = ["--interval", "50ms"];
    let mut record = Record::launch(&bench, &options, [targets::program("named.c")]);
    record.running.await_stdout("ready");
    record.running.send("1");
    let named = |site: &'static str| {
        let file = record.file.clone();
        move || {
            record::try_report(&file)
                .ok()
                .filter(|report| has(report, site))
        }
    };
    until("the name of the first site", named("first"));
    let reader = until("the process that reads symbols", || readers(&record).pop());
    // It has no rights and little memory.
    let status = fs::read_to_string(format!("/proc/{reader}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000004"), "{status}");
    let limits = fs::read_to_string(format!("/proc/{reader}/limits")).unwrap();
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"));
    assert!(
        data.is_some_and(|line| line.contains("268435456")),
        "{limits}"
    );

    // SAFETY: no memory is involved.
    unsafe { libc::kill(reader.cast_signed(), libc::SIGKILL) };
    until("its end", || readers(&record).is_empty().then_some(()));
    record.running.send("2");
    until("the name of the second site", named("second"));
    assert_ne!(readers(&record), [reader]);
    record.running.close_stdin();
    let report = record.finish(7);
    assert!(has(&report, "first") && has(&report, "second"));
    assert_eq!(report.loss(Reason::NamesBudget), 0);
}
