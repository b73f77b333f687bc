//! Stacks have the Python frames that the interpreter itself sees, where they belong.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture, python,
    record::{self, Record},
    report::{Report, ReportedSite},
    running::Running,
    targets, until,
};
use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// The modules of `targets/python/` that need no process but their own.
const ALONE: [&str; 4] = ["calls", "natives", "names", "tasks"];
/// A smaller set, for interpreters that differ only in how they were started.
const FEW: [&str; 2] = ["calls", "natives"];

/// The distribution's interpreter, which is one file.
fn distributions() -> &'static Path {
    let python = Path::new("/usr/bin/python3");
    assert!(python.exists(), "run `apt-get install python3`");
    python
}

/// The command that runs the modules' cases.
fn cases(python: &[&OsStr], how: &str, truth: &Path, modules: &[&str]) -> Vec<OsString> {
    let mut command: Vec<OsString> = python.iter().map(OsString::from).collect();
    // The source folder is not for compiled files.
    command.push("-B".into());
    command.push(targets::source("python/cases.py").into());
    command.push(how.into());
    command.push(targets::library("python/probe.c").into());
    command.push(truth.into());
    command.extend(modules.iter().map(OsString::from));
    command
}

/// How often a recording shows its progress.
const OFTEN: [&str; 2] = ["--interval", "50ms"];

/// Waits until Python frames of this many processes are seen; each process then continues.
fn let_go(record: &mut Record, processes: usize, go: impl Fn(u32) -> PathBuf) {
    let mut seen = BTreeSet::new();
    for count in 1..=processes {
        until("Python frames of another process", || {
            record.running.expect_alive();
            let report = record::try_report(&record.file).ok()?;
            for tgid in python::warm(&report).difference(&seen.clone()) {
                fs::write(go(*tgid), []).expect("the target's folder is writable");
                seen.insert(*tgid);
            }
            (seen.len() >= count).then_some(())
        });
    }
}

fn go_beside(truth: &Path) -> impl Fn(u32) -> PathBuf {
    move |tgid| {
        let mut path = OsString::from(truth);
        path.push(format!(".go.{tgid}"));
        path.into()
    }
}

/// Each allocation has a stack.
fn expect_every_stack(report: &Report) {
    report.expect_balance();
    for reason in [
        Reason::RingFullStack,
        Reason::UnknownStack,
        Reason::ScratchBusy,
    ] {
        assert_eq!(report.loss(reason), 0, "{}", reason.name());
    }
}

/// Cases of a launched program and its children report the truth.
fn launched(python: &[&OsStr], modules: &[&str], processes: usize) {
    let (report, truth) = recorded(python, modules, processes);
    python::expect_same(&report, &truth);
}

fn recorded(
    python: &[&OsStr],
    modules: &[&str],
    processes: usize,
) -> (Report, Vec<python::TrueChain>) {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let command = cases(python, "run", &truth, modules);
    // The cases run within imports too.
    let options = [&OFTEN[..], &["--imports"]].concat();
    let mut record = Record::launch(&fixture, &options, command);
    let_go(&mut record, processes, go_beside(&truth));
    let report = record.finish(7);
    expect_every_stack(&report);
    (report, python::read(&truth))
}

fn every_case(python: &Path) {
    launched(&[python.as_os_str()], &ALONE, 1);
    launched(&[python.as_os_str()], &["processes"], 3);
}

fn every_case_of(minor: u32) {
    match targets::installed_python(minor) {
        Some(python) => every_case(&python),
        None => eprintln!("skipped: `pyenv install 3.{minor}` installs it"),
    }
}

/// Debian 12 has 3.11: pyenv's of that version is only attached to, below.
#[test]
fn of_the_distribution() {
    every_case(distributions());
}

#[test]
fn python_3_9() {
    every_case_of(9);
}

#[test]
fn python_3_10() {
    every_case_of(10);
}

#[test]
fn python_3_12() {
    every_case_of(12);
}

#[test]
fn python_3_13() {
    every_case_of(13);
}

#[test]
fn python_3_14() {
    every_case_of(14);
}

