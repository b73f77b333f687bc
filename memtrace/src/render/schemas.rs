//! The outputs in JSON are as `docs/schemas/memtrace.json` describes them: a field that is missing there is a failure.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    diagnosis_json, export, findings::snapshots::read, fleet, json as report_json, json_groups,
    outcomes_json, stack_health_json,
};
use crate::{
    analysis::{
        rounds::Rounds,
        suppressions::Suppressions,
        system::SystemSeries,
        verdict::{Diagnosis, diagnose},
    },
    fleet::{fixture::readings, judge},
    recording::{At, Recording, Snapshot},
    render::{Error, Series, diff as rendered_diff},
    view::{
        By, Filter, Metric,
        fail_on::{Condition, Judged, check},
        fixture,
    },
};

/// Recorded programs: growth of all kinds, holders, memory of devices, losses, processes with children.
const RECORDED: [&str; 9] = [
    "c-pool-leak",
    "copy-on-write",
    "cpp-cycle-leak",
    "day",
    "leak-fd",
    "py-leak-service",
    "py-workers-leak",
    "torch-gpu-losses-leak",
    "torch-gpu-server-leak",
];

/// Fails unless `value` is as the definition says.
fn assert_valid(definition: &str, value: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas/memtrace.json");
    let schema = fs::read_to_string(path).unwrap();
    let mut schema: Value = serde_json::from_str(&schema).unwrap();
    schema["$ref"] = json!(format!("#/$defs/{definition}"));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors = validator.iter_errors(value).take(5);
    let errors: Vec<String> = errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{definition}: {errors:#?}");
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Value {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn check_report(snapshot: &Snapshot, found: &Diagnosis) -> Value {
    let all = Filter::default();
    let sort = Metric::LiveBytes;
    let report = written(|out| report_json(out, snapshot, &all, sort, Some(50), found));
    assert_valid("report", &report);
    let by = By::ProgramLine;
    let groups = written(|out| json_groups(out, snapshot, &all, by, sort, Some(3)));
    assert_valid("groups", &groups);
    let health = written(|out| stack_health_json(out, snapshot, &all));
    assert_valid("stack_health", &health);
    report
}

fn series(recording: &Recording, snapshot: &Snapshot) -> Series {
    let ids = snapshot.processes.iter().map(|process| process.row.id);
    Series {
        memory: ids
            .clone()
            .map(|id| (id, recording.memory(id).unwrap()))
            .collect(),
        cgroups: ids.map(|id| (id, recording.cgroup(id).unwrap())).collect(),
        system: recording.system().unwrap(),
        facts: recording.facts().unwrap(),
    }
}

#[test]
fn recorded_programs_are_as_the_schema_says() {
    let mut verdicts = 0;
    for name in RECORDED {
        let (_folder, recording) = read(name);
        let machine = SystemSeries::read(&recording).unwrap();
        let found = diagnose(&recording, &machine, &Suppressions::default()).unwrap();
        let snapshot = recording.snapshot(At::Default).unwrap();
        let report = check_report(&snapshot, &found);
        verdicts += report["verdicts"].as_array().unwrap().len();
        let whole = written(|out| export(out, &snapshot, &series(&recording, &snapshot)));
        assert_valid("export", &whole);
        let all = Filter::default();
        let diagnosis = written(|out| diagnosis_json(out, &found, None, &all));
        assert_valid("diagnosis", &diagnosis);
        let conditions = [
            Condition::Leak,
            Condition::Undetermined,
            Condition::Growth(1),
            Condition::Live(1),
        ];
        let judged = Judged {
            found,
            end: snapshot,
            rounds: Some(Rounds::default()),
        };
        let outcomes = conditions.map(|condition| check(condition, &judged));
        assert_valid("run", &outcomes_json(&outcomes, Some("a.mtr")));
    }
    assert!(verdicts > RECORDED.len());
}

#[test]
fn snapshots_are_as_the_schema_says() {
    let none = Diagnosis::default();
    let mut older = fixture::snapshot();
    older.sites[1].key.device = Some(3);
    let snapshots = [
        fixture::snapshot_with_wrappers(),
        fixture::snapshot_of_python(),
        older,
    ];
    for snapshot in &snapshots {
        check_report(snapshot, &none);
    }
}

#[test]
fn comparisons_are_as_the_schema_says() {
    let mut out = Vec::new();
    rendered_diff::json(&mut out, &rendered_diff::tests::comparison(), None).unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert!(!value["sites"].as_array().unwrap().is_empty());
    assert_valid("comparison", &value);
}

#[test]
fn fleets_are_as_the_schema_says() {
    let mut out = Vec::new();
    fleet::json(&mut out, &judge(&readings())).unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["of_groups"].as_array().unwrap().len(), 2);
    assert!(!value["separation"]["causes"].as_array().unwrap().is_empty());
    assert_valid("fleet", &value);
}

#[test]
#[should_panic(expected = "not_in_the_schema")]
fn a_field_that_the_schema_lacks_is_a_failure() {
    let none = Diagnosis::default();
    let mut report = check_report(&fixture::snapshot(), &none);
    report["sites"][0]["not_in_the_schema"] = json!(1);
    assert_valid("report", &report);
}
