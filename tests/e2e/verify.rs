//! memtrace's checks of itself while it records.

use memtrace_tests::{Fixture, record, running::Running, targets};
use serde_json::Value;
use std::{ffi::OsStr, process::Command};

/// Records a target with many functions, threads and children; returns the [`reported`] values.
fn checked(options: &[&str], key: &str) -> Value {
    let fixture = Fixture::new();
    let mut command = record::command(["record", "-f", "-o"]);
    command
        .arg(fixture.path("verify.mtr"))
        .args(options)
        .arg("--")
        .arg(targets::program("exact.c"))
        .arg("run")
        .arg(fixture.path("truth"))
        .arg(targets::library("constructor.c"));
    findings(&mut command, key, 7)
}

/// The line of standard error that begins with `key`.
fn findings(command: &mut Command, key: &str, code: i32) -> Value {
    let finished = Running::start(command).wait().expect_code(code);
    let line = finished
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .expect("memtrace reports its findings");
    serde_json::from_str(line).expect("it is JSON")
}

#[test]
fn another_unwinder_finds_the_same_stacks() {
    expect_agreement(&checked(&["--verify-stacks", "1"], "verified: "));
}

/// The findings while every Nth stack of a command is verified.
fn verified(every: &str, arguments: &[&OsStr]) -> Value {
    let fixture = Fixture::new();
    let mut command = record::command(["record", "-f", "--verify-stacks", every, "-o"]);
    command
        .arg(fixture.path("verify.mtr"))
        .arg("--")
        .args(arguments);
    findings(&mut command, "verified: ", 0)
}

/// The same for a program of Python's.
fn verified_python(program: &str) -> Value {
    verified("10", &["/usr/bin/python3", "-c", program].map(OsStr::new))
}

/// Python's frames, which it does not see, do not count as differences.
#[test]
fn another_unwinder_finds_the_same_stacks_below_python() {
    expect_agreement(&verified_python(
        "import json; json.dumps(json.loads('[[1, 2], {\"a\": [3]}]'))",
    ));
}

/// Python functions that call each other at different places, again and again, and code objects that come and go.
#[test]
fn recognized_walks_have_the_same_stacks_when_made_again() {
    let verified = verified_python(
        "def leaf(n): return bytes(n)\n\
         def inner(n): return leaf(n), [leaf(n) for _ in range(2)]\n\
         def yields(n):\n\
        \x20   while True: yield leaf(n)\n\
         kept = yields(5000)\n\
         for i in range(200):\n\
        \x20   inner(3000); leaf(4000); next(kept); next(yields(6000))\n\
        \x20   exec(compile(f'def made(): return bytes({7000 + i % 3})', 'made', 'exec')); made()\n",
    );
    // Five of its places are the same in each turn.
    expect_recognized(&verified, 500);
}

/// A walk that ends at such an address depends on more than the words of its frames.
#[test]
fn walks_that_end_at_a_zero_are_not_recognized_as_others() {
    let program = targets::program("zero_return.c");
    // Those with a caller.
    expect_recognized(&verified("1", &[program.as_os_str()]), 40);
}

/// Two in each turn are of the inner allocator and two of the outer one.
#[test]
fn walks_below_another_allocator_are_recognized() {
    let program = targets::program("nested_layers.c");
    let folder = targets::fake_devices();
    let verified = verified("1", &[program.as_os_str(), folder.as_os_str()]);
    expect_recognized(&verified, 700);
}

/// No difference, and more than so many walks recognized.
#[track_caller]
fn expect_recognized(verified: &Value, least: u64) {
    expect_agreement(verified);
    let recognized = verified["recognized"].as_u64().expect("a number");
    assert!(recognized > least, "{verified}");
}

#[track_caller]
fn expect_agreement(verified: &Value) {
    let count = |key: &str| verified[key].as_u64().expect("a number");
    assert!(count("whole") > 0, "{verified}");
    assert_eq!(count("mismatches"), 0, "{verified}");
    // The greater part: every comparable stack was compared to its end.
    assert!(count("whole") * 2 > count("stacks"), "{verified}");
}

#[test]
fn walks_are_timed_by_depth() {
    let timings = checked(&["--time-walks"], "timings: ");
    let rows = timings.as_array().expect("a row for each range of depths");
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["walks"].as_u64() > Some(0), "{row}");
        assert!(row["least_frames"].as_u64() > Some(0), "{row}");
        assert!(row["walk_ns"]["p50"].as_u64() <= row["walk_ns"]["p99"].as_u64());
        assert!(row["stackid_ns"]["p50"].as_u64() <= row["stackid_ns"]["p99"].as_u64());
    }
}
