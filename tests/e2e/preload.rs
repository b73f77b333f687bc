//! `record --preload`: the same counts through the library's places for probes, in every program that loads it, and
//! without it in those that do not.

use memtrace_tests::{
    Bench,
    record::Record,
    report::{Frame, ReportedSite},
    targets::{self, JEMALLOC},
    truth::Truth,
};
use std::{ffi::OsString, path::PathBuf};

const PRELOAD: &[&str] = &["--preload"];

/// The command of the target that knows what it has allocated, after a prefix.
fn exact(prefix: &[&str], truth: &PathBuf) -> Vec<OsString> {
    let prefix = prefix.iter().map(OsString::from);
    let target = [
        targets::program("exact.c").into(),
        "run".into(),
        truth.into(),
        targets::library("constructor.c").into(),
    ];
    prefix.chain(target).collect()
}

fn expect_exact(prefix: &[&str]) {
    let bench = Bench::new();
    let truth = bench.path("truth");
    let report = Record::launch(&bench, PRELOAD, exact(prefix, &truth)).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

#[test]
fn every_function_thread_child_and_library() {
    expect_exact(&[]);
}

#[test]
fn a_program_without_the_variable_is_probed_as_ever() {
    expect_exact(&["env", "-u", "LD_PRELOAD"]);
}

/// The library comes last, so that another allocator stays the program's.
#[test]
fn a_preloaded_allocator_keeps_its_place() {
    let preload = format!("LD_PRELOAD={}", JEMALLOC.path().display());
    expect_exact(&["env", &preload]);
    let script = format!(
        "LD_PRELOAD={}:$LD_PRELOAD exec \"$@\"",
        JEMALLOC.path().display()
    );
    expect_exact(&["sh", "-c", &script, "sh"]);
}

/// The library's functions come before those of an allocator that the program is linked with, and call them.
#[test]
fn a_linked_allocator_is_called() {
    let bench = Bench::new();
    let truth = bench.path("truth");
    let target = targets::linked_program("cxx.cc", JEMALLOC);
    let command: [OsString; 3] = [target.into(), "run".into(), truth.clone().into()];
    let report = Record::launch(&bench, PRELOAD, command).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// Only malloc calls brk in this program.
#[test]
fn address_space_of_the_allocator_is_known_even_within_imports() {
    let bench = Bench::new();
    let command = ["python3", "-c", "import json, decimal"];
    let report = Record::launch(&bench, PRELOAD, command).finish(0);
    let is_brk = |frame: &Frame| {
        let function = frame.function.as_deref();
        function.is_some_and(|name| name.ends_with("brk") || name == "__brk_call")
    };
    let of_brk: Vec<_> = report
        .sites
        .iter()
        .filter(|site| site.layer == "vm" && site.frames.first().is_some_and(is_brk))
        .collect();
    let in_python = |site: &&ReportedSite| site.frames.iter().any(|frame| frame.kind == "python");
    assert!(of_brk.iter().copied().any(|site| in_python(&site)));
    // The loader's minimal malloc asks for some as well, before there is any library.
    let others = of_brk
        .iter()
        .filter(|site| in_python(site) && !site.by_allocator);
    assert_eq!(others.count(), 0);
}
