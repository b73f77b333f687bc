//! A user of the machine whose process root records: nothing of root's is read for them, and nothing of theirs is waited
//! for.

use memtrace_tests::{
    Fixture,
    export::{self, Export},
    record::{self, BEGUN, Record},
    running::{Finished, Running},
    targets,
};
use std::{
    ffi::CString,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

/// The tenant, and another user.
const TENANT: u32 = 2001;
const OTHER: u32 = 2002;

/// The content of root's files: one word, as an installer's name is.
const SECRET: &str = "TOPSECRETWORD";

/// Root's files with the secret, and a folder of packages of a tenant.
struct Packages {
    folder: PathBuf,
    secret: PathBuf,
}

impl Packages {
    fn new(fixture: &Fixture) -> Self {
        let of = Self {
            folder: fixture.path("packages"),
            secret: fixture.path("secret"),
        };
        fs::create_dir(&of.folder).expect("a folder");
        fs::write(&of.secret, SECRET).expect("a file");
        fs::set_permissions(&of.secret, fs::Permissions::from_mode(0o600)).expect("own file");
        of
    }

    /// The file that names the installer of a new package.
    fn installer(&self, package: &str) -> PathBuf {
        let folder = self.folder.join(format!("{package}-1.0.dist-info"));
        fs::create_dir(&folder).expect("a new package");
        folder.join("INSTALLER")
    }

    /// A Python of the tenant's that has these packages and runs `code`.
    fn python(&self, code: &str) -> Running {
        let mut command = Command::new("/usr/bin/python3");
        command
            .args([
                "-c",
                &format!("{code}\nprint('ready', flush=True)\ninput()"),
            ])
            .env("PYTHONPATH", &self.folder)
            .uid(TENANT)
            .gid(TENANT);
        let running = Running::start(&mut command);
        running.await_stdout("ready");
        running
    }
}

fn fact<'a>(facts: &'a Export, process: &Running, package: &str) -> &'a str {
    facts.fact(process.pid().into(), &format!("python.package.{package}"))
}

/// A recording of a process for a second.
fn recorded(fixture: &Fixture, process: &Running) -> PathBuf {
    let record = Record::attach(fixture, process.pid(), &["-d", "1s"]);
    record.running.wait().expect_code(0);
    record.file
}

fn contains(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).expect("a recording");
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[test]
fn files_of_others_are_not_read_for_a_tenant() {
    let fixture = Fixture::new();
    let packages = Packages::new(&fixture);
    let secret = &packages.secret;
    let private = fixture.path("private");
    fs::create_dir(&private).expect("a folder");
    fs::write(private.join("INSTALLER"), SECRET).expect("a file");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("own folder");
    fs::write(packages.installer("good"), "pip\n").expect("a file");
    symlink(secret, packages.installer("link")).expect("a link");
    fs::hard_link(secret, packages.installer("hard")).expect("a link");
    let magic = Path::new("/proc/self/root").join(secret.strip_prefix("/").expect("absolute"));
    symlink(magic, packages.installer("magic")).expect("a link");
    symlink("/proc/self/comm", packages.installer("kernel")).expect("a link");
    symlink(&private, packages.folder.join("folder-1.0.dist-info")).expect("a link");
    let fifo = packages.installer("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).expect("no zero");
    // SAFETY: the name lives.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);

    let mut python = packages.python("");
    let file = recorded(&fixture, &python);
    let facts = export::read(&file);
    assert_eq!(fact(&facts, &python, "good"), "1.0; installer pip");
    for package in ["link", "hard", "magic", "kernel", "folder", "fifo"] {
        assert_eq!(fact(&facts, &python, package), "1.0", "{package}");
    }
    assert!(!contains(&file, SECRET));
    let host = record::memtrace(["host", "-p", &python.pid().to_string()]).expect_code(0);
    assert!(host.stdout.contains("python.package.link"), "{host:#?}");
    assert!(!host.stdout.contains(SECRET), "{host:#?}");
    python.expect_alive();
}

#[test]
fn a_lease_is_not_waited_for() {
    let fixture = Fixture::new();
    let packages = Packages::new(&fixture);
    let leased = packages.installer("leased");
    fs::write(&leased, "pip").expect("a file");
    chown(&leased, Some(TENANT), Some(TENANT)).expect("root may");
    let code = format!(
        "import fcntl, signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n\
         file = open({:?}, 'r+')\nfcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)",
        leased.display()
    );
    let python = packages.python(&code);
    let facts = export::read(&recorded(&fixture, &python));
    // Whoever waits until the kernel breaks the lease reads the file.
    assert_eq!(fact(&facts, &python, "leased"), "1.0");
}

/// A file system of the tenant's that does not answer.
struct Unanswering {
    folder: PathBuf,
    server: Running,
}

impl Unanswering {
    fn new(fixture: &Fixture, options: &[&str]) -> Self {
        let folder = fixture.path("mounted");
        fs::create_dir(&folder).expect("a folder");
        let mut server = Command::new(targets::program("unanswering.c"));
        server.arg(&folder).arg(TENANT.to_string()).args(options);
        let server = Running::start(&mut server);
        server.await_stdout("ready");
        Self { folder, server }
    }
}

impl Drop for Unanswering {
    /// The end of the server answers whoever still waits.
    fn drop(&mut self) {
        self.server.signal(libc::SIGKILL);
        self.server.end();
        let path = CString::new(self.folder.as_os_str().as_bytes()).expect("no zero");
        // SAFETY: the path lives.
        assert_eq!(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }, 0);
    }
}

