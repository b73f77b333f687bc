//! The suites: how each is made, started and read.

use super::{compare::Results, sources};
use crate::command::{compile_c_with, root};
use anyhow::Result;
use std::{fs, os::unix::fs::symlink, path::Path};

/// Debian's interpreter, which has its tests in a package.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// A file that a suite may write its results to, in its folder.
pub(super) const RESULTS: &str = "results";

/// A suite of tests.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) packages: &'static [&'static str],
    /// Makes its files in a folder of its own, unless they are there.
    pub(super) prepare: fn(&Path) -> Result<()>,
    /// For a shell in that folder.
    pub(super) script: String,
    /// From that folder and the script's output.
    pub(super) results: fn(&Path, &str) -> Results,
}

/// CPython's own tests of processes, signals and threads.
const PYTHON_TESTS: [&str; 8] = [
    "test_signal",
    "test_subprocess",
    "test_threading",
    "test_ssl",
    "test_asyncio",
    "test_multiprocessing_fork",
    "test_multiprocessing_spawn",
    "test_multiprocessing_forkserver",
];

/// Units of Redis's tests that start servers, save and load; all of them take an hour.
const REDIS_UNITS: [&str; 6] = [
    "unit/expire",
    "unit/multi",
    "unit/type/string",
    "unit/other",
    "integration/aof",
    "integration/rdb",
];

/// Every suite. One that hangs is ended after half an hour.
pub(super) fn all(python: &Path) -> Vec<Suite> {
    let python_packages: &[&str] = match python == Path::new(PYTHON) {
        true => &["libpython3.11-testsuite"],
        false => &[],
    };
    let mut suites = vec![
        Suite {
            name: "sanitizers",
            packages: &["gcc", "libc6-dev"],
            prepare: sanitizers,
            script: SANITIZERS.into(),
            results: paragraphs,
        },
        Suite {
            name: "bash",
            packages: &["bash", "gcc", "libc6-dev", "dpkg-dev"],
            prepare: bash,
            script: BASH.into(),
            results: paragraphs,
        },
        Suite {
            name: "busybox",
            packages: &["busybox-static", "dpkg-dev"],
            prepare: busybox,
            script: BUSYBOX.into(),
            results: |_, output| marked(output, &["PASS: ", "FAIL: ", "SKIPPED: ", "UNTESTED: "]),
        },
        Suite {
            name: "redis",
            packages: &["redis-server", "tcl", "dpkg-dev"],
            prepare: redis,
            script: format!(
                "cd source && exec timeout -k 10 1800 ./runtest --clients 1 --single {}",
                REDIS_UNITS.join(" --single ")
            ),
            results: |_, output| {
                marked(
                    &without_colours(output),
                    &["[ok]: ", "[err]: ", "[exception]: "],
                )
            },
        },
    ];
    suites.extend(PYTHON_TESTS.map(|name| Suite {
        name,
        packages: python_packages,
        prepare: |_| Ok(()),
        script: format!(
            "exec timeout -k 10 1800 {} -m test --junit-xml {RESULTS} {name}",
            python.display()
        ),
        results: |folder, _| junit(&fs::read_to_string(folder.join(RESULTS)).unwrap_or_default()),
    }));
    suites
}

/// Each report without what differs from run to run: process ids and addresses.
const SANITIZERS: &str = r#"
for kind in leak address; do for threads in 0 3; do
	echo "== $kind, $threads threads"
	ASAN_OPTIONS=exitcode=7 LSAN_OPTIONS=exitcode=7 ./$kind $threads >report 2>&1
	echo "status $?"
	sed -E 's/^==[0-9]+==/==PID==/; s/0x[0-9a-f]+/ADDRESS/' report
done; done"#;

fn sanitizers(folder: &Path) -> Result<()> {
    for kind in ["leak", "address"] {
        let source = root().join("tests/targets/undisturbed/sanitized.c");
        let flag = format!("-fsanitize={kind}");
        compile_c_with(&["-pthread", &flag], &source, &folder.join(kind))?;
    }
    Ok(())
}

/// As `tests/run-all` does, but each script on its own, so that one that hangs is not the end.
const BASH: &str = r#"
cd source/tests
export PATH=$PWD:$PATH THIS_SH=/bin/bash BUILD_DIR=$PWD BASH_TSTOUT=$PWD/output LC_ALL=C
unset BASH_ENV
for test in run-*; do
	case $test in run-all | run-minimal | run-gprof) continue ;; esac
	echo "== $test"
	timeout -k 10 300 sh ./$test 2>&1 |
		sed -E '/^warning: /d; s/process group \([0-9]+\)/process group (NUMBER)/'
done"#;

