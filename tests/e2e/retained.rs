//! The objects that keep most of a process's memory, and the two ways to see all of it at one moment.

use memtrace_tests::{Fixture, running::Running, targets};
use serde::Deserialize;
use std::{fs, path::Path, process::Command};

/// The output of `memtrace holders --format json`.
#[derive(Deserialize)]
struct Answer {
    sought: Vec<Sought>,
    retained: Option<Retained>,
    as_of: String,
    longest_stop_ns: u64,
}

#[derive(Deserialize)]
struct Sought {
    known: u64,
    kept: Option<Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Kept {
    bytes: u64,
    blocks: u64,
}

#[derive(Deserialize)]
struct Retained {
    reachable: Kept,
    lost: Kept,
    largest: Vec<Keeper>,
}

#[derive(Debug, Deserialize)]
struct Keeper {
    bytes: u64,
    blocks: u64,
    depth: u64,
    #[serde(default)]
    path: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    name: String,
}

fn command(pid: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(targets::memtrace());
    command.args(["holders", "--format", "json", "-p", &pid.to_string()]);
    command.args(arguments);
    command
}

impl Answer {
    fn of(pid: u32, arguments: &[&str]) -> Self {
        let finished = Running::start(&mut command(pid, arguments)).wait();
        let finished = finished.expect_code(0);
        serde_json::from_str(&finished.stdout).expect("JSON")
    }
}

impl Retained {
    /// The one whose path is this, as far as it has names.
    fn keeper(&self, path: &str) -> &Keeper {
        let mut largest = self.largest.iter();
        let found = largest.find(|keeper| keeper.name() == path);
        found.unwrap_or_else(|| panic!("{path} in {:#?}", self.largest))
    }
}

impl Keeper {
    fn name(&self) -> String {
        self.path.iter().map(|step| &*step.name).collect()
    }
}

fn status(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default().trim().to_owned()
}

/// The sizes that the program reports.
struct Made {
    bytes: u64,
    blocks: u64,
    address: String,
}

fn made(target: &Running, name: &str) -> Made {
    let line = target.await_stdout(&format!("{name} "));
    let words: Vec<&str> = line.split_whitespace().collect();
    Made {
        bytes: words[1].parse().expect("bytes"),
        blocks: words[2].parse().expect("blocks"),
        address: words[3].to_owned(),
    }
}

/// Parts of a container that words on a stack, left there by chance, may hold as well.
const BY_CHANCE: u64 = 4;

/// The same in Python, whose frames are on a stack of their own.
const BY_CHANCE_IN_PYTHON: u64 = 20;

#[test]
fn cpp_containers_keep_the_expected_bytes() {
    let _fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new(targets::program("retained.cc")));
    target.await_stdout("ready");
    let pid = target.pid();
    let answer = Answer::of(pid, &["--stop", "--retained"]);
    assert!(answer.longest_stop_ns > 0);
    assert_eq!(answer.as_of, "stopped");
    let retained = answer.retained.expect("what keeps most");
    for (name, depth, largest) in [
        ("pool", 0, 5100),
        ("chain", 0, 100),
        ("outer", 0, 6100),
        ("inner", 1, 6100),
    ] {
        let made = made(&target, name);
        let variable = match name {
            "inner" => "outer",
            name => name,
        };
        let of_variable = |keeper: &&Keeper| {
            let first = &keeper.path.first().expect("a root").name;
            keeper.depth == depth && first.ends_with(&format!(": {variable}"))
        };
        let mut found = retained.largest.iter();
        let keeper = found.find(of_variable);
        let keeper = keeper.unwrap_or_else(|| panic!("{name} in {:#?}", retained.largest));
        assert!(
            keeper.bytes <= made.bytes && keeper.bytes + BY_CHANCE * largest >= made.bytes,
            "{name}: {} of {}",
            keeper.bytes,
            made.bytes
        );
        assert!(
            keeper.blocks <= made.blocks && keeper.blocks + BY_CHANCE >= made.blocks,
            "{name}: {} of {}",
            keeper.blocks,
            made.blocks
        );
    }
    let lost = made(&target, "lost");
    let (bytes, blocks) = (lost.bytes, lost.blocks);
    assert_eq!(retained.lost, Kept { bytes, blocks });
    // All but the program's own buffers and those of its libraries.
    let all = [
        "pool",
        "chain",
        "left_of_two",
        "right_of_two",
        "both",
        "outer",
    ];
    let sum: u64 = all.iter().map(|name| made(&target, name).bytes).sum();
    let reachable = retained.reachable.bytes;
    assert!(
        (sum..sum + 200_000).contains(&reachable),
        "{reachable} and {sum}"
    );
    // Memory that two hold counts for neither.
    let names = ["left_of_two", "right_of_two"];
    for name in names {
        let made = made(&target, name);
        let address = format!("--address={}", made.address);
        let answer = Answer::of(pid, &["--stop", "--retained", &address]);
        let expected = Kept {
            bytes: made.bytes,
            blocks: made.blocks,
        };
        assert_eq!(answer.sought[0].kept, Some(expected), "{name}");
    }
    target.close_stdin();
    assert!(target.end().success());
}

