//! Holders of an object or a block of a running process: paths that the program itself confirms.

use memtrace_tests::{Fixture, running::Running, targets};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    process::Command,
};

/// The output of `memtrace holders --format json`.
#[derive(Deserialize)]
struct Answer {
    sought: Vec<Sought>,
    longest_stop_ns: u64,
}

#[derive(Deserialize)]
struct Sought {
    what: String,
    looked_at: u64,
    addresses: Vec<String>,
    ways: Vec<Way>,
}

#[derive(Debug, Deserialize)]
struct Way {
    how: String,
    #[serde(default)]
    path: Vec<Step>,
    expression: Option<String>,
}

impl Way {
    /// Whether it begins in memory that may or may not be in use.
    fn is_from_unknown_memory(&self) -> bool {
        self.path.first().is_some_and(|step| step.kind == "mapping")
    }
}

#[derive(Debug, Deserialize)]
struct Step {
    kind: String,
    name: String,
    #[serde(rename = "type")]
    type_name: Option<String>,
    length: Option<u64>,
    limit: Option<u64>,
}

impl Answer {
    fn of(pid: u32, arguments: &[String]) -> Self {
        let mut command = Command::new(targets::memtrace());
        command.args(["holders", "--format", "json", "-p", &pid.to_string()]);
        let finished = Running::start(command.args(arguments))
            .wait()
            .expect_code(0);
        serde_json::from_str(&finished.stdout).expect("JSON")
    }
}

/// Holders that no expression can name: elements of sets, structures of C, and values that only running code has.
const WITHOUT_EXPRESSION: [&str; 15] = [
    "InDictAsKey",
    "InDictOfObjects",
    "InStaticOfC",
    "InSet",
    "InFrozenset",
    "InContext",
    "InThreadLocal",
    "InElement",
    "InSubelement",
    "InLruCache",
    "InGenerator",
    "InFrame",
    "InCoroutine",
    "InIterator",
    "InMap",
];

/// Whether the path goes through a value that a frame may be working with.
fn is_in_use(sought: &Sought) -> bool {
    let mut steps = sought.ways.iter().flat_map(|way| &way.path);
    steps.any(|step| step.name.ends_with("in use"))
}

/// Whether the path goes through a container of this type and length.
fn has(way: &Way, of_type: &str, length: u64, limit: Option<u64>) -> bool {
    way.path.iter().any(|step| {
        step.type_name.as_deref() == Some(of_type)
            && (step.length, step.limit) == (Some(length), limit)
    })
}

/// Every object is found, and if the answer is an expression, the interpreter confirms it.
fn expect_right_expressions(interpreter: &Path) {
    let mut command = Command::new(interpreter);
    command.arg("-B").arg(targets::source("python/holders.py"));
    expect_right_answers(command.arg(targets::library("python/static.c")));
}

/// As above, for a command that runs `holders.py`.
fn expect_right_answers(command: &mut Command) {
    let program = targets::source("python/holders.py");
    let mut target = Running::start(command);
    let ready = target.await_stdout("ready ");
    let minor: u32 = ready["ready ".len()..].parse().expect("a version");
    let source = std::fs::read_to_string(program).expect("readable");
    let made = source.split("make(\"").skip(1);
    let names: Vec<&str> = made.filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 40, "{names:?}");
    let arguments: Vec<String> = names.iter().map(|name| format!("--type={name}")).collect();
    let answer = Answer::of(target.pid(), &arguments);
    let mut wrong = Vec::new();
    for (number, (name, sought)) in names.iter().zip(&answer.sought).enumerate() {
        // Free memory of an arena may contain something that looks like an object.
        let known = sought
            .ways
            .iter()
            .filter(|way| !way.is_from_unknown_memory());
        let ways: Vec<&Way> = known.collect();
        let held: Vec<&str> = ways.iter().map(|way| &*way.how).collect();
        let (looked_at, expected) = match *name {
            // It went with its last reference.
            "OnlyWeakly" => (0, &[] as &[&str]),
            // Up to 3.10, stale values of a running frame cannot be distinguished.
            "InCycle" if minor <= 10 && is_in_use(sought) => (1, &["path"] as &[&str]),
            "InCycle" => (1, &["cycle-collector-off"] as &[&str]),
            _ => (1, &["path"] as &[&str]),
        };
        let others = (sought.ways.len() - ways.len()) as u64;
        assert_eq!(
            (&*sought.what, sought.looked_at),
            (*name, looked_at + others),
            "{name}"
        );
        if held != expected {
            wrong.push(format!("{name}: {held:?}"));
            continue;
        }
        let Some(way) = ways.first().filter(|way| way.how == "path") else {
            continue;
        };
        let path: String = way.path.iter().map(|step| &*step.name).collect();
        match *name {
            "InContext" if !path.contains("<ContextVar 'in_context'>") => wrong.push(path.clone()),
            "InStaticOfC" if !path.contains("held") => wrong.push(path.clone()),
            "InLruCache" if !has(way, "lru_cache", 1, None) => wrong.push(path.clone()),
            "InBoundedDeque" if !has(way, "collections.deque", 1, Some(150)) => {
                wrong.push(path.clone());
            }
            _ => {}
        }
        let Some(expression) = &way.expression else {
            if !WITHOUT_EXPRESSION.contains(name) && *name != "InCycle" {
                wrong.push(format!("{name}: no expression: {path}"));
            }
            continue;
        };
        // The number distinguishes the answers.
        target.send(&format!("{number} {name} {expression}\n"));
        let judged = target.await_stdout(&format!("{number} "));
        if !judged.ends_with(" right") {
            wrong.push(format!("{name}: {expression}: {judged}"));
        }
    }
    assert!(wrong.is_empty(), "{command:?}:\n{}", wrong.join("\n"));
    assert!(answer.longest_stop_ns > 0);
}

