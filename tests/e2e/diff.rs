//! `memtrace diff` finds the site that grows on one machine only, and the fact that explains it.

use memtrace_tests::{
    Fixture,
    comparison::{Comparison, Site, diff},
    record::{self, Record},
    running::Running,
    targets,
};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Steps of a program: two and a half seconds.
const STEPS: &str = "500";
/// Bytes that a leaking step keeps.
const KEPT: u64 = 1000;

/// Runs a command to its end and keeps the recording.
fn recorded<A: AsRef<OsStr>>(
    fixture: &Fixture,
    name: &str,
    command: impl IntoIterator<Item = A>,
) -> PathBuf {
    let record = Record::launch(fixture, &["--interval", "50ms"], command);
    let file = record.file.clone();
    record.running.wait().expect_code(7);
    let kept = fixture.path(name);
    fs::rename(file, &kept).expect("in one folder");
    kept
}

/// Steps of a library, run by a wrapper such as `taskset`.
fn steps(fixture: &Fixture, name: &str, wrapper: &[&str], library: &Path) -> PathBuf {
    let program = targets::program("diff/run.c");
    let mut command: Vec<OsString> = wrapper.iter().map(OsString::from).collect();
    command.extend([program.into(), library.into(), STEPS.into()]);
    recorded(fixture, name, command)
}

/// The function that leaks in the new recording comes first; with the sides exchanged, last, by as
/// much. One of the facts is among the first three, both times.
#[track_caller]
fn expect_leak(fixed: &Path, leaky: &Path, function: &str, level: &str, facts: &[&str]) {
    let forth = Comparison::of(fixed, leaky);
    let site = &forth.sites[0];
    assert!(site.is_in(function), "{forth:#?}");
    assert_eq!(site.match_level, level);
    site.expect_sure(1.0);
    let back = Comparison::of(leaky, fixed);
    let by_growth = |a: &&Site, b: &&Site| a.delta_bytes_per_s.total_cmp(&b.delta_bytes_per_s);
    let last = back.sites.iter().min_by(by_growth).expect("a site");
    assert!(last.is_in(function), "{back:#?}");
    last.expect_sure(-1.0);
    assert_eq!(last.delta_bytes_per_s, -site.delta_bytes_per_s);
    for comparison in [&forth, &back] {
        let rank = facts.iter().filter_map(|fact| comparison.rank(fact)).min();
        assert!(
            rank.is_some_and(|rank| rank < 3),
            "{:#?}",
            comparison.fingerprint
        );
    }
}

