//! Stacks are the true ones, whatever the code was built by, and stay readable
//! without it.
#![allow(
    clippy::expect_used,
    reason = "test code: a panic is how a test fails, stderr how it tells"
)]

use memtrace_common::{loss::Reason, unwind::End};
use memtrace_tests::{
    Bench,
    record::Record,
    report::Report,
    stack_builds::{self, Build},
    stacks::{self, Gap},
};
use std::{ffi::OsString, path::PathBuf};

/// The dynamic linker's trampoline keeps its caller's frame in a register that
/// walks do not carry.
const BEHIND_THE_TRAMPOLINE: Gap = Gap {
    path: "plugin_resolver<",
    end: End::UnsupportedRule,
};

/// A launched target reports its stacks as it saw them itself.
fn true_stacks(program: PathBuf, library: Option<PathBuf>) {
    let bench = Bench::new();
    let truth = bench.path("truth");
    let command = [Some(program), Some(truth.clone()), library];
    let command: Vec<OsString> = command.into_iter().flatten().map(Into::into).collect();
    let report = Record::launch(&bench, &[], command).finish(7);
    let truth = stacks::read(&truth);
    expect_every_stack(&report);
    stacks::expect_same(&report, &truth, &[BEHIND_THE_TRAMPOLINE]);
}

/// Each allocation has a stack, if not a whole one.
fn expect_every_stack(report: &Report) {
    report.expect_balance();
    for reason in [
        Reason::RingFullStack,
        Reason::UnknownStack,
        Reason::ScratchBusy,
    ] {
        assert_eq!(report.loss(reason), 0, "{}", reason.name());
    }
}

fn dynamic(compiler: &'static str, flags: &'static [&'static str]) {
    let [program, plugin] = stack_builds::dynamic(Build { compiler, flags });
    true_stacks(program, Some(plugin));
}

#[test]
fn gcc_without_frame_pointers() {
    dynamic("gcc", &["-O2", "-fomit-frame-pointer"]);
}

#[test]
fn clang_without_frame_pointers() {
    dynamic("clang", &["-O2", "-fomit-frame-pointer"]);
}

#[test]
fn gcc_with_frame_pointers() {
    dynamic("gcc", &["-O2", "-fno-omit-frame-pointer"]);
}

#[test]
fn gcc_without_optimisation() {
    dynamic("gcc", &["-O0"]);
}

#[test]
fn gcc_at_a_fixed_address() {
    dynamic(
        "gcc",
        &["-O2", "-fomit-frame-pointer", "-no-pie", "-fno-pie"],
    );
}

#[test]
fn gcc_with_realigned_stacks_and_lazy_binding() {
    dynamic(
        "gcc",
        &[
            "-O2",
            "-fomit-frame-pointer",
            "-mstackrealign",
            "-Wl,-z,lazy",
        ],
    );
}

#[test]
fn linked_statically() {
    true_stacks(stack_builds::inseparable(&["-static"]), None);
}

#[test]
fn linked_statically_at_any_address() {
    true_stacks(stack_builds::inseparable(&["-static-pie", "-fPIE"]), None);
}

#[test]
fn musl() {
    true_stacks(stack_builds::musl(&[]), None);
}

#[test]
fn musl_linked_statically() {
    true_stacks(stack_builds::musl(&["-static"]), None);
}

#[test]
fn rust() {
    true_stacks(stack_builds::rust(), None);
}
