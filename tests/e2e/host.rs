//! The facts in a recording about the machine and the traced processes: libraries by build, variables (values by
//! allow-list), Python packages, and memory use over time.

use memtrace_tests::{
    Fixture,
    export::{self, Export},
    record::{self, Record},
    running::Running,
};
use std::{fs, path::Path, process::Command};

/// The build id of a file as another program reads it.
fn build_id(file: &Path) -> String {
    let output = Command::new("readelf")
        .args(["-n", "--wide"])
        .arg(file)
        .output()
        .expect("run `apt-get install binutils`");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let id = text.split_once("Build ID: ").expect("a build id").1;
    id.split_whitespace().next().expect("a word").to_owned()
}

/// Whether a library of a process is the build that its file is.
#[track_caller]
fn expect_build(facts: &Export, process: u64, library: &str) {
    let path = facts.fact(process, &format!("lib.{library}.path"));
    assert_eq!(
        facts.fact(process, &format!("lib.{library}.build_id")),
        build_id(Path::new(path)),
        "{path}"
    );
}

#[test]
fn a_launched_process_has_its_libraries_variables_and_packages() {
    let fixture = Fixture::new();
    let venv = fixture.path("venv");
    let site = venv.join(format!("lib/python{}/site-packages", version()));
    for (file, text) in [
        ("bin/.keep", ""),
        (
            "pyvenv.cfg",
            "home = /usr/bin\ninclude-system-site-packages = false\n",
        ),
    ] {
        let path = venv.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        fs::write(path, text).expect("writable");
    }
    let package = site.join("Tracer_Test-1.2.3.dist-info");
    fs::create_dir_all(&package).expect("writable");
    fs::write(package.join("INSTALLER"), "uv\n").expect("writable");
    let python = venv.join("bin/python");
    std::os::unix::fs::symlink("/usr/bin/python3", &python).expect("a link");
    // Loaded after the start: not among the linked libraries.
    let code = "import ctypes, subprocess; ctypes.CDLL('libz.so.1'); subprocess.run(['/bin/cat', '/dev/null'])";
    let file = fixture.path("python.mtr");
    let mut command = record::command(["record", "-o"]);
    command
        .arg(&file)
        .args([
            "--",
            python.to_str().expect("text"),
            "-c",
            code,
            "--token",
            "swordfish-1",
        ])
        .env("OMP_NUM_THREADS", "3")
        .env("MY_PRIVATE_VARIABLE", "forbidden-1")
        .env("TORCH_TOKEN", "forbidden-2")
        .env("MALLOC_CONF", "https://me:forbidden-3@example.org");
    Running::start(&mut command).wait().expect_code(0);

    let facts = export::read(&file);
    let python = facts.process("python");
    expect_build(&facts, python, "libc.so.6");
    expect_build(&facts, python, "libz.so.1");
    assert_eq!(
        facts.fact(python, "exe.build_id"),
        build_id(Path::new("/usr/bin/python3"))
    );
    assert_eq!(facts.fact(python, "env.OMP_NUM_THREADS"), "3");
    // Of any other variable, the name and enough of a hash to see that it differs.
    let hashed = facts.fact(python, "env.MY_PRIVATE_VARIABLE");
    assert!(hashed.starts_with('#') && hashed.len() == 5, "{hashed}");
    assert_eq!(facts.fact(python, "env.TORCH_TOKEN"), "(set)");
    assert_eq!(facts.fact(python, "environment.names"), "all");
    assert_eq!(
        facts.fact(python, "python.package.tracer-test"),
        "1.2.3; installer uv"
    );
    assert_eq!(
        facts.fact(python, "python.prefix"),
        venv.to_str().expect("text")
    );
    assert!(!facts.fact(python, "affinity.count").is_empty());
    assert!(!facts.fact(python, "glibc.version").is_empty());
    // A short-lived child, with the libraries of its own program.
    let cat = facts.process("cat");
    expect_build(&facts, cat, "libc.so.6");
    assert!(facts.find(cat, "lib.libz.so.1.path").is_none());
    assert!(facts.find(cat, "python.package.tracer-test").is_none());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("readable");
    assert_eq!(facts.machine("kernel.release"), release.trim());

    // Nowhere in the file, in whatever table.
    let bytes = fs::read(&file).expect("readable");
    for forbidden in ["forbidden-1", "forbidden-2", "forbidden-3", "swordfish"] {
        let found = bytes
            .windows(forbidden.len())
            .any(|part| part == forbidden.as_bytes());
        assert!(!found, "{forbidden} is in the recording");
    }
}