/// Sizes as `sys.getsizeof` has them; the allocators round them up.
fn expect_python_sizes(interpreter: &Path) {
    let program = targets::source("python/retained.py");
    let mut target = Running::start(Command::new(interpreter).arg("-B").arg(program));
    target.await_stdout("ready");
    let bytes = |name: &str| -> u64 {
        let line = target.await_stdout(&format!("{name} "));
        line.rsplit(' ')
            .next()
            .and_then(|it| it.parse().ok())
            .expect("bytes")
    };
    let answer = Answer::of(target.pid(), &["--stop", "--retained"]);
    let retained = answer.retained.expect("what keeps most");
    let sessions = retained.keeper("__main__.server.sessions");
    let expected = bytes("sessions");
    let rounded = expected - BY_CHANCE_IN_PYTHON * 6000..expected + expected / 100 + 2000 * 64;
    assert!(
        rounded.contains(&sessions.bytes),
        "{sessions:?}: {expected}"
    );
    // A session, its data, and the list and its array.
    let all = 2 * 2000 + 2;
    assert!(
        (all - BY_CHANCE_IN_PYTHON..=all).contains(&sessions.blocks),
        "{sessions:?}"
    );
    assert!(retained.reachable.bytes >= expected + bytes("shared"));
    let named = |name: &str| retained.largest.iter().any(|it| it.name().contains(name));
    assert!(
        !named("__main__.one") && !named("__main__.other"),
        "{:#?}",
        retained.largest
    );

    let of_types = ["--stop", "--retained", "--type=Session", "--type=Shared"];
    let answer = Answer::of(target.pid(), &of_types);
    let known: Vec<u64> = answer.sought.iter().map(|sought| sought.known).collect();
    assert_eq!(known, [2000, 1000]);
    // Each keeps its own data, even if it is in two lists itself.
    for sought in &answer.sought {
        let kept = sought.kept.expect("bytes");
        let all = 2 * sought.known;
        assert!(
            (all - BY_CHANCE_IN_PYTHON..=all).contains(&kept.blocks),
            "{kept:?}"
        );
    }
    target.expect_alive();
}

#[test]
fn python_containers_keep_the_expected_bytes() {
    let _fixture = Fixture::new();
    expect_python_sizes(Path::new("/usr/bin/python3"));
    for minor in 9..=14 {
        // Missing versions are tested by `cargo xtask test-pythons`.
        if let Some(interpreter) = targets::installed_python(minor) {
            expect_python_sizes(&interpreter);
        }
    }
}

#[test]
fn retained_sizes_need_one_moment() {
    let _fixture = Fixture::new();
    let target = Running::start(&mut targets::python("python/retained.py"));
    target.await_stdout("ready");
    let finished = Running::start(&mut command(target.pid(), &["--retained"])).wait();
    let finished = finished.expect_code(2);
    assert!(
        finished.stderr.contains("--retained needs --stop"),
        "{finished:?}"
    );
}

/// A process stopped for a search continues when the search ends, however it ends.
#[test]
fn the_end_of_a_search_releases_the_process() {
    let _fixture = Fixture::new();
    // It has a million blocks, so the search takes its time.
    let mut target = Running::start(&mut Command::new(targets::program("holders.cc")));
    target.await_stdout("ready");
    let pid = target.pid();
    let await_state = |is_stopped: bool| {
        while status(pid, "State:").starts_with('t') != is_stopped {
            std::thread::yield_now();
        }
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let search = Running::start(&mut command(pid, &["--stop", "--retained"]));
        search.await_stderr("memtrace: process ");
        await_state(true);
        search.signal(signal);
        await_state(false);
        assert_eq!(status(pid, "TracerPid:"), "0");
        let finished = search.wait();
        if signal != libc::SIGKILL {
            let finished = finished.expect_code(2);
            assert!(
                finished.stderr.contains("the search was interrupted"),
                "{finished:?}"
            );
            assert!(finished.stderr.contains("was stopped for"), "{finished:?}");
        }
    }
    target.close_stdin();
    assert!(target.end().success());
}