#[test]
fn paths_in_python_lead_to_the_object() {
    let _fixture = Fixture::new();
    expect_right_expressions(Path::new("/usr/bin/python3"));
}

#[test]
fn paths_in_other_versions_of_python_lead_to_the_object() {
    let _fixture = Fixture::new();
    for minor in 9..=14 {
        // Missing versions are tested by `cargo xtask test-pythons`.
        if let Some(interpreter) = targets::installed_python(minor) {
            expect_right_expressions(&interpreter);
        }
    }
}

/// The answers about objects that no root reaches are right. How often each interpreter is asked: `MEMTRACE_SEARCHES`.
fn expect_reasons(interpreter: &Path) {
    let mut command = Command::new(interpreter);
    command
        .arg("-B")
        .arg(targets::source("python/unreached.py"));
    let runs = env::var("MEMTRACE_SEARCHES").ok();
    let runs = runs.map_or(1, |runs| runs.parse().expect("a number"));
    let (mut right, mut all) = (0, 0);
    for _ in 0..runs {
        let (of_run, objects) = expect_right_reasons(&mut command);
        right += of_run;
        all += objects;
    }
    eprintln!(
        "{}: {right} of {all} objects named in {runs} runs",
        interpreter.display()
    );
}

/// As above, for a command that runs `unreached.py`: how many objects are explained, and all of them.
fn expect_right_reasons(command: &mut Command) -> (usize, usize) {
    let target = Running::start(command);
    let output = target.await_stdout("made ");
    let made: Vec<(&str, &str)> = output
        .split(' ')
        .filter_map(|it| it.split_once('='))
        .collect();
    assert!(made.len() > 200, "{output}");
    let arguments = made
        .iter()
        .map(|(_, address)| format!("--address={address}"));
    let answer = Answer::of(target.pid(), &arguments.collect::<Vec<_>>());
    let mut right: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for ((name, _), sought) in made.iter().zip(&answer.sought) {
        let expected: &[&str] = match name.split('_').next() {
            Some("surplus") => &["surplus-reference"],
            Some("cycle") => &["cycle"],
            Some("hidden") => &["hidden-reference"],
            Some("held") => &["path"],
            _ => &[],
        };
        let held: Vec<&str> = sought.ways.iter().map(|way| &*way.how).collect();
        let is_stale = sought.ways.iter().any(|way| way.how == "path");
        let known = right.entry(name).or_default();
        known.1 += 1;
        match held == expected {
            true => known.0 += 1,
            // A word left over on a stack may point to some.
            false => assert!(held.is_empty() || is_stale, "{name}: {:?}", sought.ways),
        }
    }
    for (name, (right, all)) in &right {
        assert!(2 * right > *all, "{name}: {right} of {all}: {command:?}");
    }
    let sum = |(right, all), of: &(usize, usize)| (right + of.0, all + of.1);
    right.values().fold((0, 0), sum)
}