#[test]
fn subinterpreters() {
    let others = (9..=14).filter_map(targets::installed_python);
    for python in others.chain([distributions().into()]) {
        eprintln!("{}", python.display());
        let (report, truth) = recorded(&[python.as_os_str()], &["subinterpreters"], 1);
        assert!(report.loss(Reason::PythonAmbiguous) > 0);
        python::expect_none_wrong(&report, &truth, "beside");
    }
}

#[test]
fn of_a_virtual_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let environment = folder.path().join("environment");
    let mut create = Command::new(distributions());
    create
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment);
    Running::start(&mut create).wait().expect_code(0);
    launched(&[environment.join("bin/python").as_os_str()], &FEW, 1);
}

/// The interpreter is a library that a program loads once it runs.
#[test]
fn embedded() {
    let program = targets::program("python/embed.c");
    let libraries = (9..=14).map(|minor| format!("libpython3.{minor}.so.1.0"));
    let mut embedded = libraries.filter(|library| {
        let mut command = Command::new(&program);
        let finished = Running::start(command.args([library, "-c", ""])).wait();
        finished.status.success()
    });
    match embedded.next() {
        Some(library) => launched(&[program.as_os_str(), library.as_ref()], &FEW, 1),
        None => eprintln!("skipped: `apt-get install libpython3.11` installs such a library"),
    }
}

/// Attaches to a program that waits for that, in the process `pid` of it.
fn attached(
    fixture: &Fixture,
    mut target: Running,
    pid: u32,
    go: impl Fn(u32) -> PathBuf,
) -> Report {
    let mut record = Record::attach(fixture, pid, &OFTEN);
    let_go(&mut record, 1, go);
    target.await_stdout("done");
    let report = record.stop();
    target.close_stdin();
    target.wait().expect_code(7);
    report
}

#[test]
fn of_a_running_program() {
    let others = (9..=14).filter_map(targets::installed_python);
    for python in others.chain([distributions().into()]) {
        eprintln!("{}", python.display());
        let fixture = Fixture::new();
        let truth = fixture.path("truth");
        let mut command = Command::new(&python);
        command.args(&cases(&[python.as_os_str()], "hold", &truth, &ALONE)[1..]);
        let target = Running::start(&mut command);
        target.await_stdout("ready");
        let pid = target.pid();
        let report = attached(&fixture, target, pid, go_beside(&truth));
        expect_every_stack(&report);
        python::expect_same(&report, &python::read(&truth));
    }
}

#[test]
fn code_objects_that_take_each_others_place_are_told_apart() {
    /// Of a parent and a child.
    const ROUNDS: u64 = 2 * 500;
    let others = (9..=14).filter_map(targets::installed_python);
    for python in others.chain([distributions().into()]) {
        let fixture = Fixture::new();
        let target = [python.clone(), targets::source("python/replaced.py")];
        let report = Record::launch(&fixture, &["--imports", "--no-fold"], target).finish(0);
        let of_line = |line: u32| -> u64 {
            let sites = report.sites.iter().filter(|site| site.layer == "heap");
            let is_there = |site: &&ReportedSite| {
                let mut frames = site.frames.iter().filter(|frame| frame.kind == "python");
                frames.any(|frame| frame.line == Some(line))
            };
            let bytes: u64 = sites
                .filter(is_there)
                .map(|site| site.counts.live_bytes)
                .sum();
            // Beside objects of the interpreter's own, such as frames.
            bytes / 50_000
        };
        // The functions' second lines.
        let found: Vec<u64> = (1001..=1004).map(of_line).collect();
        assert_eq!(found, [ROUNDS; 4], "{}", python.display());
    }
}

/// A stack is sent once, here by the first worker; later workers have the same one.
#[test]
fn workers_of_a_running_master_have_the_stacks_of_those_before() {
    let fixture = Fixture::new();
    let mut target = Running::start(&mut targets::python("python/prefork.py"));
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &["--no-fold"]);
    let workers = (1..=4).map(|number| {
        target.send("x");
        let start = format!("ended {number} ");
        let line = target.await_stdout(&start);
        line[start.len()..].trim().parse().expect("a pid")
    });
    let workers: Vec<u32> = workers.collect();
    let report = record.stop();
    target.close_stdin();
    target.wait().expect_code(0);
    for worker in workers {
        assert!(report.total(worker, "heap").alloc_count >= 100, "{worker}");
    }
    expect_every_stack(&report);
}

