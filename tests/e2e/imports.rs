//! What a Python module does when it is imported by a program that starts is one frame, and whole on request. The
//! figures are the same.

use memtrace_tests::{
    Fixture,
    record::Record,
    report::{Frame, Report, ReportedSite},
};
use std::fs;

/// Blocks of these sizes are `malloc`'s.
const MODULE: &str = "
def fill():
    return [bytes(5000 + i) for i in range(300)]

kept = fill()

def work():
    return [bytes(9000 + i) for i in range(200)]
";

/// Work in the import of a module and after it.
const PROGRAM: &str = "
import shelf
kept = shelf.work()
";

fn recorded(fixture: &Fixture, options: &[&str]) -> Report {
    fs::write(fixture.path("shelf.py"), MODULE).expect("a module");
    fs::write(fixture.path("main.py"), PROGRAM).expect("a program");
    let main = fixture.path("main.py");
    let command = ["/usr/bin/python3".as_ref(), "-B".as_ref(), main.as_os_str()];
    let report = Record::launch(fixture, options, command).finish(0);
    report.expect_balance();
    report
}

fn is_in(frame: &Frame, function: &str) -> bool {
    let name = frame.function.as_deref();
    frame.kind == "python" && name.is_some_and(|name| name.split('.').next() == Some(function))
}

/// Sites with a block of the module's.
fn of_shelf(report: &Report) -> impl Iterator<Item = &ReportedSite> {
    report.sites.iter().filter(|site| {
        let mut files = site.frames.iter().filter_map(|frame| frame.file.as_deref());
        site.layer == "heap" && files.any(|file| file.ends_with("/shelf.py"))
    })
}

/// Its stack reaches the beginning of the interpreter.
fn is_begun(site: &ReportedSite) -> bool {
    let mut frames = site.frames.iter();
    frames.any(|frame| frame.function.as_deref() == Some("Py_BytesMain"))
}

fn python(site: &ReportedSite) -> Vec<&Frame> {
    let frames = site.frames.iter();
    frames.filter(|frame| frame.kind == "python").collect()
}

#[test]
fn an_import_is_one_frame() {
    let fixture = Fixture::new();
    let report = recorded(&fixture, &[]);
    let importing: Vec<&ReportedSite> = of_shelf(&report)
        .filter(|site| site.frames.iter().any(|frame| is_in(frame, "<module>")))
        .filter(|site| !site.frames.iter().any(|frame| is_in(frame, "work")))
        .collect();
    let blocks: u64 = importing.iter().map(|site| site.counts.alloc_count).sum();
    assert!(blocks >= 300, "{importing:?}");
    for site in importing {
        let python = python(site);
        assert_eq!(python.len(), 2, "{site:?}");
        assert!(
            is_in(python[0], "<module>") && python[0].line == Some(1),
            "{site:?}"
        );
        let file = python[1].file.as_deref();
        assert!(file.is_some_and(|file| file.starts_with("<frozen importlib.")));
    }
    let working = of_shelf(&report)
        .find(|site| is_in(python(site)[0], "work") || is_in(python(site)[1], "work"));
    let working = working.expect("a site of the work after the import");
    assert!(working.counts.alloc_count >= 200, "{working:?}");
    let main = python(working).pop().and_then(|frame| frame.file.clone());
    assert!(
        main.is_some_and(|file| file.ends_with("/main.py")),
        "{working:?}"
    );
}

#[test]
fn an_import_is_whole_on_request() {
    let fixture = Fixture::new();
    let report = recorded(&fixture, &["--imports"]);
    let filling =
        of_shelf(&report).find(|site| site.frames.iter().any(|frame| is_in(frame, "fill")));
    let filling = filling.expect("a site of the function that the module calls");
    assert!(filling.counts.alloc_count >= 300, "{filling:?}");
    let main = python(filling).pop().and_then(|frame| frame.file.clone());
    assert!(
        main.is_some_and(|file| file.ends_with("/main.py")),
        "{filling:?}"
    );
}