#[test]
fn objects_without_a_root_are_explained() {
    let _fixture = Fixture::new();
    expect_reasons(targets::interpreter());
    for minor in 9..=14 {
        if let Some(interpreter) = targets::installed_python(minor) {
            expect_reasons(&interpreter);
        }
    }
    // One with PyTorch has tensors, too.
    let others = env::var_os("MEMTRACE_PYTHONS");
    for interpreter in others.iter().flat_map(|others| env::split_paths(others)) {
        expect_reasons(&interpreter);
    }
}

/// Each interpreter of the Debian roots in `MEMTRACE_ROOTS`: `cargo xtask test-pythons` makes them.
#[test]
fn in_other_roots() {
    let Some(roots) = env::var_os("MEMTRACE_ROOTS") else {
        eprintln!("skipped: `cargo xtask test-pythons` makes such roots");
        return;
    };
    let _fixture = Fixture::new();
    for root in env::split_paths(&roots) {
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        let inside = Path::new("/tmp").join(folder.path().file_name().expect("a name"));
        let copy = |from: &Path, name: &str| {
            std::fs::copy(from, folder.path().join(name)).expect("a copy");
            inside.join(name)
        };
        let script = copy(&targets::source("python/holders.py"), "holders.py");
        let library = copy(&targets::library("python/static.c"), "static.so");
        let unreached = copy(&targets::source("python/unreached.py"), "unreached.py");
        let interpreters = (9..=14).map(|minor| format!("usr/bin/python3.{minor}"));
        let mut seen = 0;
        for python in interpreters.filter(|python| root.join(python).exists()) {
            let mut command = Command::new("chroot");
            command.arg(&root).arg(Path::new("/").join(&python));
            expect_right_answers(command.arg("-B").args([&script, &library]));
            let mut command = Command::new("chroot");
            command.arg(&root).arg(Path::new("/").join(&python));
            expect_right_reasons(command.arg("-B").arg(&unreached));
            seen += 1;
        }
        assert!(seen > 0, "no interpreter in {}", root.display());
    }
}

#[test]
fn native_holders_match_the_program() {
    let _fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new(targets::program("holders.cc")));
    target.await_stdout("ready");
    let expected = [
        ("global-array", "global", "global_array + 0x18"),
        ("linked-list", "global", "linked_list"),
        ("map", "global", "by_number"),
        ("unordered-map", "global", "by_hash"),
        ("vector", "global", "sessions"),
        ("shared-ptr", "global", "shared"),
        ("tree", "global", "tree"),
        ("tls", "thread-local", "in_tls"),
        ("stack", "stack", "serve()"),
        ("register", "register", "r12"),
        ("mmap-pool", "mapping", ""),
    ];
    let lost = [
        "lost",
        "lost-chain",
        "lost-indirectly",
        "lost-cycle",
        "lost-cycle-other",
        "held-by-freed",
    ];
    let address = |name: &str| {
        let line = target.await_stdout(&format!("{name} "));
        line.rsplit(' ').next().expect("an address").to_owned()
    };
    let marked = ["tagged"];
    let names = expected.iter().map(|(name, ..)| name);
    let names = names.chain(&lost).chain(&marked);
    let arguments: Vec<String> = names
        .map(|name| format!("--address={}", address(name)))
        .collect();
    let answer = Answer::of(target.pid(), &arguments);
    for ((name, kind, root), sought) in expected.iter().zip(&answer.sought) {
        let way = sought.ways.first().unwrap_or_else(|| panic!("{name}"));
        let first = way
            .path
            .first()
            .unwrap_or_else(|| panic!("{name}: {}", way.how));
        assert_eq!(first.kind, *kind, "{name}: {}", first.name);
        assert!(first.name.contains(root), "{name}: {}", first.name);
    }
    for (name, sought) in lost.iter().zip(&answer.sought[expected.len()..]) {
        let held: Vec<&str> = sought.ways.iter().map(|way| &*way.how).collect();
        let expected = match *name {
            "lost-indirectly" => "lost-with",
            "lost-cycle" | "lost-cycle-other" => "lost-cycle",
            _ => "nothing",
        };
        assert_eq!(held, [expected], "{name}");
    }
    let tagged = answer.sought.last().expect("tagged");
    assert!(tagged.ways.is_empty(), "{}", tagged.ways[0].how);
    target.close_stdin();
    assert!(target.end().success());
}

/// The names that `holders.cc` prints for blocks, by address. No other blocks of it are lost.
fn names<'a>(stdout: &'a str, addresses: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let lines = stdout.lines().take_while(|line| *line != "ready");
    let blocks: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let name = |address: &str| {
        let block = blocks.iter().find(|(_, at)| *at == address);
        block.unwrap_or_else(|| panic!("{address}:\n{stdout}")).0
    };
    addresses.map(name).collect()
}

