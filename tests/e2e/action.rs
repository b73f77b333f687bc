//! The action for GitHub: its scripts, with a folder in place of GitHub's releases.

use memtrace_tests::{
    Fixture,
    running::{Finished, Running},
    targets,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const NAME: &str = "memtrace-9.8.7-x86_64-linux";

/// Runs a script of the action; with what it wrote for later steps.
fn script(fixture: &Fixture, line: &str, variables: &[(&str, &str)]) -> (Finished, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/actions/memtrace");
    let output = fixture.path("output");
    fs::write(&output, "").expect("a file");
    let mut bash = Command::new("bash");
    bash.args(line.split(' ')).current_dir(folder);
    bash.env("GITHUB_OUTPUT", &output);
    bash.envs(variables.iter().copied());
    let finished = Running::start(&mut bash).wait();
    (finished, fs::read_to_string(output).expect("the output"))
}

/// Makes a release of a program that is a script.
fn release(fixture: &Fixture) -> PathBuf {
    let release = fixture.path("me/memtrace/releases/download/v9.8.7");
    let program = fixture.path(NAME).join("bin/memtrace");
    fs::create_dir_all(&release).expect("a folder");
    fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
    fs::write(program, "the program").expect("a file");
    let pack = "tar -czf $1/$2.tar.gz $2 && cd $1 && sha256sum $2.tar.gz > SHA256SUMS";
    let mut shell = Command::new("sh");
    shell.args(["-ec", pack, "sh"]).arg(&release).arg(NAME);
    Running::start(shell.current_dir(fixture.folder()))
        .wait()
        .expect_code(0);
    release
}

#[test]
fn the_version_is_the_input_or_the_tag() {
    let fixture = Fixture::shared();
    let choose = |repository, reference, version| {
        let variables = [
            ("GITHUB_SERVER_URL", "file:///nowhere"),
            ("REPOSITORY", repository),
            ("REF", reference),
            ("VERSION", version),
        ];
        script(&fixture, "fetch.sh choose", &variables)
    };
    let (of_tag, output) = choose("me/memtrace", "v9.8.7", "");
    of_tag.expect_code(0);
    assert_eq!(output, "version=9.8.7\n");
    let (of_input, output) = choose("me/memtrace", "main", "1.2.3");
    of_input.expect_code(0);
    assert_eq!(output, "version=1.2.3\n");
    let (local, output) = choose("", "", "1.2.3");
    let local = local.expect_code(1);
    assert!(
        local.stdout.contains("set the input `memtrace`"),
        "{local:#?}"
    );
    assert_eq!(output, "");
}

#[test]
fn a_release_is_taken_if_its_checksum_is_right() {
    let fixture = Fixture::shared();
    let release = release(&fixture);
    let (server, folder) = (fixture.folder().display(), fixture.path("program"));
    let (server, program) = (format!("file://{server}"), folder.join("memtrace"));
    let fetch = || {
        let variables = [
            ("GITHUB_SERVER_URL", &*server),
            ("REPOSITORY", "me/memtrace"),
            ("VERSION", "9.8.7"),
            ("FOLDER", folder.to_str().expect("UTF-8")),
        ];
        script(&fixture, "fetch.sh fetch", &variables).0
    };
    fetch().expect_code(0);
    assert_eq!(fs::read_to_string(&program).expect("it"), "the program");
    fs::remove_file(&program).expect("removed");
    fs::write(release.join(format!("{NAME}.tar.gz")), "other").expect("a file");
    assert!(!fetch().status.success());
    assert!(!program.exists());
}

#[test]
fn the_summary_has_the_result_and_the_line() {
    let fixture = Fixture::new();
    let summary = fixture.path("summary.md");
    fs::write(&summary, "").expect("a file");
    let python = targets::interpreter().display();
    let code = "keep = [bytearray(1 << 20) for _ in range(5)]; import os; os._exit(0)";
    let (run, output) = script(
        &fixture,
        "run.sh",
        &[
            ("COMMAND", &format!("{python} -c '{code}'")),
            ("FAIL_ON", "live=4m leak"),
            ("MEMTRACE", targets::memtrace().to_str().expect("UTF-8")),
            ("RUNNER_TEMP", fixture.folder().to_str().expect("UTF-8")),
            ("GITHUB_STEP_SUMMARY", summary.to_str().expect("UTF-8")),
        ],
    );
    run.expect_code(99);
    let summary = fs::read_to_string(summary).expect("the summary");
    let begin = "## memtrace: failed\n\n```text\nfailed: live at the end: ";
    assert!(summary.starts_with(begin), "{summary}");
    assert!(summary.contains("\nundetermined: leak: "), "{summary}");
    let result = output.strip_prefix("result=").expect("a result").trim();
    assert!(Path::new(result).exists(), "{result}");
}
