//! What the commands print as JSON is as `docs/schemas/memtrace.json` describes it, for recordings made here.

use memtrace_tests::{
    Fixture,
    record::{Record, command, memtrace},
    running::Running,
    targets,
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

/// Fails unless `text` is as the definition says.
#[track_caller]
fn assert_valid(definition: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas/memtrace.json");
    let schema = fs::read_to_string(path).expect("the schema");
    let mut schema: Value = serde_json::from_str(&schema).expect("JSON");
    schema["$ref"] = json!(format!("#/$defs/{definition}"));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let value: Value = serde_json::from_str(text).expect("JSON");
    let errors = validator.iter_errors(&value).take(5);
    let errors: Vec<String> = errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{definition}: {errors:#?}");
}

#[track_caller]
fn printed(arguments: &[&str]) -> String {
    memtrace(arguments).expect_code(0).stdout
}

#[test]
fn every_command_prints_what_the_schema_says() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let library = targets::library("constructor.c");
    let program = targets::program("exact.c");
    let target = [program.as_path(), "run".as_ref(), &truth, &library];
    let record = Record::launch(&fixture, &["--imports"], target);
    let file = record.file.clone();
    record.finish(7);
    let name = file.to_str().expect("a path of ASCII");
    for (definition, arguments) in [
        ("report", &["report", "--format", "json", name][..]),
        (
            "report",
            &["report", "--format", "json", "--at", "peak", name],
        ),
        (
            "groups",
            &[
                "report", "--format", "json", "--by", "module", "-T", "2", name,
            ],
        ),
        (
            "groups",
            &["report", "--format", "json", "--by", "thread", name],
        ),
        (
            "stack_health",
            &["report", "--format", "json", "--stack-health", name],
        ),
        ("export", &["export", "--format", "json", name]),
        ("diagnosis", &["diagnose", "--format", "json", name]),
        ("comparison", &["diff", "--format", "json", name, name]),
        ("host", &["host", "--format", "json"]),
    ] {
        assert_valid(definition, &printed(arguments));
    }
    let own = std::process::id().to_string();
    assert_valid("host", &printed(&["host", "--format", "json", "-p", &own]));
}

#[test]
fn a_run_and_a_search_for_holders_too() {
    let fixture = Fixture::new();
    let result = fixture.path("result.json");
    let mut run = command(["run", "--fail-on", "leak", "--fail-on", "live=1", "--json"]);
    let run = Running::start(run.arg(&result).args(["--", "true"]));
    run.wait().expect_code(0);
    let result = fs::read_to_string(&result).expect("it was written");
    assert_valid("run", &result);

    let mut python = Command::new("python3");
    let python = python.args([
        "-c",
        "x = [{} for _ in range(9)]; print('ready', flush=True); input()",
    ]);
    let python = Running::start(python);
    python.await_stdout("ready");
    let pid = python.pid().to_string();
    let of_dict = ["holders", "-p", &pid, "--type", "dict", "--format", "json"];
    assert_valid("holders", &printed(&of_dict));
    let retained = [
        "holders",
        "-p",
        &pid,
        "--retained",
        "--stop",
        "--format",
        "json",
    ];
    assert_valid("holders", &printed(&retained));
}
