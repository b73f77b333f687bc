//! The same counts with other allocators than libc's: preloaded, and linked in.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Bench,
    record::Record,
    report::Report,
    targets::{self, Allocator, JEMALLOC, MIMALLOC, TCMALLOC},
    truth::Truth,
};
use std::ffi::OsString;

/// Launches a command with an allocator preloaded into it, not into memtrace.
fn launch(bench: &Bench, allocator: Allocator, command: &[OsString]) -> Report {
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(allocator.path());
    let mut whole = vec!["env".into(), preload];
    whole.extend_from_slice(command);
    Record::launch(bench, &[], whole).finish(7)
}

fn malloc_family(allocator: Allocator) {
    let bench = Bench::new();
    let truth = bench.path("truth");
    let report = launch(
        &bench,
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
    let bench = Bench::new();
    let truth = bench.path("truth");
    let target = targets::program("cxx.cc").into();
    let report = launch(
        &bench,
        allocator,
        &[target, "run".into(), truth.clone().into()],
    );
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
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
    let bench = Bench::new();
    let truth = bench.path("truth");
    let report = Record::launch(&bench, &[], [&targets::rust_jemalloc(), &truth]).finish(0);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// The symbols of a static program are those of its own file.
#[test]
fn musl_linked_and_inside() {
    let bench = Bench::new();
    for inside in [false, true] {
        let truth = bench.path(&format!("truth-{inside}"));
        let target = targets::musl("musl.c", inside);
        let report = Record::launch(&bench, &[], [&target, &truth]).finish(7);
        report.expect_exact(&Truth::read(&truth));
        // musl has no call frame information: its stacks end at the caller of main.
        report.expect_no_losses_but(&[Reason::StackNoRow], 0);
    }
}

/// `free_aligned_sized` → `free_sized` → `free` → libc's: one release each.
#[test]
fn an_allocator_that_the_user_names() {
    let bench = Bench::new();
    let truth = bench.path("truth");
    let target = targets::program("own_allocator.c");
    let option = format!("--allocator={}:own_", target.display());
    let report = Record::launch(&bench, &[option.as_str()], [&target, &truth]).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
    assert_eq!(report.loss(Reason::UnknownFree), 0);
}
