//! What kind of growth it is, told of real processes. `cargo xtask verdicts`
//! has every scenario and many seeds; here is one of each way to decide.
#![allow(clippy::expect_used, reason = "test code: a panic is how a test fails")]

use memtrace_tests::{
    Bench,
    record::{self, Record},
    running::Running,
    targets,
};
use serde::Deserialize;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Length of a recording, seconds: 100 intervals.
const SECONDS: &str = "5";

/// Length of a recording with the options that nobody gave.
const BY_DEFAULT: &str = "15";

#[derive(Debug, Deserialize)]
struct Diagnosis {
    verdicts: Vec<Verdict>,
    accounts: Vec<Account>,
    suppressed: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    scope: String,
    class: String,
    evidence: Vec<Evidence>,
    frames: Vec<Frame>,
    kept_by: Option<KeptBy>,
}

#[derive(Debug, Deserialize)]
struct Evidence {
    kind: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct KeptBy {
    how: String,
    function: String,
    file: String,
    line: u32,
}

#[derive(Debug, Deserialize)]
struct Frame {
    function: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Account {
    growth: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    bytes: f64,
}

impl Diagnosis {
    #[track_caller]
    fn expect(&self, class: &str) {
        let process = &self.verdicts[0];
        assert_eq!(process.scope, "process");
        assert_eq!(process.class, class, "{self:#?}");
        assert!(!process.evidence.is_empty());
        for evidence in &process.evidence {
            assert!(!evidence.kind.is_empty() && !evidence.text.is_empty());
        }
        for account in &self.accounts {
            let sum: f64 = account.rows.iter().map(|row| row.bytes).sum();
            let rounding = account.rows.len() as f64;
            let is_kernels_own = account.rows.is_empty();
            assert!(
                is_kernels_own || (sum - account.growth).abs() <= rounding,
                "{account:?}"
            );
        }
    }