/// Reading memory may mean reading a file. Attaches to a program that maps one that cannot be read.
fn mapped(fixture: &Fixture, file: &Path, options: &[&str]) -> (Running, Record) {
    let mut command = Command::new(targets::program("mapped.c"));
    command.arg(file).args(options).uid(TENANT).gid(TENANT);
    let target = Running::start(&mut command);
    target.await_stdout("ready");
    let record = Record::attach(fixture, target.pid(), &["-d", "4s"]);
    (target, record)
}

/// The target's allocations are counted, and it still runs.
fn is_recorded(mut target: Running, record: Record) -> PathBuf {
    record.running.wait().expect_code(0);
    let report = record::report(&record.file);
    assert!(report.total(target.pid(), "heap").alloc_count > 0);
    target.expect_alive();
    target.signal(libc::SIGKILL);
    target.end();
    record.file
}

#[test]
fn a_mapped_file_that_cannot_be_read_is_not_waited_for() {
    let fixture = Fixture::new();
    let mounted = Unanswering::new(&fixture, &["reads"]);
    let (target, record) = mapped(&fixture, &mounted.folder.join("x"), &[]);
    let file = is_recorded(target, record);
    // Whoever kept the blocks was found all the same.
    let found = record::memtrace(["report".as_ref(), file.as_os_str()]).expect_code(0);
    assert!(found.stdout.contains("kept"), "{found:#?}");
}

#[test]
fn a_list_of_libraries_in_a_file_that_cannot_be_read_is_not_waited_for() {
    let fixture = Fixture::new();
    let mounted = Unanswering::new(&fixture, &["reads"]);
    let (target, record) = mapped(&fixture, &mounted.folder.join("x"), &["list"]);
    mounted.server.await_stdout("asked");
    is_recorded(target, record);
}

/// The kernel reads the layers of an overlay with the rights of the user who mounted it.
#[test]
fn a_users_overlay_of_a_file_system_that_cannot_be_read_is_not_waited_for() {
    let fixture = Fixture::new();
    let [layer, overlay] = ["layer", "overlay"].map(|name| fixture.path(name));
    for folder in [&layer, &overlay] {
        fs::create_dir(folder).expect("a folder");
    }
    let mut server = Command::new(targets::program("unanswering.c"));
    server.arg(&layer).args(["0", "reads"]).arg(&overlay);
    let server = Running::start(&mut server);
    server.await_stdout("overlaid");
    let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
    let file = root.join(overlay.strip_prefix("/").expect("absolute"));
    let mut command = Command::new(targets::program("mapped.c"));
    command.arg(file.join("x")).arg("list");
    let target = Running::start(&mut command);
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &["-d", "4s"]);
    is_recorded(target, record);
    server.signal(libc::SIGKILL);
    server.wait();
}