fn bash(folder: &Path) -> Result<()> {
    let source = sources::unpacked("bash", folder)?;
    for helper in ["recho", "zecho", "printenv", "xcase"] {
        let file = source.join(format!("support/{helper}.c"));
        let include = format!("-I{}", source.join("include").display());
        let headers = format!("-I{}", source.display());
        compile_c_with(
            &["-w", &headers, &include],
            &file,
            &source.join("tests").join(helper),
        )?;
    }
    Ok(())
}

/// All but those of `bc`, which allocate half a billion blocks: traced they take hours.
const BUSYBOX: &str = r#"
cd source/testsuite
export bindir=$PWD/../bin
exec timeout -k 10 1800 ./runtest busybox $(../bin/busybox --list | grep -vx bc)"#;

/// The installed program, with the configuration that it was built with.
fn busybox(folder: &Path) -> Result<()> {
    let source = sources::unpacked("busybox", folder)?;
    let programs = source.join("bin");
    fs::create_dir_all(&programs)?;
    fs::copy("/bin/busybox", programs.join("busybox"))?;
    fs::copy(
        source.join("debian/config/pkg/static"),
        programs.join(".config"),
    )?;
    Ok(())
}

/// The installed programs, where the tests look for built ones.
fn redis(folder: &Path) -> Result<()> {
    let source = sources::unpacked("redis", folder)?;
    for program in ["server", "cli", "benchmark", "check-aof", "check-rdb"] {
        let link = source.join(format!("src/redis-{program}"));
        let _ = fs::remove_file(&link);
        symlink(format!("/usr/bin/redis-{program}"), link)?;
    }
    Ok(())
}

/// Output in which each test begins with a line `== NAME`, and its result is the rest.
fn paragraphs(_: &Path, output: &str) -> Results {
    let mut results = Results::new();
    for paragraph in output.split("== ").skip(1) {
        let (name, result) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        results.insert(
            name.into(),
            result
                .lines()
                .filter(|line| !is_ours(line))
                .collect::<Vec<_>>()
                .join(" | "),
        );
    }
    results
}

/// Whether memtrace has printed a line.
fn is_ours(line: &str) -> bool {
    line.starts_with("memtrace: ")
}

/// Output with a line for each test: one of these words, and its name. A name may come several times.
fn marked(output: &str, words: &[&str]) -> Results {
    let mut results = Results::new();
    for line in output.lines() {
        let found = words
            .iter()
            .find_map(|word| Some((word, line.strip_prefix(word)?)));
        let Some((word, name)) = found else { continue };
        // Redis appends the time that it took.
        let name = name
            .strip_suffix(" ms)")
            .and_then(|name| name.rsplit_once(" ("))
            .map_or(name, |(name, _)| name);
        let mut unique = name.to_owned();
        let mut number = 1;
        while results.contains_key(&unique) {
            number += 1;
            unique = format!("{name} #{number}");
        }
        results.insert(unique, word.trim_end_matches(": ").into());
    }
    results
}

/// Text without the escape sequences of colours.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

/// The file that `python -m test --junit-xml` writes.
fn junit(text: &str) -> Results {
    let mut results = Results::new();
    for case in text.split("<testcase ").skip(1) {
        let name = case
            .split_once("name=\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let Some((name, rest)) = name else { continue };
        let has = |word: &str| rest.contains(&format!("<{word}"));
        let result = ["error", "failure", "skipped"]
            .into_iter()
            .find(|word| has(word));
        results.insert(name.into(), result.unwrap_or("ok").into());
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(results: &Results) -> Vec<(&str, &str)> {
        results
            .iter()
            .map(|(name, result)| (name.as_str(), result.as_str()))
            .collect()
    }

    #[test]
    fn results_are_read() {
        let output = "memtrace: recording\n== first\nstatus 7\nmemtrace: next\nmore\n== second\n";
        let results = paragraphs(Path::new("/"), output);
        assert_eq!(
            pairs(&results),
            [("first", "status 7 | more"), ("second", "")]
        );

        let output =
            "\x1b[32m[ok]\x1b[0m: a (b) (12 ms)\n[ok]: twice (1 ms)\n[err]: twice (2 ms)\n";
        let results = marked(&without_colours(output), &["[ok]: ", "[err]: "]);
        assert_eq!(
            pairs(&results),
            [("a (b)", "[ok]"), ("twice", "[ok]"), ("twice #2", "[err]")]
        );

        let xml = "<testsuite><testcase name=\"a.b\" status=\"run\" /><testcase name=\"c\"><failure>no</failure></testcase>";
        assert_eq!(pairs(&junit(xml)), [("a.b", "ok"), ("c", "failure")]);
    }
}
