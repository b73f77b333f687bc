//! Holders of the blocks of a leak: seen in the memory of the process, at the end of the recording, or when a device is
//! out of memory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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
}

#[derive(Debug, Deserialize)]
struct Verdict {
    scope: String,
    class: String,
    kept_by: Option<KeptBy>,
}

#[derive(Debug, Deserialize)]
struct KeptBy {
    how: String,
    text: String,
    function: Option<String>,
    line: Option<u32>,
    #[serde(default)]
    path: Vec<Step>,
    container: Option<usize>,
    share: Option<f64>,
    verified: Option<bool>,
    seen_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Step {
    kind: String,
    name: String,
    #[serde(rename = "type")]
    type_name: Option<String>,
    length: Option<u64>,
    growth_per_s: Option<f64>,
}

/// Seconds of a recording; the program runs twice as long.
const SECONDS: &str = "12";

/// The messages about a scenario on standard error, and its diagnosis.
#[track_caller]
fn recorded(fixture: &Fixture, scenario: &str, options: &[&str]) -> (String, Diagnosis) {
    let target: [PathBuf; 5] = [
        targets::interpreter().into(),
        targets::source("growth/growth.py"),
        scenario.into(),
        "24".into(),
        "1".into(),
    ];
    let options = [&["-d", SECONDS], options].concat();
    let record = Record::launch(fixture, &options, target.to_vec());
    let file = record.file.clone();
    let finished = record.running.wait().expect_code(0);
    (finished.stderr, diagnosis(&file))
}

fn diagnosis(recording: &Path) -> Diagnosis {
    let mut diagnose = record::command(["diagnose", "--format", "json"]);
    let diagnosed = Running::start(diagnose.arg(recording)).wait();
    serde_json::from_str(&diagnosed.expect_code(0).stdout).expect("JSON")
}

fn kept_by(found: &Diagnosis) -> Vec<&KeptBy> {
    let sites = found.verdicts.iter();
    let leaks = sites.filter(|of| of.scope == "site" && of.class.ends_with("leak"));
    leaks.filter_map(|of| of.kept_by.as_ref()).collect()
}

/// The line of a target with this text.
fn line_of(source: &str, text: &str) -> Option<u32> {
    let source = fs::read_to_string(targets::source(source)).expect("the source");
    let index = source.lines().position(|line| line.contains(text));
    index.map(|index| index as u32 + 1)
}

#[test]
fn the_container_of_a_leak_is_named_with_the_line_that_fills_it() {
    let fixture = Fixture::shared();
    let (stderr, found) = recorded(&fixture, "py-leak-service", &[]);
    assert!(stderr.contains("searched for the holders of"), "{stderr}");
    assert!(stderr.contains("longest stop"), "{stderr}");
    assert_eq!(found.verdicts[0].class, "leak");
    let kept = kept_by(&found);
    let kept: Vec<_> = kept.iter().filter(|of| of.how == "path").collect();
    assert!(!kept.is_empty(), "{found:#?}");
    for of in kept {
        assert_eq!(of.function.as_deref(), Some("Service.log"), "{of:#?}");
        assert_eq!(
            of.line,
            line_of("growth/growth.py", "self.history.append"),
            "{of:#?}"
        );
        assert_eq!(of.verified, Some(true));
        assert!(of.share.is_some_and(|share| share >= 0.5), "{of:#?}");
        assert!(of.text.starts_with("kept by "), "{of:#?}");
        let list = &of.path[of.container.expect("a container")];
        assert_eq!((&*list.kind, &*list.name), ("object", ".history"));
        assert_eq!(list.type_name.as_deref(), Some("list"));
        assert!(list.length > Some(100), "{of:#?}");
        assert!(list.growth_per_s > Some(0.0), "{of:#?}");
    }
}

/// The chains of a hash map begin in different words of one variable.
#[test]
fn a_table_of_chains_is_one_container() {
    let fixture = Fixture::shared();
    let mut daemon = Command::new(targets::program("field/native/daemon.c"));
    let target = Running::start(daemon.args(["leak", "1", "sessions"]));
    let record = Record::attach(&fixture, target.pid(), &["-d", SECONDS]);
    let file = record.file.clone();
    record.running.wait().expect_code(0);
    let found = diagnosis(&file);
    let table = |of: &&KeptBy| of.path[0].name.ends_with(": table[i]") && of.container == Some(0);
    assert!(kept_by(&found).iter().any(table), "{found:#?}");
}

#[test]
fn without_a_search_a_container_is_probable() {
    let fixture = Fixture::shared();
    let (stderr, found) = recorded(&fixture, "py-leak-service", &["--no-holders"]);
    assert!(!stderr.contains("searched for"), "{stderr}");
    let kept = kept_by(&found);
    assert!(!kept.is_empty(), "{found:#?}");
    assert!(kept.iter().all(|of| of.how == "container"), "{kept:#?}");
}

#[test]
fn sites_that_do_not_leak_have_no_holder() {
    let fixture = Fixture::shared();
    let (_, found) = recorded(&fixture, "py-service", &[]);
    assert_eq!(found.verdicts[0].class, "none");
    assert!(kept_by(&found).is_empty(), "{found:#?}");
}

#[test]
fn a_device_without_memory_is_searched_for_at_once() {
    let fixture = Fixture::shared();
    let target = [targets::program("device_full.c"), targets::fake_devices()];
    let record = Record::launch(&fixture, &[], target);
    let file = record.file.clone();
    let finished = record.running.wait().expect_code(0);
    let stderr = &finished.stderr;
    assert!(
        stderr.contains("when a device was out of memory") && stderr.contains("was stopped for"),
        "{stderr}"
    );
    let found = diagnosis(&file);
    let kept = kept_by(&found);
    assert!(
        kept.iter().any(|of| {
            let is_global = of
                .path
                .first()
                .is_some_and(|step| step.name.contains("kept"));
            of.how == "path" && is_global && of.seen_s.is_some()
        }),
        "{found:#?}\n{stderr}"
    );
}