#[test]
fn a_leak_without_avx2() {
    let fixture = Fixture::new();
    let library = targets::library("diff/isa.c");
    let fixed = steps(&fixture, "fixed.mtr", &[], &library);
    let without = ["env", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2"];
    let leaky = steps(&fixture, "leaky.mtr", &without, &library);
    let facts = ["isa.level", "env.GLIBC_TUNABLES"];
    expect_leak(&fixed, &leaky, "scale_sse2", "L1", &facts);
    let comparison = Comparison::of(&fixed, &leaky);
    assert!(
        comparison.fingerprint[0].related_sites.contains(&0),
        "{comparison:#?}"
    );
}

#[test]
fn a_leak_with_several_processors() {
    let fixture = Fixture::new();
    let library = targets::library("diff/cpus.c");
    let fixed = steps(&fixture, "fixed.mtr", &["taskset", "-c", "0"], &library);
    let leaky = steps(&fixture, "leaky.mtr", &[], &library);
    let facts = ["affinity.count", "affinity.cpus"];
    expect_leak(&fixed, &leaky, "share_work", "L0", &facts);
}

#[test]
fn two_builds_of_one_library() {
    let fixture = Fixture::new();
    let soname = "-Wl,-soname,libx.so.1";
    let mut builds = [["-DFIXED", soname], ["-DLEAKY", soname]].map(|flags| {
        let built = targets::library_with("diff/builds.c", &flags);
        let folder = fixture.path(flags[0]);
        fs::create_dir(&folder).expect("a folder");
        let library = folder.join("libx.so.1");
        fs::copy(built, &library).expect("a copy");
        steps(&fixture, &format!("{}.mtr", &flags[0][2..]), &[], &library)
    });
    let [fixed, leaky] = &mut builds;
    expect_leak(
        fixed,
        leaky,
        "open_session",
        "L1",
        &["lib.libx.so.1.build_id"],
    );

    let grown = |size: &str, baseline: &Path, new: &Path| {
        let condition = format!("growth={size}/s");
        let arguments = [
            "--fail-on".as_ref(),
            condition.as_ref(),
            baseline.as_os_str(),
        ];
        diff(arguments.into_iter().chain([new.as_os_str()]))
    };
    grown("1k", fixed, leaky).expect_code(1);
    grown("1g", fixed, leaky).expect_code(0);
    grown("1k", leaky, fixed).expect_code(0);
    let leak = [
        "--fail-on".as_ref(),
        "leak".as_ref(),
        fixed.as_os_str(),
        leaky.as_os_str(),
    ];
    diff(leak).expect_code(1);

    // Per iteration, growth is the bytes that a step keeps, however fast the steps are.
    let by = ["--per", "alloc-of=iteration"].map(OsStr::new);
    let by_step = Comparison::with(by.into_iter().chain([fixed.as_os_str(), leaky.as_os_str()]));
    let kept = by_step.sites[0].delta_bytes_per_s;
    assert!((kept - KEPT as f64).abs() < 0.01 * KEPT as f64, "{kept}");
    assert!(!by_step.workload.expect("a workload").different);

    // Against baselines of both builds nothing is new.
    let baselines = ["--baseline".as_ref(), fixed.as_os_str(), leaky.as_os_str()];
    let all = || {
        baselines
            .into_iter()
            .chain(["--".as_ref(), leaky.as_os_str()])
    };
    let comparison = Comparison::with(all());
    assert_eq!(comparison.rank("lib.libx.so.1.build_id"), None);
    diff(
        ["--fail-on", "leak"]
            .map(OsStr::new)
            .into_iter()
            .chain(all()),
    )
    .expect_code(0);

    let graph = fixture.path("growth.svg");
    let draw = [
        "--flamegraph".as_ref(),
        graph.as_os_str(),
        fixed.as_os_str(),
    ];
    diff(draw.into_iter().chain([leaky.as_os_str()])).expect_code(0);
    let drawn = fs::read_to_string(&graph).expect("a graph");
    assert!(drawn.contains("open_session ("), "{drawn}");
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    let fixture = Fixture::new();
    let library = targets::library("diff/cpus.c");
    let file = steps(&fixture, "a.mtr", &[], &library);
    let comparison = Comparison::of(&file, &file);
    assert!(comparison.sites.is_empty() && comparison.fingerprint.is_empty());
    assert_eq!(comparison.unmatched_bytes, 0);
    assert!(comparison.matched_bytes > 0);
}

#[test]
fn variables_are_compared_though_their_values_are_not_recorded() {
    let fixture = Fixture::new();
    let library = targets::library("diff/cpus.c");
    let with = |name: &str, variables: &[&str]| {
        let wrapper = [&["env", "--unset=APP_ONLY_HERE"], variables].concat();
        steps(&fixture, name, &wrapper, &library)
    };
    let old = with("old.mtr", &["APP_MODE=quiet", "APP_SAME=yes"]);
    let new = with(
        "new.mtr",
        &["APP_MODE=loud", "APP_SAME=yes", "APP_ONLY_HERE=1"],
    );
    let comparison = Comparison::of(&old, &new);
    let fact = |field: &str| {
        let mut facts = comparison.fingerprint.iter();
        facts.find(|fact| fact.field == field)
    };
    let mode = fact("env.APP_MODE").expect("a difference");
    assert!(mode.baseline != mode.new && mode.absence.is_none());
    let only = fact("env.APP_ONLY_HERE").expect("a difference");
    assert_eq!(only.absence.as_deref(), Some("not set"), "{only:?}");
    assert!(fact("env.APP_SAME").is_none(), "{comparison:#?}");
    let text = |new: &Path| {
        let files = [old.as_os_str(), new.as_os_str()];
        let text = Running::start(record::command(["diff"]).args(files)).wait();
        text.expect_code(0).stdout
    };
    let differing = text(&new);
    let expected = "APP_ONLY_HERE (not set → set)";
    assert!(differing.contains(expected), "{differing}");
    let same = text(&old);
    let (_, claim) = same.split_once("No recorded fact").expect("no difference");
    for gap in ["16 bits of a hash", "content of files"] {
        assert!(claim.contains(gap), "{same}");
    }
}

/// Another version's interpreter, where pyenv has installed it.
fn of_pyenv() -> Option<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".pyenv")))?;
    let mut folders: Vec<_> = fs::read_dir(root.join("versions"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    folders.retain(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let minor = name
            .strip_prefix("3.")
            .and_then(|name| name.split('.').next());
        minor
            .and_then(|minor| minor.parse().ok())
            .is_some_and(|minor: u32| (9..=13).contains(&minor))
    });
    folders.sort();
    Some(folders.pop()?.join("bin/python"))
}