#[test]
fn without_python_frames_an_import_is_one_frame_too() {
    let fixture = Fixture::new();
    let report = recorded(&fixture, &["--no-python"]);
    let importing: Vec<&ReportedSite> = of_shelf(&report).collect();
    let blocks: u64 = importing.iter().map(|site| site.counts.alloc_count).sum();
    assert!(blocks >= 300, "{importing:?}");
    for site in importing {
        let names: Vec<_> = python(site)
            .iter()
            .map(|frame| frame.function.clone())
            .collect();
        assert!(
            names.len() == 2 && is_in(python(site)[0], "<module>"),
            "{names:?}"
        );
    }
    let heap = report.sites.iter().filter(|site| site.layer == "heap");
    let others: Vec<&ReportedSite> = heap
        .filter(|site| python(site).is_empty())
        .filter(|site| is_begun(site))
        .collect();
    let blocks: u64 = others.iter().map(|site| site.counts.alloc_count).sum();
    assert!(
        blocks >= 200,
        "the work after the import has {blocks} blocks"
    );

    let report = recorded(&fixture, &["--no-python", "--imports"]);
    let with_python = report.sites.iter().find(|site| !python(site).is_empty());
    assert!(with_python.is_none(), "{with_python:?}");
    let filling = |site: &&ReportedSite| site.counts.alloc_count == 300 && is_begun(site);
    assert!(
        report.sites.iter().any(|site| filling(&site)),
        "no whole stack of an import"
    );
}

/// A worker that is forked within an import.
const FORKING: &str = "
import os
worker = os.fork()
if worker == 0:
    kept = [bytes(7000 + i) for i in range(400)]
    os._exit(0)
os.waitpid(worker, 0)
";

#[test]
fn a_forked_worker_has_no_python_frames_if_none_are_wanted() {
    let fixture = Fixture::new();
    fs::write(fixture.path("pool.py"), FORKING).expect("a module");
    fs::write(fixture.path("main.py"), "import pool").expect("a program");
    let main = fixture.path("main.py");
    let command = ["/usr/bin/python3".as_ref(), "-B".as_ref(), main.as_os_str()];
    let report = Record::launch(&fixture, &["--no-python"], command).finish(0);
    report.expect_balance();
    let launched = |tgid| {
        let mut processes = report.processes.iter();
        processes.any(|process| process.tgid == tgid && process.origin == "launched")
    };
    let (own, workers): (Vec<_>, Vec<_>) =
        report.sites.iter().partition(|site| launched(site.tgid));
    assert!(own.iter().any(|site| !python(site).is_empty()), "{own:?}");
    let allocating = workers.iter().filter(|site| site.counts.alloc_count > 0);
    let allocating: Vec<_> = allocating.collect();
    assert!(
        allocating.iter().any(|site| site.counts.alloc_count >= 400),
        "{allocating:?}"
    );
    let with_python = allocating.iter().find(|site| !python(site).is_empty());
    assert!(with_python.is_none(), "{with_python:?}");
}

/// Recurses too deep for a record with Python frames, again and again.
const DEEP: &str = "
import sys, time
sys.setrecursionlimit(3000)
kept = []
def deeper(left):
    if left:
        deeper(left - 1)
    else:
        kept.append(bytearray(6000))
for _ in range(200):
    deeper(1500)
    time.sleep(0.01)
";

/// While imports are summarised, the kernel side finds Python frames that nobody wants.
#[test]
fn deep_stacks_are_soon_whole_without_python_frames() {
    let fixture = Fixture::new();
    fs::write(fixture.path("main.py"), DEEP).expect("a program");
    let main = fixture.path("main.py");
    let command = ["/usr/bin/python3".as_ref(), "-B".as_ref(), main.as_os_str()];
    let report = Record::launch(&fixture, &["--no-python"], command).finish(0);
    let of_recursion = report.sites.iter().filter(|site| {
        let counts = &site.counts;
        site.layer == "heap"
            && counts.alloc_count >= 20
            && (6000..6100).contains(&(counts.alloc_bytes / counts.alloc_count))
    });
    let whole = of_recursion.clone().find(|site| is_begun(site));
    let all: Vec<_> = of_recursion.collect();
    assert!(whole.is_some(), "{all:?}");
}
