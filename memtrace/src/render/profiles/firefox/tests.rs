use serde_json::{Value, json};

use super::*;
use crate::{
    render::sums::{Sums, add, reported},
    view::fixture,
};

fn written(snapshot: &Snapshot, filter: &Filter) -> Value {
    let mut out = Vec::new();
    firefox(&mut out, snapshot, filter).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn numbers(column: &Value) -> Vec<u64> {
    let column = column.as_array().unwrap().iter();
    column.map(|number| number.as_u64().unwrap()).collect()
}

fn place(of: &Value) -> usize {
    of.as_u64().unwrap() as usize
}

/// The frames of a stack, root first: `function file:line [library]`.
fn frames(profile: &Value, thread: &Value, stack: &Value) -> Vec<String> {
    let text = |place: &Value| match place.as_u64() {
        Some(place) => thread["stringArray"][place as usize].as_str().unwrap(),
        None => "",
    };
    let mut frames = Vec::new();
    let mut stack = stack.clone();
    while !stack.is_null() {
        let frame = place(&thread["stackTable"]["frame"][place(&stack)]);
        let line = &thread["frameTable"]["line"][frame];
        let func = place(&thread["frameTable"]["func"][frame]);
        let functions = &thread["funcTable"];
        let resource = functions["resource"][func].as_i64().unwrap();
        let library = usize::try_from(resource).ok();
        let library = library.map(|at| place(&thread["resourceTable"]["lib"][at]));
        let library = library.map_or("", |at| profile["libs"][at]["name"].as_str().unwrap());
        let [name, file] = ["name", "fileName"].map(|of| text(&functions[of][func]));
        frames.push(format!("{name} {file}:{line} [{library}]"));
        stack = thread["stackTable"]["prefix"][place(&stack)].clone();
    }
    frames.reverse();
    frames
}

#[test]
fn totals_are_those_of_the_report() {
    let snapshot = fixture::snapshot();
    let profile = written(&snapshot, &Filter::default());
    let mut sums = Sums::new();
    for thread in profile["threads"].as_array().unwrap() {
        let sum = |table: &str| {
            assert_eq!(thread[table]["weightType"], "bytes");
            numbers(&thread[table]["weight"]).iter().sum()
        };
        let figures = [sum("nativeAllocations"), 0, sum("samples"), 0];
        add(&mut sums, thread["name"].as_str().unwrap(), figures);
    }
    let mut reported = reported(&snapshot, &Filter::default());
    // The format counts no blocks.
    for [_, allocated, _, live] in reported.values_mut() {
        (*allocated, *live) = (0, 0);
    }
    assert_eq!(sums, reported);
}

#[test]
fn a_track_is_a_layer_of_a_process() {
    let mut snapshot = fixture::snapshot();
    snapshot.sites[3].first_ns += 1_500_000_000;
    let profile = written(&snapshot, &Filter::default());
    let threads = profile["threads"].as_array().unwrap().iter();
    let names = threads.map(|of| (&of["name"], &of["processName"], &of["pid"]));
    let expected = [
        (json!("heap"), json!("leaker"), json!("4242.1")),
        (json!("heap"), json!("leaker"), json!("4243.2")),
        (json!("vm (by allocator)"), json!("leaker"), json!("4242.1")),
    ];
    let expected = expected
        .iter()
        .map(|(name, process, pid)| (name, process, pid));
    assert!(names.eq(expected), "{profile:#}");
    assert_eq!(profile["meta"]["startTime"], 1_798_761_599_000.0);
    assert_eq!(profile["meta"]["initialVisibleThreads"], json!([0, 2, 1]));
    assert_eq!(profile["threads"][1]["samples"]["time"], json!([2500.0]));
    assert_eq!(profile["threads"][1]["unregisterTime"], 5000.0);
}

#[test]
fn stacks_have_lines_and_libraries() {
    let snapshot = fixture::snapshot_of_python();
    let by_thread = Filter {
        by_thread: true,
        ..Filter::default()
    };
    let profile = written(&snapshot, &by_thread);
    let thread = &profile["threads"][0];
    let python = frames(&profile, thread, &thread["samples"]["stack"][0]);
    let expected = [
        "thread worker :null []",
        "<module> /src/main.py:7 []",
        "Cache.fill /src/cache;1.py:41 []",
        "list_resize /src/leaker.c:7 [leaker]",
    ];
    assert_eq!(python, expected);
    let category = |label: &str| {
        let categories = profile["meta"]["categories"].as_array().unwrap();
        categories.iter().position(|of| of["name"] == label)
    };
    let listed = numbers(&thread["frameTable"]["category"]);
    assert_eq!(Some(listed[0] as usize), category("Other"));
    assert_eq!(Some(listed[1] as usize), category("Program"));
}

#[test]
fn columns_of_a_table_have_its_length() {
    let profile = written(&fixture::snapshot(), &Filter::default());
    let mut tables = 0;
    for thread in profile["threads"].as_array().unwrap() {
        for table in thread.as_object().unwrap().values() {
            let Some(length) = table.get("length") else {
                continue;
            };
            let columns = table.as_object().unwrap().values();
            for column in columns.filter_map(Value::as_array) {
                assert_eq!(length, column.len(), "{table:#}");
            }
            tables += 1;
        }
    }
    assert_eq!(tables, 8 * profile["threads"].as_array().unwrap().len());
}
