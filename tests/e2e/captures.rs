//! Writes the captures that the collector's unit tests replay (memtrace/src/collect/tests/captures/). Run when the
//! records' layout has changed:
//! `cargo test -p memtrace-tests --test captures -- --ignored`

use memtrace_tests::{Fixture, record::Record, targets};
use std::path::{Path, PathBuf};

/// Where the captures belong.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../memtrace/src/collect/tests/captures")
        .join(name)
}

/// Records a command that ends with this status.
fn capture<A: AsRef<std::ffi::OsStr>>(
    name: &str,
    command: impl IntoIterator<Item = A>,
    status: i32,
) {
    let fixture = Fixture::new();
    let place = place(name);
    let options = ["--capture", place.to_str().expect("UTF-8")];
    Record::launch(&fixture, &options, command).finish(status);
}

#[test]
#[ignore = "writes into the sources"]
fn c() {
    capture("c.zst", [targets::program("thread_exec.c")], 5);
}

#[test]
#[ignore = "writes into the sources"]
fn python() {
    let script = "class Kept:\n    def add(self, n):\n        return [bytearray(600 + i) for i in range(n)]\n\
                  kept = [Kept().add(10) for _ in range(20)]\n";
    capture(
        "python.zst",
        ["/usr/bin/python3", "-I", "-S", "-c", script],
        0,
    );
}

#[test]
#[ignore = "writes into the sources"]
fn fork_storm() {
    let script = "for i in 1 2 3 4 5; do (/bin/true | (exit 3)) & done; wait; exit 4";
    capture("fork-storm.zst", ["sh", "-c", script], 4);
}

#[test]
#[ignore = "writes into the sources"]
fn torch() {
    let fixture = Fixture::new();
    let place = place("torch.zst");
    let options = ["--no-heap", "--capture", place.to_str().expect("UTF-8")];
    let command = [
        targets::program("devices.c"),
        fixture.path("truth"),
        targets::fake_devices(),
    ];
    let mut record = Record::launch(&fixture, &options, command);
    record.running.await_stdout("done ");
    record.running.send("!");
    record.finish(0);
}
