//! Properties that scripts rely on.

use super::*;
use crate::{
    analysis::verdict::Diagnosis,
    recording::{
        WayKind,
        fixture::{history, holders},
    },
    view::fixture,
};

fn parse(out: &[u8]) -> Value {
    serde_json::from_slice(out).unwrap()
}

/// A report sorted by live bytes.
fn report_of(snapshot: &Snapshot, filter: &Filter, top: Option<usize>) -> Value {
    let mut out = Vec::new();
    let verdicts = Diagnosis::default();
    json(
        &mut out,
        snapshot,
        filter,
        Metric::LiveBytes,
        top,
        &verdicts,
    )
    .unwrap();
    parse(&out)
}

fn whole_report(snapshot: &Snapshot) -> Value {
    report_of(snapshot, &Filter::default(), None)
}

/// The stack that a site refers to, and its frames.
fn stack_of<'a>(report: &'a Value, site: &'a Value) -> (&'a Value, Vec<&'a Value>) {
    let stack = &report["stacks"][site["stack"].as_u64().unwrap() as usize];
    let frames = stack["frames"].as_array().unwrap().iter();
    let frames = frames.map(|place| &report["frames"][place.as_u64().unwrap() as usize]);
    (stack, frames.collect())
}

#[test]
fn a_report_has_the_fields_that_scripts_rely_on() {
    let value = whole_report(&fixture::snapshot());
    assert_eq!(value["at"], "default");
    assert_eq!(value["totals"][1]["tgid"], fixture::PARENT);
    assert_eq!(value["totals"][1]["layer"], "heap");
    assert_eq!(value["totals"][1]["live_bytes"], 1 << 20);
    assert_eq!(value["totals"][2]["inherited_bytes"], 2048);
    assert_eq!(value["sites"].as_array().unwrap().len(), 4);
    let site = &value["sites"][0];
    assert_eq!(site["live_count"], 4);
    assert_eq!(site["alloc_bytes"], (1 << 20) + 64);
    assert_eq!(site["alloc_count"], 5);
    let end = |site: usize| stack_of(&value, &value["sites"][site]).0["end"].clone();
    assert_eq!((end(0), end(2)), (json!("truncated"), json!("complete")));
    assert_eq!(end(1), "no_stack");
    let (_, frames) = stack_of(&value, site);
    assert_eq!(frames[0]["function"], "grow;it");
    assert_eq!(frames[0]["inlined"], true);
    assert_eq!(frames[0]["kind"], "native");
    assert_eq!(frames[3]["line"], 7);
    assert_eq!(value["losses"]["ring_full_free"], 5);
    assert_eq!(value["losses"]["ring_full_alloc"], 0);
    let child = &value["processes"][1];
    assert_eq!(child["comm"], "leaker");
    assert_eq!(child["cmdline"][0], "./leaker");
    assert_eq!(child["exit_status"], 768);
    assert_eq!(child["ended"], 5_000_000_000u64);
    assert_eq!(
        (&child["at"], &value["processes"][0]["at"]),
        (&json!("peak"), &json!("end"))
    );
    assert_eq!(
        (&value["emitted"], &value["received"]),
        (&json!(100), &json!(95))
    );
}

#[test]
fn sites_have_their_holders() {
    let mut snapshot = fixture::snapshot();
    let key = snapshot.sites[1].key;
    let ways = vec![(3, WayKind::Path(history(None))), (1, WayKind::Nothing)];
    snapshot.holders.insert(key, holders(key, 4, ways));
    let mut exported = Vec::new();
    export(&mut exported, &snapshot, &Series::default()).unwrap();
    for value in [whole_report(&snapshot), parse(&exported)] {
        let held = &value["sites"][0]["holders"];
        assert_eq!(held["sampled"], 4);
        assert_eq!(held["ways"][0]["how"], "path");
        assert_eq!(held["ways"][0]["path"][2]["name"], ".history");
        assert_eq!(held["ways"][1]["how"], "nothing");
        assert_eq!(value["sites"][1]["holders"], Value::Null);
    }
}

#[test]
fn stack_health_is_part_of_a_report_and_stands_alone() {
    let snapshot = fixture::snapshot();
    let filter = Filter::default();
    let report = report_of(&snapshot, &filter, Some(0));
    let mut out = Vec::new();
    stack_health_json(&mut out, &snapshot, &filter).unwrap();
    let alone = parse(&out);
    assert_eq!(report["stack_health"], alone);
    let expected = json!({
        "complete": 2,
        "truncated": 5,
        "failed": {
            "no_mapping": 0, "no_table": 0, "no_row": 1, "unsupported_rule": 0,
            "unreadable": 0, "stale": 0, "bad_frame_pointer": 0, "frame_pointers_only": 0,
            "no_stack": 11,
        },
        "by_module": {
            "[unknown]": { "no_stack": 11 },
            "/usr/bin/leaker": { "truncated": 5, "no_row": 1 },
        },
    });
    assert_eq!(alone, expected);
}

#[test]
fn frames_are_whole_and_an_allocators_are_marked() {
    let value = whole_report(&fixture::snapshot_with_wrappers());
    let (stack, frames) = stack_of(&value, &value["sites"][0]);
    assert_eq!(frames[0]["function"], "operator new(unsigned long)");
    assert_eq!(frames[1]["function"], "grow;it");
    assert_eq!(stack["wrappers"], 1);
}