/// The distribution's interpreter in a root of its own, with the program at another path.
fn in_a_root(fixture: &Fixture) -> PathBuf {
    let root = fixture.path("root");
    for folder in ["usr", "srv/app"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for folder in ["lib", "lib64", "bin"] {
        symlink(Path::new("usr").join(folder), root.join(folder)).expect("a link");
    }
    fs::copy(
        targets::source("diff/leak.py"),
        root.join("srv/app/leak.py"),
    )
    .expect("a copy");
    // The mount ends with the namespace.
    let script = "mount --bind /usr \"$0/usr\"; exec chroot \"$0\" \"$@\"";
    let unshare = ["unshare", "--mount", "sh", "-ec", script].map(OsStr::new);
    let python = ["/usr/bin/python3", "-B", "/srv/app/leak.py", STEPS].map(OsStr::new);
    let command = unshare.into_iter().chain([root.as_os_str()]).chain(python);
    recorded(fixture, "root.mtr", command)
}

#[test]
fn a_python_line_under_two_roots() {
    let fixture = Fixture::new();
    let inside = in_a_root(&fixture);
    let source = targets::source("diff/leak.py");
    let text = fs::read_to_string(&source).expect("the program");
    let line = text.lines().position(|line| line.ends_with("# the leak"));
    let line = line.and_then(|index| u32::try_from(index + 1).ok());
    let pythons = [Some(PathBuf::from("/usr/bin/python3")), of_pyenv()];
    for python in pythons {
        let Some(python) = python else {
            eprintln!("skipped: `pyenv install 3.12` installs another interpreter");
            continue;
        };
        let command = [
            python.as_os_str(),
            "-B".as_ref(),
            source.as_os_str(),
            STEPS.as_ref(),
        ];
        let outside = recorded(&fixture, "outside.mtr", command);
        let comparison = Comparison::of(&inside, &outside);
        // Both leak alike, so the line is one site and it hardly grows in any other way.
        let leaks = |site: &&Site| {
            let python = site.frames.iter().find(|frame| frame.kind == "python");
            python.is_some_and(|frame| frame.line == line)
                && site.new_bytes_per_s.max(site.baseline_bytes_per_s) > 10_000.0
        };
        let found: Vec<_> = comparison.sites.iter().filter(leaks).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_ne!(
            found[0].match_level,
            "none",
            "{}: {found:#?}",
            python.display()
        );
        let (old, new) = (found[0].baseline_bytes_per_s, found[0].new_bytes_per_s);
        assert!(old > 10_000.0 && new > 10_000.0, "{old} and {new}");
    }
}

#[test]
fn incomparable_recordings_are_refused_with_a_remedy() {
    let fixture = Fixture::new();
    let library = targets::library("diff/cpus.c");
    let file = steps(&fixture, "a.mtr", &[], &library);
    let file = file.as_os_str();
    for (arguments, expected) in [
        (vec![file], "memtrace diff BASELINE NEW"),
        (vec![file, "missing.mtr".as_ref()], "missing.mtr"),
        (
            vec!["--per".as_ref(), "alloc-of=nothing".as_ref(), file, file],
            "no allocation at `nothing`",
        ),
        (
            vec!["--per".as_ref(), "hours".as_ref(), file, file],
            "is not a unit; give `seconds`",
        ),
        (
            vec!["--fail-on".as_ref(), "growth".as_ref(), file, file],
            "growth=1k/s",
        ),
    ] {
        let finished = diff(arguments).expect_code(2);
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    }
    let text = Running::start(record::command(["diff"]).args([file, file])).wait();
    assert!(
        text.expect_code(0)
            .stdout
            .contains("No site grows differently")
    );
}