/// Those that need nothing but the interpreter and its library.
const BARE: [&str; 2] = ["calls", "tasks"];

/// Whose `/usr` another root has.
#[derive(Clone, Copy)]
enum Usr {
    Hosts,
    Own,
}

/// Attaches to `python` where the host's paths and process ids do not apply: in the folder `inside` of another root.
fn in_root(
    fixture: &Fixture,
    root: &Path,
    usr: Usr,
    inside: &Path,
    python: &Path,
    modules: &[&str],
) {
    let outside = root.join(inside.strip_prefix("/").expect("an absolute path"));
    let copy = |from: &Path, name: &str| {
        fs::copy(from, outside.join(name)).expect("a copy");
    };
    match usr {
        Usr::Hosts => copy(&targets::library("python/probe.c"), "probe.so"),
        // For the C library of that root.
        Usr::Own => {
            copy(&targets::source("python/probe.c"), "probe.c");
            let mut compile = Command::new("chroot");
            compile.arg(root).args(["gcc", "-shared", "-fPIC", "-g"]);
            compile.args(["-pthread".into(), "-o".into(), inside.join("probe.so")]);
            compile.arg(inside.join("probe.c"));
            Running::start(&mut compile).wait().expect_code(0);
        }
    }
    for script in modules.iter().chain(&["cases", "truth"]) {
        let script = format!("{script}.py");
        copy(&targets::source("python").join(&script), &script);
    }

    // The mounts end with the namespace.
    let mount_usr = match usr {
        Usr::Hosts => "mount --bind /usr \"$0/usr\"; ",
        Usr::Own => "",
    };
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-ec"])
        .arg(format!(
            "{mount_usr}mount -t proc proc \"$0/proc\"; exec chroot \"$0\" \"$@\""
        ))
        .arg(root)
        .args([python, Path::new("-B"), &inside.join("cases.py")])
        .args(["hold".into(), inside.join("probe.so"), inside.join("truth")])
        .args(modules);
    let target = Running::start(&mut command);
    target.await_stdout("ready");
    let unshare = target.pid();
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
    let children = children.expect("a list of children");
    let pid = children.trim().parse().expect("one child");

    let truth = outside.join("truth");
    // Of its namespace, it is the first process.
    let go = go_beside(&truth);
    let report = attached(fixture, target, pid, |_| go(1));
    expect_every_stack(&report);
    let mut chains = python::read(&truth);
    for chain in &mut chains {
        assert_eq!(chain.tgid, 1);
        chain.tgid = pid;
    }
    python::expect_same(&report, &chains);
}

/// The interpreter is at a path that only it knows.
#[test]
fn in_other_namespaces() {
    let fixture = Fixture::new();
    let root = fixture.path("root");
    for folder in ["usr", "proc", "tmp", "only-here"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for folder in ["lib", "lib64"] {
        symlink(Path::new("usr").join(folder), root.join(folder)).expect("a link");
    }
    let inside = Path::new("/only-here");
    let python = inside.join("python");
    fs::copy(distributions(), root.join("only-here/python")).expect("a copy");
    in_root(&fixture, &root, Usr::Hosts, inside, &python, &BARE);
}

/// Each interpreter of the Debian roots in `MEMTRACE_ROOTS` (`cargo xtask test-pythons` makes
/// them), whose libraries are other versions than the host's, too.
#[test]
fn in_other_roots() {
    let Some(roots) = env::var_os("MEMTRACE_ROOTS") else {
        eprintln!("skipped: `cargo xtask test-pythons` makes such roots");
        return;
    };
    for root in env::split_paths(&roots) {
        let mut seen = 0;
        for minor in 9..=14 {
            let python = PathBuf::from(format!("/usr/bin/python3.{minor}"));
            if !root
                .join(python.strip_prefix("/").expect("absolute"))
                .exists()
            {
                continue;
            }
            eprintln!("{} {}", root.display(), python.display());
            let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
            let name = folder.path().file_name().expect("a name");
            let inside = Path::new("/tmp").join(name);
            in_root(&Fixture::new(), &root, Usr::Own, &inside, &python, &ALONE);
            seen += 1;
        }
        assert!(seen > 0, "no interpreter in {}", root.display());
    }
}
