//! Types of Python's objects that become more and more, counted without `--python-objects`.

use std::path::PathBuf;

use memtrace_tests::{
    Fixture,
    record::{self, Record},
    running::Running,
    targets,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Diagnosis {
    verdicts: Vec<Verdict>,
    types: Vec<Types>,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    layer: Option<String>,
    evidence: Vec<Evidence>,
    kept_by: Option<KeptBy>,
}

#[derive(Debug, Deserialize)]
struct Evidence {
    kind: String,
}

#[derive(Debug, Deserialize)]
struct KeptBy {
    how: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Types {
    counted: u32,
    kept_by: Option<KeptBy>,
    growing: Vec<Growing>,
}

#[derive(Debug, Deserialize)]
struct Growing {
    #[serde(rename = "type")]
    name: String,
    objects_per_s: f64,
    size: u64,
    examined: u32,
    unreached: u32,
}

/// Seconds of a recording; the program runs twice as long.
const SECONDS: &str = "14";

/// The diagnosis of the target, as JSON and as the words of the text.
fn recorded(scenario: &str) -> (Diagnosis, String) {
    let fixture = Fixture::shared();
    let target: [PathBuf; 4] = [
        targets::interpreter().into(),
        targets::source("python/growing_types.py"),
        "28".into(),
        scenario.into(),
    ];
    let record = Record::launch(&fixture, &["-d", SECONDS], target.to_vec());
    let file = record.file.clone();
    record.running.wait().expect_code(0);
    let diagnosed = |options: &[&str]| {
        let mut diagnose = record::command(["diagnose"]);
        let running = Running::start(diagnose.args(options).arg(&file));
        running.wait().expect_code(0).stdout
    };
    let found = serde_json::from_str(&diagnosed(&["--format", "json"])).expect("JSON");
    // Long lines are wrapped.
    let text: Vec<String> = diagnosed(&[]).split_whitespace().map(Into::into).collect();
    (found, text.join(" "))
}

#[test]
fn the_types_that_grow_are_named_and_those_that_no_root_reaches() {
    let (found, text) = recorded("grows");
    let growing = &found.types[0].growing;
    let of = |name: &str| {
        let of_type = growing.iter().find(|of| of.name == name);
        of_type.unwrap_or_else(|| panic!("{name}: {found:#?}"))
    };
    let (kept, lost) = (of("__main__.Kept"), of("__main__.Lost"));
    let ratio = lost.objects_per_s / kept.objects_per_s;
    assert!((2.9..3.1).contains(&ratio), "{found:#?}");
    // Two words, the object's own, and those of the collector.
    assert_eq!((kept.size, lost.size), (48, 48));
    assert!(kept.examined >= 8 && kept.unreached == 0, "{found:#?}");
    assert!(
        lost.examined >= 8 && 10 * lost.unreached >= 9 * lost.examined,
        "{found:#?}"
    );
    // Three of four.
    let keeper = found.types[0].kept_by.as_ref();
    assert!(
        keeper.is_some_and(|of| of.how == "surplus-reference"),
        "{found:#?}"
    );
    for name in ["__main__.Cached", "__main__.Passing"] {
        assert!(growing.iter().all(|of| of.name != name), "{found:#?}");
    }
    let arenas: Vec<&Verdict> = found
        .verdicts
        .iter()
        .filter(|of| of.layer.as_deref() == Some("python"))
        .collect();
    assert!(!arenas.is_empty(), "{found:#?}");
    for verdict in arenas {
        let has = |kind: &str| verdict.evidence.iter().any(|of| of.kind == kind);
        assert!(
            has("type_grows") && has("unreached_type_grows"),
            "{verdict:#?}"
        );
        let how = verdict.kept_by.as_ref().map(|of| &*of.how);
        assert!(
            matches!(how, None | Some("surplus-reference")),
            "{verdict:#?}"
        );
    }
    assert!(
        text.contains("__main__.Lost (48 B), not reached from any root"),
        "{text}"
    );
    assert!(text.contains("__main__.Kept (48 B)"), "{text}");
}

#[test]
fn a_full_cache_and_objects_that_come_and_go_are_no_growth() {
    let (found, text) = recorded("stays");
    let [types] = &found.types[..] else {
        panic!("{found:#?}");
    };
    assert!(types.counted >= 6, "{found:#?}");
    assert!(types.growing.is_empty(), "{found:#?}");
    assert!(!text.contains("__main__."), "{text}");
}

#[test]
fn objects_that_a_growing_list_keeps_are_a_leak() {
    let (found, text) = recorded("keeps");
    let keeper = found.types[0].kept_by.as_ref();
    let is_list = keeper.is_some_and(|of| of.text.starts_with("kept by __main__.kept (list, "));
    assert!(is_list, "{found:#?}");
    assert!(text.contains("kept by __main__.kept (list, "), "{text}");
    assert!(text.starts_with("leak (grade "), "{text}");
}