/// LeakSanitizer looks from inside, when the program asks; memtrace from outside, while it runs.
#[test]
fn lost_blocks_are_those_of_leak_sanitizer() {
    let _fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new(targets::program("holders.cc")));
    target.await_stdout("ready");
    let answer = Answer::of(target.pid(), &["--lost".to_owned()]);
    target.close_stdin();
    let ended = target.wait().expect_code(0);
    let addresses = answer.sought[0].addresses.iter();
    let lost = names(&ended.stdout, addresses.map(|address| &**address));

    let mut checked = Command::new(targets::leak_checked("holders.cc"));
    checked.env("LSAN_OPTIONS", "report_objects=1:exitcode=23");
    let checked = Running::start(&mut checked).wait().expect_code(23);
    let is_object = |line: &&str| line.starts_with("0x") && line.ends_with(" bytes)");
    let objects = checked.stderr.lines().filter(is_object);
    let addresses = objects.filter_map(|line| line.split(' ').next());
    let mut leaked = names(&checked.stdout, addresses);

    assert!(leaked.len() > 5, "{}", checked.stderr);
    // LeakSanitizer does not look for pointers in memory that the program maps by itself.
    assert!(leaked.remove("mmap-pool"), "{}", checked.stderr);
    // Nor for pointers with marks.
    assert!(leaked.remove("tagged"), "{}", checked.stderr);
    assert_eq!(lost, leaked);
}

/// Only glibc's heap can be read block by block.
#[test]
fn with_another_allocator_lost_blocks_are_unknown() {
    let _fixture = Fixture::new();
    let mut command = Command::new(targets::program("prepended.c"));
    let mut target = Running::start(command.env("LD_PRELOAD", targets::JEMALLOC.path()));
    target.await_stdout("oldest ");
    let mut search = Command::new(targets::memtrace());
    search.args(["holders", "--lost", "-p", &target.pid().to_string()]);
    let finished = Running::start(&mut search).wait().expect_code(2);
    let expected = "so it cannot tell which are lost: malloc is that of `libjemalloc.so.2`";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    target.expect_alive();
}

/// The heads of the lists are younger than the search, the blocks searched for are not. A global variable refers to one
/// of them, and a block to the other.
#[test]
fn lists_that_grow_at_their_head_hold_their_blocks() {
    let _fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new(targets::program("prepended.c")));
    let oldest = target.await_stdout("oldest ");
    let addresses = oldest["oldest ".len()..].split(' ');
    let addresses: Vec<String> = addresses.map(|at| format!("--address={at}")).collect();
    const RUNS: usize = 5;
    let mut found = 0;
    for _ in 0..RUNS {
        let answer = Answer::of(target.pid(), &addresses);
        for (list, root) in answer.sought.iter().zip(["head", "owner"]) {
            let held: Vec<&str> = list.ways.iter().map(|way| &*way.how).collect();
            assert!(
                !held
                    .iter()
                    .any(|how| ["nothing", "lost-with"].contains(how)),
                "{held:?}"
            );
            let mut paths = list.ways.iter().filter_map(|way| way.path.first());
            found += usize::from(paths.any(|step| step.name.ends_with(root)));
        }
        let lost = Answer::of(target.pid(), &["--lost".to_owned()]);
        assert_eq!(lost.sought[0].looked_at, 0);
    }
    assert!(found * 10 >= RUNS * 2 * 9, "{found} of {} paths", RUNS * 2);
    target.expect_alive();
}

/// Objects come and go thousands of times a second during the search; every printed path is true.
#[test]
fn no_wrong_path_is_printed_of_memory_that_changes() {
    let _fixture = Fixture::new();
    let mut target = Running::start(&mut targets::python("python/mutating.py"));
    target.await_stdout("ready");
    let mut found = 0;
    const RUNS: u32 = 10;
    for _ in 0..RUNS {
        let answer = Answer::of(target.pid(), &["--type=Leak".to_owned()]);
        for way in &answer.sought[0].ways {
            let path: String = way.path.iter().map(|step| &*step.name).collect();
            assert_eq!(
                (&*way.how, &*path),
                ("path", "__main__.cache['sessions'][i]")
            );
            found += 1;
        }
    }
    assert!(found * 10 >= RUNS * 9, "found in {found} of {RUNS} runs");
    target.expect_alive();
}
