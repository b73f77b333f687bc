//! Tests that run again and again under the plugin for pytest: what they keep of each round.

use std::{fs, path::Path, process::Command};

use memtrace_tests::{Fixture, record, running::Running};

/// Bytes of a `bytes` object of 8 KiB, with its header and the zero at its end.
const PAGE: u64 = 8192 + 33;

const CONFTEST: &str = r#"
def pytest_addoption(parser):
    parser.addoption("--pages", type=int, default=0)
"#;

const TESTS: &str = r#"
import functools, json, logging, os
import pytest

KEPT = []
rounds = pytest.mark.memtrace("leak", rounds=8)

@rounds
def test_that_keeps(pytestconfig):
    for _ in range(pytestconfig.getoption("pages")):
        KEPT.append(bytes(8192))

@functools.lru_cache(maxsize=32)
def cached(number):
    return bytes(8192 + number)

class Node:
    pass

@rounds
def test_that_keeps_nothing(tmp_path, capsys):
    for number in range(50):
        cached(number)
        node = Node()
        node.itself = node
        json.loads(json.dumps([number] * 10))
    (tmp_path / "file").write_text("x")
    logging.getLogger().warning("%s", "done")
    print("done")
    os.write(1, b"done")
"#;

/// Runs Debian's pytest with the plugin of the wheel.
fn pytest(fixture: &Fixture, arguments: &[&str]) -> Command {
    let memtrace = record::command(["--version"]).get_program().to_owned();
    let folder = Path::new(&memtrace).parent().expect("a folder");
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrace/python");
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-m", "pytest", "-p", "no:cacheprovider"])
        .args(arguments)
        .current_dir(fixture.folder())
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .env("PYTHONPATH", plugin)
        .env("PYTEST_PLUGINS", "memtrace.pytest_plugin");
    command
}

#[test]
fn a_test_fails_if_a_line_keeps_memory_of_each_round() {
    let fixture = Fixture::new();
    fs::write(fixture.path("conftest.py"), CONFTEST).unwrap();
    fs::write(fixture.path("test_rounds.py"), TESTS).unwrap();
    let arguments = ["--pages=600", "test_rounds.py"];
    let finished = Running::start(&mut pytest(&fixture, &arguments)).wait();
    let finished = finished.expect_code(1);
    let text = &finished.stdout;
    assert!(text.contains("1 failed, 1 passed"), "{text}");
    assert!(
        text.contains("FAILED test_rounds.py::test_that_keeps"),
        "{text}"
    );
    let kept = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("memtrace: leak: ")?
                .strip_suffix(" bytes/round")
        })
        .unwrap_or_else(|| panic!("{text}"));
    let kept: u64 = kept.replace(',', "").parse().unwrap();
    // The list has room for more than it holds.
    let pages = 600 * PAGE;
    assert!((pages..pages + 20_000).contains(&kept), "{text}");
    assert!(text.contains("  allocated by  test_that_keeps  "), "{text}");
    assert!(text.contains("test_rounds.py:11 "), "{text}");
    assert!(
        text.contains("  kept by test_rounds.KEPT (list, 6,600 items)"),
        "{text}"
    );
    let recording = text
        .lines()
        .find_map(|line| line.strip_prefix("  recording     "));
    let recording = Path::new(recording.expect("it is kept"));
    fs::remove_dir_all(recording.parent().unwrap()).unwrap();
}