#[test]
fn mappings_of_any_size_do_not_take_the_memory_of_memtrace() {
    let fixture = Fixture::new();
    let folder = fixture.path("folder");
    fs::create_dir(&folder).expect("a folder");
    let mut command = Command::new(targets::program("many_paths.c"));
    let target = Running::start(command.arg(&folder));
    target.await_stdout("ready");
    let pid = target.pid().to_string();
    let output = fixture.path("x.mtr");
    let output = output.to_str().expect("ASCII");
    for arguments in [
        &["record", "-d", "1s", "-o", output, "-p", &pid][..],
        &["probes", "-p", &pid],
        &["host", "-p", &pid],
        &["holders", "--lost", "-p", &pid],
    ] {
        let finished = record::memtrace(arguments).expect_code(2);
        let reason = "it has more than 32.0 MiB";
        assert!(finished.stderr.contains(reason), "{finished:#?}");
    }
}

/// PTRACE_SEIZE waits for the end of an execve.
#[test]
fn a_program_whose_execve_does_not_end_is_not_waited_for() {
    let fixture = Fixture::new();
    let mut tracer = Command::new(targets::program("executing.c"));
    let tracer = Running::start(tracer.uid(TENANT).gid(TENANT));
    let pid: u32 = tracer.await_stdout("").trim().parse().expect("a pid");
    let record = Record::attach(&fixture, pid, &["-d", "1s"]);
    let finished = record.running.wait().expect_code(0);
    let reason = "its execve does not end";
    assert!(finished.stderr.contains(reason), "{finished:#?}");
    let pid = pid.to_string();
    for options in [&["--lost", "--stop"][..], &["--lost"]] {
        let options = options.iter().copied();
        let searched = record::memtrace(["holders", "-p", &pid].into_iter().chain(options));
        assert!(searched.status.code().is_some(), "{searched:#?}");
    }
}

#[test]
fn a_file_system_that_does_not_answer_is_not_waited_for() {
    let fixture = Fixture::new();
    let packages = Packages::new(&fixture);
    let mounted = Unanswering::new(&fixture, &[]);
    symlink(mounted.folder.join("x"), packages.installer("slow")).expect("a link");
    let mut python = packages.python("");
    let file = recorded(&fixture, &python);
    mounted.server.await_stdout("asked");
    let facts = export::read(&file);
    assert_eq!(fact(&facts, &python, "slow"), "1.0");
    python.expect_alive();
}

#[test]
fn root_caches_nothing_in_a_tenants_home() {
    let fixture = Fixture::new();
    let (home, of_root) = (fixture.path("home"), fixture.path("root"));
    for folder in [&home, &of_root, &home.join(".cache")] {
        fs::create_dir(folder).expect("a folder");
    }
    symlink(&of_root, home.join(".cache/memtrace")).expect("a link");
    for folder in [home.join(".cache"), home.clone()] {
        chown(folder, Some(TENANT), Some(TENANT)).expect("root may");
    }
    let mut command = record::command(["record", "-f", "-o"]);
    command
        .arg(fixture.path("x.mtr"))
        .args(["--", "/bin/true"])
        .env("HOME", &home);
    for name in ["SUDO_UID", "SUDO_GID", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let finished = Running::start(&mut command).wait().expect_code(0);
    assert!(
        finished.stderr.contains("belongs to user 2001"),
        "{finished:#?}"
    );
    assert_eq!(fs::read_dir(&of_root).expect("a folder").count(), 0);
}

/// The capabilities of docs/limits.md with which another user records a tenant's process.
const CAPABILITIES: [&str; 7] = [
    "bpf",
    "perfmon",
    "sys_ptrace",
    "dac_read_search",
    "checkpoint_restore",
    "setuid",
    "setgid",
];

/// memtrace as a user who has only these capabilities.
fn with(program: &Path, capabilities: &[&str], arguments: &[&str]) -> Command {
    let set: String = capabilities
        .iter()
        .map(|name| format!(",+{name}"))
        .collect();
    let mut command = Command::new("setpriv");
    for option in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.arg(format!("{option}=-all{set}"));
    }
    let ids = [format!("--reuid={OTHER}"), format!("--regid={OTHER}")];
    command
        .args(ids)
        .arg("--clear-groups")
        .arg(program)
        .args(arguments);
    command
}