    /// Functions of the stacks of sites of a class.
    fn blamed(&self, class: &str) -> Vec<&str> {
        let sites = self
            .verdicts
            .iter()
            .filter(|verdict| verdict.scope == "site");
        let frames = sites
            .filter(|site| site.class == class)
            .flat_map(|site| &site.frames);
        frames
            .filter_map(|frame| frame.function.as_deref())
            .collect()
    }
}

/// What executes a scenario for `seconds`.
fn command(scenario: &str, seconds: &str) -> Vec<PathBuf> {
    let program: Vec<PathBuf> = match scenario.starts_with("py-") {
        true => vec![
            targets::interpreter().into(),
            targets::source("growth/growth.py"),
        ],
        false => vec![targets::build(
            "gcc",
            &[
                "-O1",
                "-g",
                "-fno-optimize-sibling-calls",
                "-fno-builtin",
                "-pthread",
            ],
            &["growth/growth.c"],
            &["-lm"],
        )],
    };
    let arguments = [scenario, seconds, "1"].map(PathBuf::from);
    program.into_iter().chain(arguments).collect()
}

/// Records a scenario for a while and judges it.
#[track_caller]
fn judged(bench: &Bench, scenario: &str, options: &[&str]) -> Diagnosis {
    // The recording ends before the program does.
    let target = command(scenario, "6");
    let recording = ["--interval", "50ms", "-d", SECONDS];
    let record = Record::launch(bench, &recording, target);
    let file = record.file.clone();
    record.finish(0);
    diagnosed(&file, options)
}

/// The same as who gives no interval has it.
#[track_caller]
fn judged_by_default(bench: &Bench, scenario: &str) -> Diagnosis {
    let target = command(scenario, "16");
    let record = Record::launch(bench, &["-d", BY_DEFAULT], target);
    let file = record.file.clone();
    record.finish(0);
    diagnosed(&file, &[])
}

#[track_caller]
fn diagnosed(file: &Path, options: &[&str]) -> Diagnosis {
    let mut command = record::command(["diagnose", "--format", "json"]);
    let finished = Running::start(command.arg(file).args(options)).wait();
    serde_json::from_str(&finished.expect_code(0).stdout).expect("JSON")
}

#[test]
fn a_leak_is_told_with_its_function_and_can_be_suppressed() {
    let bench = Bench::new();
    let found = judged(&bench, "leak-malloc", &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_heap"), "{found:#?}");
    assert!(found.suppressed.is_empty());

    let file = bench.path("suppressions");
    std::fs::write(&file, "# known\nleak:grow_heap\n").expect("the folder is writable");
    let options = ["--suppressions", file.to_str().expect("UTF-8")];
    let suppressed = judged(&bench, "leak-malloc", &options);
    suppressed.expect("leak");
    assert!(suppressed.blamed("leak").is_empty(), "{suppressed:#?}");
    assert_eq!(suppressed.suppressed.len(), 1);
}

#[test]
fn a_python_list_that_grows_is_a_leak_of_its_line() {
    let found = judged(&Bench::new(), "py-leak-list", &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_list"), "{found:#?}");
}

#[test]
fn the_line_that_keeps_is_named_beside_the_one_that_allocates() {
    let bench = Bench::new();
    let found = judged(&bench, "py-leak-service", &[]);
    found.expect("leak");
    let blamed = found.blamed("leak");
    assert!(blamed.contains(&"Service.grow_answer"), "{found:#?}");
    let sites = found.verdicts.iter().filter(|of| of.scope == "site");
    let kept: Vec<&KeptBy> = sites.filter_map(|of| of.kept_by.as_ref()).collect();
    let source = std::fs::read_to_string(targets::source("growth/growth.py")).expect("the source");
    let append = source
        .lines()
        .position(|line| line.contains("self.history.append"));
    let line = append.map(|index| index as u32 + 1);
    for of in &kept {
        assert_eq!(
            (of.how.as_str(), of.function.as_str()),
            ("container", "Service.log")
        );
        assert!(of.file.ends_with("growth.py"));
        assert_eq!(Some(of.line), line);
    }
    assert!(!kept.is_empty(), "{found:#?}");
    judged(&bench, "py-service", &[]).expect("none");
}

#[test]
fn small_blocks_that_hold_much_open_are_a_leak_and_no_retention() {
    let bench = Bench::new();
    let found = judged(&bench, "leak-shrunk", &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_shrunk"), "{found:#?}");
    judged(&bench, "shrunk", &[]).expect("none");
}

#[test]
fn fifteen_seconds_with_default_options_are_enough_for_a_leak() {
    let bench = Bench::new();
    let found = judged_by_default(&bench, "py-leak-list");
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_list"), "{found:#?}");

    let target = command("leak-malloc", "60");
    let target = Running::start(Command::new(&target[0]).args(&target[1..]));
    let record = Record::attach(&bench, target.pid(), &["-d", BY_DEFAULT]);
    let file = record.file.clone();
    record.running.wait().expect_code(0);
    let found = diagnosed(&file, &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_heap"), "{found:#?}");
}

#[test]
fn a_cache_that_fills_for_most_of_the_time_is_no_leak_with_default_options() {
    let found = judged_by_default(&Bench::new(), "py-cache-functools");
    found.expect("cache");
    assert!(found.blamed("leak").is_empty(), "{found:#?}");
}

#[test]
fn a_cache_that_is_full_is_no_leak() {
    judged(&Bench::new(), "cache-lru", &[]).expect("cache");
}

#[test]
fn what_the_allocator_keeps_is_retention() {
    judged(&Bench::new(), "arenas", &[]).expect("retention");
}

#[test]
fn huge_pages_around_little_data_are_told() {
    judged(&Bench::new(), "thp", &[]).expect("thp");
}

#[test]
fn a_load_that_comes_and_goes_is_no_growth() {
    judged(&Bench::new(), "sawtooth-mapped", &[]).expect("none");
}

#[test]
fn descriptors_that_pile_up_are_told() {
    judged(&Bench::new(), "leak-fd", &[]).expect("fd-leak");
}

#[test]
fn threads_made_again_and_again_are_told() {
    judged(&Bench::new(), "thread-churn", &[]).expect("thread-churn");
}
