//! The kind of growth of real processes. `cargo xtask verdicts` has every scenario and many seeds; these tests have one
//! of each kind.

use memtrace_tests::{
    Fixture,
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

/// Length of a recording with default options, seconds.
const BY_DEFAULT: &str = "15";

#[derive(Debug, Deserialize)]
struct Diagnosis {
    verdicts: Vec<Verdict>,
    accounts: Vec<Account>,
    suppressed: Vec<serde_json::Value>,
    job: Option<Job>,
    untraced: Vec<Untraced>,
}

/// Growth of several processes.
#[derive(Debug, Deserialize)]
struct Job {
    class: String,
    tgids: Vec<u32>,
    bytes_per_s: f64,
    lines: Vec<Frame>,
}

#[derive(Debug, Deserialize)]
struct Untraced {
    tgid: u32,
    why: String,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    tgid: u32,
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
    text: String,
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
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

/// The command that runs a scenario for `seconds`.
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
fn judged(fixture: &Fixture, scenario: &str, options: &[&str]) -> Diagnosis {
    // The recording ends before the program does.
    let target = command(scenario, "6");
    let recording = ["--interval", "50ms", "-d", SECONDS];
    let record = Record::launch(fixture, &recording, target);
    let file = record.file.clone();
    record.finish(0);
    diagnosed(&file, options)
}

/// The same with the default interval.
#[track_caller]
fn judged_by_default(fixture: &Fixture, scenario: &str) -> Diagnosis {
    let target = command(scenario, "16");
    let record = Record::launch(fixture, &["-d", BY_DEFAULT], target);
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
fn a_leak_is_reported_with_its_function_and_can_be_suppressed() {
    let fixture = Fixture::shared();
    let found = judged(&fixture, "leak-malloc", &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_heap"), "{found:#?}");
    assert!(found.suppressed.is_empty());

    let file = fixture.path("suppressions");
    std::fs::write(&file, "# known\nleak:grow_heap\n").expect("the folder is writable");
    let options = ["--suppressions", file.to_str().expect("UTF-8")];
    let suppressed = judged(&fixture, "leak-malloc", &options);
    suppressed.expect("leak");
    assert!(suppressed.blamed("leak").is_empty(), "{suppressed:#?}");
    assert_eq!(suppressed.suppressed.len(), 1);
}

#[test]
fn a_python_list_that_grows_is_a_leak_of_its_line() {
    let found = judged(&Fixture::shared(), "py-leak-list", &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_list"), "{found:#?}");
}

#[test]
fn the_line_that_keeps_is_named_beside_the_one_that_allocates() {
    let fixture = Fixture::shared();
    let found = judged(&fixture, "py-leak-service", &[]);
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
        // The program may have ended before its memory was searched.
        assert!(["container", "path"].contains(&&*of.how), "{}", of.how);
        let Some(function) = &of.function else {
            // The list has been reallocated since the recording ended, at an unknown line.
            assert!(
                of.how == "path" && of.text.contains(".history"),
                "{}",
                of.text
            );
            continue;
        };
        assert_eq!(function, "Service.log");
        let file = of.file.as_deref().unwrap_or_default();
        assert!(file.ends_with("growth.py"), "{file}");
        assert_eq!(of.line, line);
    }
    assert!(!kept.is_empty(), "{found:#?}");
    judged(&fixture, "py-service", &[]).expect("none");
}

#[test]
fn small_blocks_that_hold_much_open_are_a_leak_not_retention() {
    let fixture = Fixture::shared();
    let found = judged(&fixture, "leak-shrunk", &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_shrunk"), "{found:#?}");
    judged(&fixture, "shrunk", &[]).expect("none");
}

#[test]
fn fifteen_seconds_with_default_options_are_enough_for_a_leak() {
    let fixture = Fixture::shared();
    let found = judged_by_default(&fixture, "py-leak-list");
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_list"), "{found:#?}");

    let target = command("leak-malloc", "60");
    let target = Running::start(Command::new(&target[0]).args(&target[1..]));
    let record = Record::attach(&fixture, target.pid(), &["-d", BY_DEFAULT]);
    let file = record.file.clone();
    record.running.wait().expect_code(0);
    let found = diagnosed(&file, &[]);
    found.expect("leak");
    assert!(found.blamed("leak").contains(&"grow_heap"), "{found:#?}");
}

#[test]
fn a_slowly_filling_cache_is_not_a_leak_with_default_options() {
    let found = judged_by_default(&Fixture::shared(), "py-cache-functools");
    found.expect("cache");
    assert!(found.blamed("leak").is_empty(), "{found:#?}");
}

#[test]
fn a_full_cache_is_not_a_leak() {
    // With other tests beside it, the cache fills unevenly, and one verdict in ten is undetermined.
    judged(&Fixture::new(), "cache-lru", &[]).expect("cache");
}

#[test]
fn freed_memory_kept_by_the_allocator_is_retention() {
    judged(&Fixture::shared(), "arenas", &[]).expect("retention");
}

#[test]
fn huge_pages_around_little_data_are_reported() {
    judged(&Fixture::shared(), "thp", &[]).expect("thp");
}

#[test]
fn a_load_that_comes_and_goes_is_not_growth() {
    judged(&Fixture::shared(), "sawtooth-mapped", &[]).expect("none");
}

#[test]
fn descriptors_that_pile_up_are_reported() {
    judged(&Fixture::shared(), "leak-fd", &[]).expect("fd-leak");
}

#[test]
fn children_that_pile_up_are_reported() {
    judged(&Fixture::shared(), "leak-process", &[]).expect("process-leak");
}

#[test]
fn thread_churn_is_reported() {
    judged(&Fixture::shared(), "thread-churn", &[]).expect("thread-churn");
}

/// Starts a job whose main process prints which others it has started, and returns these.
#[track_caller]
fn started(scenario: &str, seconds: &str) -> (Running, Vec<u32>) {
    let command = command(scenario, seconds);
    // Not while the job's time runs: it may have to be built first.
    targets::memtrace();
    let main = Running::start(Command::new(&command[0]).args(&command[1..]));
    let line = main.await_stdout("started");
    let pids = line.split_whitespace().skip(1);
    let pids = pids.map(|pid| pid.parse().expect("a pid")).collect();
    (main, pids)
}

/// Attaches to the main process alone, for a while. Returns the messages of `record`.
#[track_caller]
fn attached(fixture: &Fixture, main: &Running, options: &[&str]) -> (PathBuf, String) {
    let options = [&["--interval", "50ms", "-d", SECONDS], options].concat();
    let record = Record::attach(fixture, main.pid(), &options);
    let file = record.file.clone();
    (file, record.running.wait().expect_code(0).stderr)
}

/// The first screen.
#[track_caller]
fn screen(file: &Path) -> String {
    let mut command = record::command(["diagnose"]);
    let text = Running::start(command.arg(file)).wait().expect_code(0);
    let (screen, _) = text.stdout.split_once("\n\n").expect("what follows");
    screen.to_owned()
}

fn listed(pids: &[u32]) -> String {
    let [first, second, third] = pids else {
        panic!("three workers: {pids:?}");
    };
    format!("{first}, {second} and {third} of `")
}

#[test]
fn workers_that_lived_before_are_traced_and_judged_as_one_job() {
    let fixture = Fixture::shared();
    let (main, mut workers) = started("py-leak-workers", "60");
    let (file, said) = attached(&fixture, &main, &[]);
    assert!(!said.contains("not traced"), "{said}");
    let found = diagnosed(&file, &[]);
    found.expect("none");
    assert_eq!(found.verdicts[0].tgid, main.pid());
    let job = found.job.as_ref().expect("a job");
    workers.sort_unstable();
    let mut tgids = job.tgids.clone();
    tgids.sort_unstable();
    assert_eq!((job.class.as_str(), &tgids), ("leak", &workers));
    assert!(job.bytes_per_s > 0.0);
    assert_eq!(job.lines[0].function.as_deref(), Some("grow_read"));
    assert!(found.untraced.is_empty());

    let screen = screen(&file);
    assert!(screen.starts_with("leak (grade "), "{screen}");
    let processes = format!("  processes     {}", listed(&workers));
    for part in [
        &processes,
        "\n  allocated by  grow_read  ",
        "\nnone (grade ",
    ] {
        assert!(screen.contains(part), "`{part}` is missing in:\n{screen}");
    }
    assert!(screen.contains("which it started"), "{screen}");
    let report = record::report(&file);
    for &worker in &workers {
        assert!(report.total(worker, "heap").alloc_count > 0);
    }
}

#[test]
fn workers_that_are_left_out_are_named() {
    let fixture = Fixture::shared();
    let (main, mut workers) = started("py-leak-workers", "60");
    workers.sort_unstable();
    let (file, said) = attached(&fixture, &main, &["--no-follow"]);
    let line = format!("not traced: {}", listed(&workers));
    assert_eq!(said.matches(&line).count(), 2, "{said}");
    let found = diagnosed(&file, &[]);
    found.expect("none");
    assert!(found.job.is_none());
    let untraced: Vec<u32> = found.untraced.iter().map(|of| of.tgid).collect();
    assert_eq!(untraced, workers);
    assert!(found.untraced.iter().all(|of| of.why == "--no-follow"));
    assert!(screen(&file).contains(&line));
    let report = record::report(&file);
    let tgids: Vec<u32> = report.processes.iter().map(|of| of.tgid).collect();
    assert_eq!(tgids, [main.pid()]);
}

#[test]
fn workers_that_keep_nothing_are_not_a_finding() {
    let fixture = Fixture::shared();
    let (main, workers) = started("py-workers", "60");
    let (file, _) = attached(&fixture, &main, &[]);
    let found = diagnosed(&file, &[]);
    let processes = found.verdicts.iter().filter(|of| of.scope == "process");
    let classes: Vec<&str> = processes.map(|of| of.class.as_str()).collect();
    assert_eq!(classes, vec!["none"; 1 + workers.len()]);
    assert!(found.job.is_none());
}

#[test]
fn pages_copied_by_an_older_child_are_reported() {
    let fixture = Fixture::shared();
    let (main, children) = started("py-copy-on-write", "8");
    let (file, _) = attached(&fixture, &main, &[]);
    let found = diagnosed(&file, &[]);
    found.expect("none");
    let child = found.verdicts.iter().find(|of| of.tgid == children[0]);
    assert_eq!(child.map(|of| of.class.as_str()), Some("copy-on-write"));
}
