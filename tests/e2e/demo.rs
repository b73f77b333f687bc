//! `memtrace demo`: what a newcomer sees first.

use memtrace_tests::{Fixture, record, running::Running};
use std::process::Command;

/// Lines of a terminal.
const SCREEN: usize = 40;

/// Runs an example, and the commands that it names next.
fn demo(example: &str, allocates: &str, keeps: &str) {
    let fixture = Fixture::shared();
    let mut command = record::command(["demo", example]);
    let demo = Running::start(command.current_dir(fixture.folder()));
    let demo = demo.wait().expect_code(0);
    let lines = demo.stderr.lines().chain(demo.stdout.lines()).count();
    assert!(lines < SCREEN, "{demo:#?}");
    for part in ["leak (grade B): ", allocates, keeps] {
        assert!(demo.stdout.contains(part), "{part}: {demo:#?}");
    }
    let (_, next) = demo.stdout.split_once("\nNext:\n").expect("commands");
    assert_eq!(next.lines().count(), 2, "{next}");
    for line in next.lines() {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", line]).current_dir(fixture.folder());
        Running::start(shell).wait().expect_code(0);
    }
    for file in ["memtrace-demo.html", "memtrace-demo.svg"] {
        assert!(fixture.path(file).exists(), "{file}");
    }
}

#[test]
fn the_python_example_ends_with_the_line_and_its_keeper() {
    demo(
        "python",
        "allocated by  load_picture  ",
        "kept by       __main__.CACHE (dict, ",
    );
}

#[test]
fn the_c_example_ends_with_the_line_and_its_keeper() {
    demo(
        "c",
        "allocated by  remember_answer  ",
        " blocks from leak: cache ",
    );
}
