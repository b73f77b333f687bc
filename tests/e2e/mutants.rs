//! Programs and libraries with a few wrong bytes are recorded while they run: memtrace goes on, ends in time, stays below
//! its limit of memory, and counts the others exactly.

use memtrace_tests::{
    Fixture, control_group::ControlGroup, random, record, running::Running, targets,
};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    time::Duration,
};

const TENANT: u32 = 2001;

/// Of memtrace and its helpers together, bytes.
const MEMORY: u64 = 512 << 20;

/// Mutants of one recording.
const BATCH: usize = 50;

/// For one recording: each mutant may run for two seconds.
const DEADLINE: Duration = Duration::from_secs(180);

/// A copy with up to 32 wrong bytes: in the headers at its beginning, in those at its end, or anywhere.
fn mutant(original: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = original.to_vec();
    let end = bytes.len();
    let range = [0..1024, end - 2048..end, 0..end][random.usize(..3)].clone();
    for _ in 0..random.usize(1..=32) {
        let at = random.usize(range.clone());
        bytes[at] = [random.u8(..), 0, 0xff][random.usize(..3)];
    }
    bytes
}

fn are_recorded(file: &Path, kind: &str) {
    let original = fs::read(file).expect("a file of the system");
    let (mut left, mut random) = random::times("MEMTRACE_MUTANTS", BATCH);
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let fixture = Fixture::new();
        let folder = fixture.path("mutants");
        fs::create_dir(&folder).expect("a new folder");
        for index in 0..batch {
            let path = folder.join(format!("{kind}{index}"));
            fs::write(&path, mutant(&original, &mut random)).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("own file");
        }
        chown(&folder, Some(TENANT), Some(TENANT)).expect("root may");
        batch_is_recorded(&fixture, &folder, batch);
    }
}

fn batch_is_recorded(fixture: &Fixture, folder: &Path, batch: usize) {
    let program = targets::build("gcc", &["-O1", "-g"], &["mutants.c"], &["-ldl"]);
    let group = ControlGroup::limited("memtrace-mutants", MEMORY);
    let file = fixture.path("x.mtr");
    let mut target = Running::start(Command::new(program).arg(folder).uid(TENANT).gid(TENANT));
    target.await_stdout("ready");
    let pid = target.pid().to_string();
    let mut command = record::command(["record", "-p", &pid, "-o"]);
    command.arg(&file);
    let memtrace = Running::start(&mut group.command(&command));
    memtrace.await_stderr(record::BEGUN);
    target.send("\n");
    target.await_stdout(&batch.to_string());
    let pid = target.pid();
    target.wait_within(DEADLINE).expect_code(0);
    let stderr = memtrace.wait_within(DEADLINE).expect_code(0).stderr;
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(group.kills(), 0, "more than 512 MiB");
    let report = record::report(&file);
    let kept = report.sites("heap")[&(pid, "kept".to_owned())];
    assert_eq!((kept.live_count, kept.live_bytes), (100, 100_000));
}

#[test]
fn mutants_of_a_program_are_recorded() {
    are_recorded(Path::new("/bin/dash"), "program");
}

#[test]
fn mutants_of_a_library_are_recorded() {
    are_recorded(&targets::system_library("libz.so.1"), "library");
}