#[test]
fn each_stack_and_frame_is_written_once() {
    let mut snapshot = fixture::snapshot();
    let alone = whole_report(&snapshot);
    // The same stacks in another process.
    for mut site in snapshot.sites.clone() {
        site.key.process = ProcessId(99);
        snapshot.sites.push(site);
    }
    let value = whole_report(&snapshot);
    let count = |value: &Value, list: &str| value[list].as_array().unwrap().len();
    assert_eq!(count(&value, "sites"), 2 * count(&alone, "sites"));
    for list in ["stacks", "frames"] {
        assert!(count(&alone, list) > 0, "{list}");
        assert_eq!(value[list], alone[list]);
    }
    let mut stacks: Vec<_> = value["sites"].as_array().unwrap().iter().collect();
    stacks.retain(|site| site["process"] == 99);
    assert_eq!(stacks.len(), count(&alone, "sites"));
    let of = |value, site| stack_of(value, site).1.len();
    let lengths = |value, process: u64| {
        let sites = value_sites(value);
        let sites = sites.filter(move |site| site["process"] == process);
        sites.map(move |site| of(value, site)).sum::<usize>()
    };
    let own = lengths(&value, 1) + lengths(&value, 2);
    assert_eq!(lengths(&value, 99), own);
}

fn value_sites(report: &Value) -> impl Iterator<Item = &Value> {
    report["sites"].as_array().unwrap().iter()
}

#[test]
fn a_group_of_folded_processes_has_their_number() {
    let mut snapshot = fixture::snapshot();
    snapshot.processes[1].row.folded = Some(412);
    let value = whole_report(&snapshot);
    assert_eq!(value["processes"][0]["folded"], Value::Null);
    assert_eq!(value["processes"][1]["folded"], 412);
}

#[test]
fn the_interpreters_frames_are_marked_and_threads_named() {
    let value = whole_report(&fixture::snapshot_of_python());
    let (stack, frames) = stack_of(&value, &value["sites"][0]);
    assert_eq!(stack["thread"], "worker");
    let (other, _) = stack_of(&value, &value["sites"][1]);
    assert_eq!(other["thread"], Value::Null);
    let kinds = frames.iter().map(|frame| frame["kind"].as_str().unwrap());
    let marks = (0..frames.len()).map(|at| {
        let mut marked = stack["interpreter"].as_array().unwrap().iter();
        marked.any(|marked| *marked == at)
    });
    let expected = [
        ("native", false),
        ("native", false),
        ("native", true),
        ("python", false),
        ("native", true),
        ("python", false),
        ("native", true),
        ("native", true),
    ];
    assert_eq!(kinds.zip(marks).collect::<Vec<_>>(), expected);
}

#[test]
fn groups_take_the_place_of_sites() {
    let mut out = Vec::new();
    let snapshot = fixture::snapshot_of_python();
    let filter = Filter {
        pid: Some(fixture::PARENT),
        ..Filter::default()
    };
    let (by, sort) = (By::PythonLine, Metric::LiveBytes);
    json_groups(&mut out, &snapshot, &filter, by, sort, Some(1)).unwrap();
    let value = parse(&out);
    assert_eq!(value.get("sites"), None);
    let groups = value["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0]["key"], "/src/cache;1.py:41 Cache.fill");
    assert_eq!(groups[0]["layer"], "heap");
    assert_eq!(groups[0]["live_bytes"], 1 << 20);
    assert_eq!(groups[0]["sites"], 1);
    assert_eq!(groups[0].get("peak_bytes"), None);
    let rest = value["rest"].as_array().unwrap();
    let rest: Vec<_> = rest
        .iter()
        .map(|rest| (&rest["layer"], &rest["groups"], &rest["live_bytes"]))
        .collect();
    assert_eq!(
        rest,
        [
            (&json!("vm"), &json!(1), &json!(8192)),
            (&json!("heap"), &json!(1), &json!(0)),
        ]
    );
    assert_eq!(
        value["hidden"],
        json!({ "sites": 1, "live_bytes": { "heap": 100 } })
    );
}

#[test]
fn top_and_filters_report_hidden_sites() {
    let filter = Filter {
        pid: Some(fixture::PARENT),
        ..Filter::default()
    };
    let value = report_of(&fixture::snapshot(), &filter, Some(1));
    assert_eq!(value["sites"].as_array().unwrap().len(), 1);
    assert_eq!(value["totals"].as_array().unwrap().len(), 2);
    assert_eq!(
        value["hidden"],
        json!({ "sites": 3, "live_bytes": { "heap": 100, "vm": 8192 } })
    );
}

#[test]
fn an_export_has_memory_over_time() {
    let mut out = Vec::new();
    let snapshot = fixture::snapshot();
    let sample = MemorySample {
        rss_anon: Some(77),
        ..MemorySample::default()
    };
    let time = snapshot.meta.started_ns + 5;
    let fact = |process: Option<ProcessId>, value: &str| Fact {
        process,
        field: "kernel.release".into(),
        value: value.into(),
    };
    let series = Series {
        memory: vec![(ProcessId(2), vec![(time, sample)])],
        system: vec![(time, SystemSample::default())],
        facts: vec![fact(None, "6.1"), fact(Some(ProcessId(2)), "x")],
        ..Series::default()
    };
    export(&mut out, &snapshot, &series).unwrap();
    let value = parse(&out);
    assert_eq!(value["memory"][0]["tgid"], fixture::CHILD);
    let sample = &value["memory"][0]["samples"][0];
    assert_eq!(
        (&sample["time"], &sample["rss_anon"]),
        (&json!(5), &json!(77))
    );
    assert_eq!(sample["swap"], Value::Null);
    assert_eq!(value["system"][0]["time"], 5);
    assert_eq!(value["facts"]["machine"]["kernel.release"], "6.1");
    let processes = value["facts"]["processes"].as_array().unwrap();
    let child = processes.iter().find(|p| p["process"] == 2).unwrap();
    assert_eq!(child["facts"]["kernel.release"], "x");
    assert_eq!(
        value["sites"][0]["births"]["rows"][0],
        json!([1_000_000_000, 512 << 10, 2])
    );
}
