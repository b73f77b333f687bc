//! Processes chosen by control group, unit, container and name instead of by process ID, and those that are waited for.

use memtrace_tests::{
    Fixture,
    control_group::ControlGroup,
    progress::Progress,
    record::{self, BEGUN, Record},
    report::Report,
    running::Running,
    targets,
};
use std::{collections::BTreeSet, ffi::OsStr, fs, path::PathBuf, process::Command};

/// A program under a name that no other process has.
const NAME: &str = "chosen-by-tests";

/// A recording of the processes that these options choose.
fn begin(fixture: &Fixture, options: &[&str]) -> Record {
    let file = fixture.path("chosen.mtr");
    let mut command = record::command(["record", "-f", "-o"]);
    let running = Running::start(command.arg(&file).args(options));
    Record { running, file }
}

/// A program that allocates all the time, at `/only-here/NAME` of a root of its own.
fn root(fixture: &Fixture) -> PathBuf {
    let root = fixture.path("root");
    for folder in ["only-here", "old"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    let program = targets::static_program("busy.cc");
    fs::copy(program, root.join("only-here").join(NAME)).expect("a copy");
    root
}

/// Files have the names that they have in the root of the process.
#[track_caller]
fn expect_own_root(report: &Report) {
    let frames = report.sites.iter().flat_map(|site| &site.frames);
    let modules: BTreeSet<_> = frames.filter_map(|frame| frame.module.as_ref()).collect();
    assert!(
        modules.contains(&format!("/only-here/{NAME}")),
        "{modules:?}"
    );
}

/// The only child of a process.
fn child(pid: u32) -> u32 {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(file).expect("a list of children");
    children.trim().parse().expect("one child")
}

#[test]
fn by_control_group_unit_and_name_in_other_namespaces() {
    let fixture = Fixture::new();
    let root = root(&fixture);
    let progress = Progress::new(&fixture);
    fs::hard_link(progress.path(), root.join("progress")).expect("a link");
    let unit = format!("memtrace-tests-{}", std::process::id());
    let group = ControlGroup::new(&format!("{unit}.service"));
    let script = "echo $$ > \"$0/cgroup.procs\"; exec unshare --mount --pid --fork --kill-child sh -ec \"$@\"";
    // As container runtimes do.
    let enter = "mount --bind \"$0\" \"$0\"; cd \"$0\"; pivot_root . old; exec \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-ec", script])
        .arg(group.path())
        .arg(enter)
        .arg(&root);
    command.args([&format!("/only-here/{NAME}"), "/progress"]);
    let target = Running::start(&mut command);
    progress.await_rounds(1);
    let busy = child(target.pid());

    let folder = group.path().to_str().expect("UTF-8");
    let unshare = format!("memtrace: chosen: 1 process: {} (`unshare`)", target.pid());
    let program = format!("memtrace: chosen: 1 process: {busy} (`{NAME}`)");
    for (options, chosen) in [
        (&["--unit", &unit][..], &unshare),
        (&["--cgroup", folder], &unshare),
        (
            &["--cgroup", folder, "--name", NAME, "--user", "root"],
            &program,
        ),
    ] {
        let record = begin(&fixture, options);
        record.running.await_stderr(chosen);
        record.running.await_stderr(BEGUN);
        progress.await_rounds(20);
        let report = record.stop();
        assert!(report.total(busy, "heap").alloc_count > 0, "{options:?}");
        expect_own_root(&report);
    }
    let nobody = ["record", "--cgroup", folder, "--user", "65533"];
    let error = record::memtrace(nobody).expect_code(2).stderr;
    assert!(
        error.contains("no process matches `--user 65533`"),
        "{error}"
    );
}

#[test]
fn nothing_matches_and_the_nearest_names_are_listed() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let program = fixture.path(NAME);
    fs::copy(targets::program("busy.cc"), &program).expect("a copy");
    let _target = Running::start(Command::new(&program).arg(progress.path()));
    progress.await_rounds(1);
    let file = fixture.path("none.mtr");
    let arguments = ["record", "--name", "chosen-by-test", "-o"].map(OsStr::new);
    let arguments = arguments.into_iter().chain([file.as_os_str()]);
    let error = record::memtrace(arguments).expect_code(2).stderr;
    let expected = format!("no process matches `--name chosen-by-test`; nearest: `{NAME}`");
    assert!(error.contains(&expected), "{error}");
    assert!(!file.exists());
    for command in ["holders", "probes"] {
        let error = record::memtrace([command, "--name", "chosen-by-test"]).expect_code(2);
        assert!(error.stderr.contains(&expected), "{error:?}");
    }
    record::memtrace(["probes", "--name", NAME]).expect_code(0);
}

