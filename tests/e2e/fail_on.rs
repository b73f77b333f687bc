//! `memtrace run`: its exit status, its lines and its JSON, for conditions that hold, do not hold, or stay open.

use memtrace_tests::{
    Fixture, record,
    running::{Finished, Running},
    targets,
};
use serde_json::Value;
use std::{fs, path::Path};

/// Keeps 5 MiB and ends with this status, without freeing anything.
fn keeper(status: u8) -> String {
    format!("keep = [bytearray(1 << 20) for _ in range(5)]; import os; os._exit({status})")
}

/// Runs Python code under conditions; with the JSON.
fn run(fixture: &Fixture, options: &[&str], code: &str) -> (Finished, Value) {
    let json = fixture.path("result.json");
    let mut command = record::command(["run", "-f", "--json"]);
    command.arg(&json).args(options).arg("--");
    command.arg(targets::interpreter()).args(["-c", code]);
    let finished = Running::start(&mut command).wait();
    let text = fs::read_to_string(json).unwrap_or_else(|error| panic!("{error}: {finished:#?}"));
    (finished, serde_json::from_str(&text).expect("JSON"))
}

/// Removes the recording that was kept, and its folder.
fn remove(json: &Value) {
    let recording = Path::new(json["recording"].as_str().expect("a path"));
    fs::remove_dir_all(recording.parent().expect("a folder")).expect("it is ours");
}

#[test]
fn a_condition_that_holds_has_its_own_status_and_keeps_the_recording() {
    let fixture = Fixture::new();
    let (finished, json) = run(&fixture, &["--fail-on", "live=4m"], &keeper(0));
    let finished = finished.expect_code(99);
    assert!(
        finished
            .stderr
            .contains("memtrace: failed: live at the end: "),
        "{finished:#?}"
    );
    assert_eq!(json["failed"], true);
    let condition = &json["conditions"][0];
    assert_eq!(
        (&condition["state"], &condition["limit"]),
        (&"failed".into(), &(4 << 20).into())
    );
    assert!(condition["measured"].as_u64() >= Some(5 << 20), "{json}");
    assert!(
        condition["line"]
            .as_str()
            .is_some_and(|line| line.contains("<string>")),
        "{json}"
    );
    assert!(json.to_string().len() < 600, "{json}");
    record::report(Path::new(json["recording"].as_str().expect("a path")));
    remove(&json);

    let (finished, json) = run(
        &fixture,
        &["--fail-on", "live=4m", "--exit-code", "7"],
        &keeper(0),
    );
    finished.expect_code(7);
    remove(&json);
}

#[test]
fn the_status_of_a_command_that_fails_is_passed_on() {
    let fixture = Fixture::new();
    let (finished, json) = run(&fixture, &["--fail-on", "live=4m"], &keeper(3));
    finished.expect_code(3);
    assert_eq!(json["failed"], true);
    remove(&json);
}

#[test]
fn a_result_that_cannot_be_written_is_refused_before_the_command_runs() {
    let fixture = Fixture::new();
    let (taken, trace) = (fixture.path("taken.json"), fixture.path("trace"));
    fs::write(&taken, "mine").expect("written");
    let mut command = record::command(["run", "--fail-on", "live=4m", "--json"]);
    command.arg(&taken).arg("--").arg("touch").arg(&trace);
    let finished = Running::start(&mut command).wait().expect_code(2);
    assert!(finished.stderr.contains("exists already"), "{finished:#?}");
    assert!(!trace.exists());
    assert_eq!(fs::read_to_string(&taken).expect("kept"), "mine");
}

#[test]
fn what_is_open_is_reported_and_does_not_fail() {
    let fixture = Fixture::new();
    let kept = fixture.path("kept.mtr");
    let conditions = [
        "--fail-on",
        "leak",
        "--fail-on",
        "growth=1m/s",
        "--fail-on",
        "live=1g",
    ];
    let (finished, json) = run(&fixture, &conditions, &keeper(0));
    let finished = finished.expect_code(0);
    for condition in ["leak", "growth"] {
        let line = format!("memtrace: undetermined: {condition}: ");
        assert!(finished.stderr.contains(&line), "{finished:#?}");
    }
    let states = json["conditions"].as_array().expect("a list");
    let states: Vec<&Value> = states.iter().map(|of| &of["state"]).collect();
    assert_eq!(states, ["undetermined", "undetermined", "passed"]);
    assert_eq!(json["failed"], false);
    remove(&json);

    let open = ["--fail-on", "leak", "--fail-on", "undetermined"];
    let (finished, json) = run(&fixture, &open, &keeper(0));
    finished.expect_code(99);
    assert_eq!(json["conditions"][1]["state"], "failed");
    remove(&json);

    let output = ["--fail-on", "live=1g", "-o", kept.to_str().expect("UTF-8")];
    let (finished, json) = run(&fixture, &output, &keeper(0));
    finished.expect_code(0);
    assert_eq!(json["recording"], kept.to_str().expect("UTF-8"));
    record::report(&kept);
}

/// Long enough for a verdict.
#[test]
fn a_leak_fails_and_names_its_line() {
    let fixture = Fixture::new();
    let code = "
import time
keep = []
def handle():
    keep.append(bytearray(100_000))
end = time.monotonic() + 15
while time.monotonic() < end:
    handle()
    time.sleep(0.02)
";
    let conditions = [
        "--fail-on",
        "leak",
        "--fail-on",
        "growth=100k/s",
        "--fail-on",
        "growth=1g/s",
    ];
    let (finished, json) = run(&fixture, &conditions, code);
    let finished = finished.expect_code(99);
    let leak = finished
        .stderr
        .lines()
        .find(|line| line.starts_with("memtrace: failed: leak: "));
    assert!(
        leak.is_some_and(|line| line.contains("handle")),
        "{finished:#?}"
    );
    let states = json["conditions"].as_array().expect("a list");
    let states: Vec<&Value> = states.iter().map(|of| &of["state"]).collect();
    assert_eq!(states, ["failed", "failed", "passed"], "{json}");
    remove(&json);
}