/// Of the distribution's Python, such as `3.11`.
fn version() -> String {
    let target = fs::canonicalize("/usr/bin/python3").expect("run `apt-get install python3`");
    let name = target.file_name().and_then(|name| name.to_str());
    let name = name.expect("text").to_owned();
    name.strip_prefix("python").expect("python3.N").to_owned()
}

#[test]
fn a_redacted_recording_names_no_folder() {
    let fixture = Fixture::new();
    let folder = fixture.path("secret-project");
    fs::create_dir(&folder).expect("writable");
    let program = folder.join("app");
    fs::copy("/bin/true", &program).expect("a copy");
    let file = fixture.path("redacted.mtr");
    let mut command = record::command(["record", "--redact", "-o"]);
    command.arg(&file).arg("--").arg(&program);
    Running::start(&mut command).wait().expect_code(0);
    let bytes = fs::read(&file).expect("readable");
    let name = b"secret-project";
    assert!(!bytes.windows(name.len()).any(|part| part == name));
    let facts = export::read(&file);
    let app = facts.process("app");
    assert!(facts.fact(app, "exe.path").ends_with("/app"));
}

#[test]
fn figures_of_process_machine_and_control_group_are_recorded() {
    let fixture = Fixture::new();
    // Threads that end before they are counted, and descriptors that stay.
    let code = "import os, sys, threading\n\
        fds = [os.open('/dev/null', os.O_RDONLY) for _ in range(50)]\n\
        sys.stdin.readline()\n\
        for _ in range(200):\n    t = threading.Thread(target=int); t.start(); t.join()\n\
        print('done', flush=True)\n\
        sys.stdin.readline()\n";
    let mut target = Running::start(Command::new("/usr/bin/python3").args(["-c", code]));
    let record = Record::attach(&fixture, target.pid(), &["--interval", "50ms"]);
    target.send("\n");
    target.await_stdout("done");
    let file = record.file.clone();
    record.stop();
    target.send("\n");
    let status = target.end();
    assert!(status.success());

    let export = export::read(&file);
    let tgid = export.process("python");
    let last = export.last_memory(tgid, "threads_created");
    assert_eq!(last["threads_created"], 200);
    assert_eq!(last["threads"], 1);
    assert!(last["fds"].as_u64() >= Some(53), "{last}");
    assert!(last["swap"].is_u64(), "{last}");
    assert!(last["vm_hwm"].as_u64() > Some(1 << 20), "{last}");
    let detailed = export.last_memory(tgid, "anon_other");
    assert!(detailed["maps"].as_u64() > Some(10), "{detailed}");
    let parts = [
        "anon_heap",
        "anon_arena",
        "anon_stack",
        "anon_file",
        "anon_other",
    ];
    let sizes = parts.iter().map(|part| detailed[part].as_u64());
    let sum: u64 = sizes.map(|size| size.expect("a number")).sum();
    let whole = detailed["rss_anon"].as_u64().expect("a number");
    // The two are read a moment apart.
    assert!(sum.abs_diff(whole) <= whole / 20, "{sum}: {detailed}");
    let system = export.last_system();
    assert!(system["used"].as_u64() < system["mem_total"].as_u64());
    assert!(system["used"].as_u64() > Some(1 << 20), "{system}");
    // Where no memory control group can be seen, there is no file to compare with either.
    if export.find(tgid, "cgroup.path").is_some() {
        let group = export.last_cgroup(tgid, "current");
        assert!(
            group["anon"].as_u64() <= group["current"].as_u64(),
            "{group}"
        );
    }
}
