//! Code that no file holds is walked by frame pointers and named by perf maps.

use std::fs;

use memtrace_common::unwind::End;
use memtrace_tests::{
    Fixture,
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

/// Records the target until `seen` is in the report: names of generated code are those that its
/// process keeps, so it has to live until they were read.
fn recorded(how: &str, options: &[&str], seen: impl Fn(&ReportedSite) -> bool) -> Report {
    let fixture = Fixture::new();
    let program = targets::program("generated.c");
    let options = [&["--interval", "50ms"], options].concat();
    let mut record = Record::launch(&fixture, &options, [program.as_os_str(), how.as_ref()]);
    record.running.await_stdout("ready");
    until("a stack through the generated code", || {
        let report = record::try_report(&record.file).ok()?;
        of_block(&report).into_iter().any(&seen).then_some(())
    });
    record.running.close_stdin();
    let report = record.finish(7);
    for process in &report.processes {
        drop(PerfMap(format!("/tmp/perf-{}.map", process.tgid)));
    }
    report
}

#[test]
fn code_in_executable_memory() {
    let report = recorded("executable", &[], |_| true);
    for site in of_block(&report) {
        assert!(site.is_complete(), "{site:#?}");
        assert_eq!(functions(site)[..4], WHOLE);
    }
}

/// No mapping call reports it: the first walks end there, which makes the collector read the mappings.
#[test]
fn code_that_becomes_executable() {
    let report = recorded("protected", &[], ReportedSite::is_complete);
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

/// The kernel's own walk serves where the tables cannot; the target keeps no frame pointers.
#[test]
fn frame_pointers_only() {
    let report = recorded("executable", &["--frame-pointers"], |_| true);
    for site in of_block(&report) {
        assert_eq!(site.end(), Some(End::FramePointersOnly), "{site:#?}");
        assert_eq!(functions(site)[0], WHOLE[0]);
    }
}
