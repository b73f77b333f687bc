//! The same counts with allocators other than libc's: preloaded, and linked in.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture,
    record::{Record, report},
    report::Report,
    running::Running,
    targets::{self, Allocator, JEMALLOC, MIMALLOC, TCMALLOC},
    truth::Truth,
};
use std::{ffi::OsString, process::Command};

/// Launches a command with an allocator preloaded into it, not into memtrace.
fn launch(fixture: &Fixture, allocator: Allocator, command: &[OsString]) -> Report {
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(allocator.path());
    let mut whole = vec!["env".into(), preload];
    whole.extend_from_slice(command);
    Record::launch(fixture, &[], whole).finish(7)
}

fn malloc_family(allocator: Allocator) {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let report = launch(
        &fixture,
        allocator,
        &[
            targets::program("exact.c").into(),
            "run".into(),
            truth.clone().into(),
            targets::library("constructor.c").into(),
        ],
    );
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

fn operators(allocator: Allocator) {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::program("cxx.cc").into();
    let report = launch(
        &fixture,
        allocator,
        &[target, "run".into(), truth.clone().into()],
    );
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// An operator new that throws is followed like any other, and its exception reaches the handler.
fn bad_alloc(fixture: &Fixture, command: &[OsString]) {
    let truth = fixture.path("truth");
    let mut whole = command.to_vec();
    whole.extend(["throw".into(), truth.clone().into()]);
    let report = Record::launch(fixture, &[], whole).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
    assert_eq!(report.loss(Reason::UnknownFree), 0);
}

#[test]
fn a_bad_alloc_passes_preloaded_operators() {
    for allocator in [JEMALLOC, TCMALLOC] {
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(allocator.path());
        let target = targets::program("cxx.cc").into();
        bad_alloc(&Fixture::new(), &["env".into(), preload, target]);
    }
}

#[test]
fn a_bad_alloc_passes_linked_operators() {
    for allocator in [JEMALLOC, TCMALLOC] {
        let target = targets::linked_program("cxx.cc", allocator);
        bad_alloc(&Fixture::new(), &[target.into()]);
    }
}

/// Without stops, an exception could not pass: the function is left out, reported and counted.
#[test]
fn without_stops_a_throwing_operator_is_left_out() {
    let fixture = Fixture::new();
    let mut command = Command::new("cat");
    let mut target = Running::start(command.env("LD_PRELOAD", JEMALLOC.path()));
    target.send("runs\n");
    target.await_stdout("runs");
    let record = Record::attach(&fixture, target.pid(), &["--no-stop"]);
    let file = record.file.clone();
    record.running.signal(libc::SIGINT);
    let finished = record.running.wait().expect_code(0);
    assert!(
        finished.stderr.contains("operator new of") && finished.stderr.contains("--no-stop"),
        "{finished:#?}"
    );
    assert_eq!(report(&file).loss(Reason::OperatorNewLeftOut), 1);
}

macro_rules! preloaded {
    ($name:ident, $allocator:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn malloc_family() {
                super::malloc_family($allocator);
            }

            #[test]
            fn operators() {
                super::operators($allocator);
            }
        }
    };
}

preloaded!(jemalloc, JEMALLOC);
preloaded!(tcmalloc, TCMALLOC);
preloaded!(mimalloc, MIMALLOC);

#[test]
fn rust_with_jemalloc_inside() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let report = Record::launch(&fixture, &[], [&targets::rust_jemalloc(), &truth]).finish(0);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// The symbols of a static program are those of its own file.
#[test]
fn musl_linked_and_inside() {
    let fixture = Fixture::new();
    for inside in [false, true] {
        let truth = fixture.path(&format!("truth-{inside}"));
        let target = targets::musl("musl.c", inside);
        let report = Record::launch(&fixture, &[], [&target, &truth]).finish(7);
        report.expect_exact(&Truth::read(&truth));
        // musl has no call frame information: its stacks end at the caller of main.
        report.expect_no_losses_but(&[Reason::StackNoRow], 0);
    }
}

/// `free_aligned_sized` → `free_sized` → `free` → libc's: one release each.
#[test]
fn an_allocator_that_the_user_names() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::program("own_allocator.c");
    let option = format!("--allocator={}:own_", target.display());
    let report = Record::launch(&fixture, &[option.as_str()], [&target, &truth]).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
    assert_eq!(report.loss(Reason::UnknownFree), 0);
}