#[test]
fn the_named_capabilities_are_enough_and_a_missing_one_is_named() {
    let fixture = Fixture::new();
    let program = fixture.path("memtrace");
    fs::copy(targets::memtrace(), &program).expect("room for a copy");
    let own = fixture.path("own");
    fs::create_dir(&own).expect("a folder");
    chown(&own, Some(OTHER), Some(OTHER)).expect("root may");
    let packages = Packages::new(&fixture);
    fs::write(packages.installer("good"), "pip").expect("a file");
    let python = packages.python("");
    let pid = python.pid().to_string();
    let file = own.join("x.mtr");
    let file = file.to_str().expect("text");
    let arguments = ["record", "-p", &pid, "-d", "1s", "-o", file];
    let begun = Running::start(&mut with(&program, &CAPABILITIES, &arguments));
    begun.await_stderr(BEGUN);
    begun.wait().expect_code(0);
    let facts = export::read(Path::new(file));
    assert_eq!(fact(&facts, &python, "good"), "1.0; installer pip");
    assert_eq!(record::report(Path::new(file)).dropped(), 0);

    for missing in &CAPABILITIES[..4] {
        let others: Vec<_> = CAPABILITIES
            .into_iter()
            .filter(|name| name != missing)
            .collect();
        let name = format!("CAP_{}", missing.to_uppercase());
        let refused: Finished = Running::start(&mut with(&program, &others, &arguments)).wait();
        let refused = refused.expect_code(2);
        assert!(refused.stderr.contains(&name), "{refused:#?}");
        let check = Running::start(&mut with(&program, &others, &["check"])).wait();
        assert!(check.stdout.contains(&name), "{check:#?}");
    }
    for missing in &CAPABILITIES[4..] {
        let others: Vec<_> = CAPABILITIES
            .into_iter()
            .filter(|name| name != missing)
            .collect();
        let check = Running::start(&mut with(&program, &others, &["check"])).wait();
        let name = format!("CAP_{}", missing.to_uppercase());
        assert!(check.stdout.contains(&name), "{check:#?}");
    }
}

/// A name of a program that a spreadsheet, a terminal and a reader take for something else.
const MISLEADING: &str = "=cmd\u{9b}31m\u{202e}x";

#[test]
fn no_name_of_a_tenants_is_a_formula_or_steers_a_terminal() {
    let fixture = Fixture::new();
    let program = fixture.path(MISLEADING);
    fs::copy(targets::program("named.c"), &program).expect("room for a copy");
    let mut command = Command::new(&program);
    let mut target = Running::start(command.uid(TENANT).gid(TENANT));
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &[]);
    target.send("1\n");
    target.await_stdout("allocated");
    let file = record.file.clone();
    record.stop();
    let file = file.to_str().expect("text");
    let mut seen = 0;
    for arguments in [
        &["report", file][..],
        &["report", "--format", "json", file],
        &["export", "--format", "csv", file],
        &["diagnose", file],
        &["diagnose", "--format", "json", file],
        &["export", "--format", "collapsed", file],
    ] {
        let finished = record::memtrace(arguments);
        assert_eq!(finished.stderr, "", "{arguments:?}");
        let output = &finished.stdout;
        seen += usize::from(output.contains("cmd"));
        assert!(
            !output.contains(['\u{9b}', '\u{202e}']),
            "{arguments:?}: {output:?}"
        );
        if arguments.contains(&"csv") {
            let mut cells = output
                .split([',', '\n'])
                .map(|cell| cell.trim_start_matches('"'));
            assert!(!cells.any(|cell| cell.starts_with('=')), "{output}");
        }
    }
    assert!(seen >= 3, "the name is in {seen} outputs");
}
