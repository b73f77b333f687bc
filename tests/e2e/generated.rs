//! Code that no file holds is walked by frame pointers and named by perf maps.
#![allow(
    clippy::expect_used,
    reason = "test code: a panic is how a test fails, stderr how it tells"
)]

use std::fs;

use memtrace_common::unwind::End;
use memtrace_tests::{
    Bench,
    record::{self, Record},
    report::{Report, ReportedSite},
    targets, until,
};

/// Bytes of the blocks that are allocated below the generated code.
const BLOCK: u64 = 111;

fn of_block(report: &Report) -> Vec<&ReportedSite> {
    let sites = report.sites.iter();
    sites
        .filter(|site| site.layer == "heap")
        .filter(|site| site.counts.alloc_bytes == site.counts.alloc_count * BLOCK)
        .collect()
}

fn functions(site: &ReportedSite) -> Vec<&str> {
    let frames = site.physical().into_iter();
    frames
        .map(|frame| frame.function.as_deref().unwrap_or("?"))
        .collect()
}

const WHOLE: [&str; 4] = ["allocate", "generated_function", "run", "main"];

/// A perf map outlives its process; the test does not leave it behind.
struct PerfMap(String);

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn recorded(how: &str, options: &[&str], run: impl FnOnce(&Record)) -> Report {
    let bench = Bench::new();
    let program = targets::program("generated.c");
    let mut record = Record::launch(&bench, options, [program.as_os_str(), how.as_ref()]);
    record.running.await_stdout("ready");
    run(&record);
    record.running.close_stdin();
    let report = record.finish(7);
    for process in &report.processes {
        drop(PerfMap(format!("/tmp/perf-{}.map", process.tgid)));
    }
    report
}

#[test]
fn code_in_executable_memory() {
    let report = recorded("executable", &[], |_| {});
    let sites = of_block(&report);
    assert_eq!(sites.len(), 2, "two calls in main: {sites:#?}");
    for site in sites {
        assert!(site.is_complete(), "{site:#?}");
        assert_eq!(functions(site)[..4], WHOLE);
    }
}

/// No mapping call tells of it: the first walks end there and say so, which asks for a look at
/// the mappings.
#[test]
fn code_that_becomes_executable() {
    let report = recorded("protected", &["--interval", "50ms"], |record| {
        let whole = || {
            let report = record::try_report(&record.file).ok()?;
            of_block(&report)
                .iter()
                .any(|site| site.is_complete())
                .then_some(())
        };
        until("a stack through the generated code", whole);
    });
    for site in of_block(&report) {
        let functions = functions(site);
        if site.is_complete() {
            assert_eq!(functions[..4], WHOLE, "{site:#?}");
        } else {
            assert_eq!(site.end(), Some(End::NoMapping), "{site:#?}");
            assert_eq!((functions.len(), functions[0]), (2, WHOLE[0]), "{site:#?}");
        }
    }
}

/// The kernel's own walk serves where the tables cannot.
#[test]
fn frame_pointers_only() {
    let report = recorded("executable", &["--frame-pointers"], |_| {});
    let sites = of_block(&report);
    assert_eq!(sites.len(), 2, "{sites:#?}");
    for site in sites {
        assert_eq!(site.end(), Some(End::FramePointersOnly), "{site:#?}");
        assert_eq!(functions(site)[..4], WHOLE);
    }
}