#[test]
fn a_process_that_does_not_run_yet_is_waited_for() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let program = fixture.path(NAME);
    fs::copy(targets::program("busy.cc"), &program).expect("a copy");
    for when in ["rss>1k", "100ms"] {
        let record = begin(&fixture, &["--name", NAME, "--when", when]);
        record.running.await_stderr("memtrace: no process matches");
        record.running.await_stderr("memtrace: recording begins");
        let target = Running::start(Command::new(&program).arg(progress.path()));
        let chosen = format!("memtrace: chosen: 1 process: {}", target.pid());
        record.running.await_stderr(&chosen);
        record.running.await_stderr("memtrace: recording to");
        progress.await_rounds(20);
        let report = record.stop();
        assert!(report.total(target.pid(), "heap").alloc_count > 0, "{when}");
    }
}

/// Podman as the test uses it: without a network, and without systemd.
struct Podman {
    options: Vec<&'static str>,
    name: String,
}

impl Podman {
    /// `None`: it is not installed.
    fn find() -> Option<Self> {
        let runs = |program: &str| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        };
        if !runs("podman") || !runs("runc") {
            return None;
        }
        Some(Self {
            // crun refuses control groups of both versions at once.
            options: vec![
                "--cgroup-manager=cgroupfs",
                "--storage-driver=vfs",
                "--runtime=runc",
            ],
            name: format!("memtrace-tests-{}", std::process::id()),
        })
    }

    #[track_caller]
    fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        let mut command = Command::new("podman");
        command.args(&self.options).args(arguments);
        let finished = Running::start(&mut command).wait().expect_code(0);
        finished.stdout.trim().to_owned()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        for arguments in [
            ["rm", "--force", "--time=0"],
            ["rmi", "--force", "--ignore"],
        ] {
            let mut command = Command::new("podman");
            let _ = command
                .args(&self.options)
                .args(arguments)
                .arg(&self.name)
                .output();
        }
    }
}

#[test]
fn by_container_of_podman() {
    let fixture = Fixture::new();
    let Some(podman) = Podman::find() else {
        eprintln!("skipped: `apt-get install podman runc` installs what this test needs");
        return;
    };
    let root = root(&fixture);
    let archive = fixture.path("root.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
    Running::start(&mut tar).wait().expect_code(0);
    let progress = Progress::new(&fixture);
    podman.run([
        OsStr::new("import"),
        archive.as_os_str(),
        podman.name.as_ref(),
    ]);
    let volume = format!("{}:/outside", fixture.folder().display());
    let program = format!("/only-here/{NAME}");
    let id = podman.run([
        "run",
        "--detach",
        "--network=none",
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1000:1000",
        "--name",
        &podman.name,
        "--volume",
        &volume,
        &podman.name,
        &program,
        "/outside/progress",
    ]);
    progress.await_rounds(1);
    let pid = podman.run(["inspect", "--format", "{{.State.Pid}}", &podman.name]);
    let pid: u32 = pid.parse().expect("a process ID");
    for container in [&podman.name, &id, &id[..12]] {
        let record = begin(&fixture, &["--container", container]);
        let chosen = format!("memtrace: chosen: 1 process: {pid} (`{NAME}`)");
        record.running.await_stderr(&chosen);
        record.running.await_stderr(BEGUN);
        progress.await_rounds(20);
        let report = record.stop();
        assert!(report.total(pid, "heap").alloc_count > 0, "{container}");
        expect_own_root(&report);
    }
    let error = record::memtrace(["record", "--container", "memtrace-test"]).expect_code(2);
    let nearest = format!("nearest: `{}`", podman.name);
    assert!(error.stderr.contains(&nearest), "{error:?}");
}
