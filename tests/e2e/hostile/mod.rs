//! Recordings made by somebody who wants to harm their reader: every command that reads recordings answers, or refuses
//! with one line, within seconds and a bounded memory, and never panics.

mod attacks;

use attacks::{COSTLY, attacks};
use memtrace_tests::{
    Fixture,
    control_group::ControlGroup,
    record::{self, Record},
    running::Finished,
    targets,
};
use rusqlite::Connection;
use std::{
    ffi::CString,
    fs::{self, File},
    io::{Read, Seek, Write},
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt, fs::symlink, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// CPU time that a command may take, seconds: time that waits for other tests does not count.
const SECONDS: i64 = 10;

/// Memory that it may take, bytes.
const MEMORY: u64 = 512 << 20;

/// The commands that read recordings; `-` stands for a file to write.
fn commands(file: &Path, good: &Path) -> Vec<(String, Vec<String>)> {
    let [file, good] = [file, good].map(|path| path.to_str().expect("ASCII").to_owned());
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["report", &file],
        vec!["report", "--format", "json", &file],
        vec!["report", "--at", "1s", &file],
        vec!["diagnose", &file],
        vec!["diagnose", "--format", "json", &file],
        vec!["flamegraph", "-f", "-o", "-", &file],
        vec!["html", "-f", "-o", "-", &file],
        vec!["diff", &good, &file],
        vec!["diff", &file, &good],
    ];
    for format in [
        "collapsed",
        "pprof",
        "speedscope",
        "firefox",
        "perfetto",
        "otlp",
        "csv",
        "json",
    ] {
        commands.push(vec!["export", "--format", format, &file]);
    }
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<_>>();
    commands
        .into_iter()
        .map(|words| {
            let shown: Vec<_> = words
                .iter()
                .filter(|word| !word.contains('/'))
                .copied()
                .collect();
            (shown.join(" "), owned(words))
        })
        .collect()
}

/// How a command ended, and what it took.
struct Ended {
    status: ExitStatus,
    /// CPU time, milliseconds.
    took: i64,
    /// The kernel killed it for its memory.
    took_memory: bool,
    stderr: String,
}

#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn run(arguments: &[String], input: &str) -> Ended {
    let mut errors = tempfile::tempfile().expect("a file");
    // The most that the kernel saw of a process begins with what its parent had.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("memtrace-hostile-{}-{number}", std::process::id());
    let group = ControlGroup::limited(&name, MEMORY);
    let mut command = group.command(&record::command(arguments));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(File::create("/dev/null").expect("the null device"))
        .stderr(errors.try_clone().expect("a descriptor"))
        .spawn()
        .expect("memtrace can be run");
    let _ = child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes());
    // More than it may take; the kernel ends it.
    let limit = libc::rlimit {
        rlim_cur: 3 * SECONDS as u64,
        rlim_max: 3 * SECONDS as u64,
    };
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: all of them live; the child is this process's own and is waited for once.
    let usage = unsafe {
        libc::prlimit(
            child.id() as i32,
            libc::RLIMIT_CPU,
            &raw const limit,
            std::ptr::null_mut(),
        );
        libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ms = |time: libc::timeval| time.tv_sec * 1000 + time.tv_usec / 1000;
    let mut stderr = String::new();
    errors.rewind().expect("a file");
    let mut raw = Vec::new();
    errors.read_to_end(&mut raw).expect("what it said");
    stderr.push_str(&String::from_utf8_lossy(&raw));
    Ended {
        status: ExitStatus::from_raw(status),
        took: ms(usage.ru_utime) + ms(usage.ru_stime),
        took_memory: group.kills() > 0,
        stderr,
    }
}

/// Why it is not as promised.
fn complaint(ended: &Ended) -> Option<String> {
    let refused = ended.status.code() == Some(2);
    let lines: Vec<_> = ended.stderr.lines().collect();
    let is_clean = ended.status.success() || refused && lines.len() == 1;
    if ended.took_memory {
        Some(format!("took more than {} MiB", MEMORY >> 20))
    } else if !is_clean || ended.stderr.contains("panicked") {
        Some(format!("{}: {}", ended.status, ended.stderr))
    } else if lines
        .iter()
        .any(|line| line.len() > 2000 || line.contains('\u{1b}'))
    {
        Some(format!("a line of {} bytes", ended.stderr.len()))
    } else if ended.took > SECONDS * 1000 {
        Some(format!("took {} ms", ended.took))
    } else {
        None
    }
}

/// A recording of a program that grows for some seconds, the same for all tests.
fn recorded(fixture: &Fixture) -> PathBuf {
    static RECORDED: OnceLock<Vec<u8>> = OnceLock::new();
    let file = fixture.path("good.mtr");
    let growth = RECORDED.get_or_init(|| record_growth(fixture));
    fs::write(&file, growth).expect("room for a file");
    file
}

fn record_growth(fixture: &Fixture) -> Vec<u8> {
    let code = "import time\nk = []\nend = time.monotonic() + 2\n\
        while time.monotonic() < end: k.append(bytearray(3000)); time.sleep(0.002)";
    let command = [targets::interpreter().to_str().expect("ASCII"), "-c", code];
    let Record { running, file } = Record::launch(fixture, &[], command);
    running.wait().expect_code(0);
    fs::read(file).expect("a recording")
}

/// Requests of a language model.
fn requests(file: &Path) -> String {
    let request = |tool| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\
             \"arguments\":{{\"file\":\"{}\"}}}}}}\n",
            file.display()
        )
    };
    ["diagnose", "sites", "holders"].map(request).concat()
}

/// Runs the commands on a file, two at a time; if there is a `turn`, only some of them, which change with it. Returns the
/// broken promises and a summary.
fn check(name: &str, path: &Path, good: &Path, turn: Option<usize>) -> (Vec<String>, String) {
    let mut commands: Vec<_> = commands(path, good)
        .into_iter()
        .map(|(shown, arguments)| (shown, arguments, String::new()))
        .collect();
    commands.push(("mcp".into(), vec!["mcp".into()], requests(path)));
    if COSTLY.contains(&name) {
        let kept = ["report", "diagnose", "export --format perfetto"];
        let kept = turn.map_or(&kept[..], |turn| &kept[turn % 3..][..1]);
        commands.retain(|(shown, ..)| kept.contains(&&**shown));
    } else if let Some(turn) = turn {
        let mut number = turn;
        commands.retain(|(shown, ..)| {
            number += 1;
            shown == "report" || number.is_multiple_of(3)
        });
    }
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((shown, arguments, input)) =
                    commands.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let result = run(arguments, input);
                    ended.lock().expect("no panic").push((shown, result));
                }
            });
        }
    });
    let ended = ended.into_inner().expect("no panic");
    let complaints = ended.iter().filter_map(|(shown, ended)| {
        let complaint: String = complaint(ended)?.chars().take(300).collect();
        Some(format!("{name}: {shown}: {complaint}"))
    });
    let took = ended.iter().map(|(_, ended)| ended.took).max();
    let refused = ended.iter().filter(|(_, ended)| !ended.status.success());
    let summary = format!(
        "{name}: at most {} ms; refused {} of {} times",
        took.unwrap_or(0),
        refused.count(),
        ended.len()
    );
    (complaints.collect(), summary)
}

#[test]
fn every_command_answers_or_refuses_in_time() {
    let fixture = Fixture::new();
    let file = recorded(&fixture);
    let base = fs::read(&file).expect("a recording");
    let mut complaints = Vec::new();
    // All of them, which takes minutes, in `cargo xtask attack`.
    let has_turns = std::env::var_os("MEMTRACE_EVERY_COMMAND").is_none();
    let first = std::process::id() as usize % 3;
    eprintln!("first turn: {first}");
    let mut turns = first..;
    let number = attacks(fixture.folder(), base, &mut |name, path| {
        let turn = turns.next().filter(|_| has_turns);
        let (found, summary) = check(name, path, &file, turn);
        eprintln!("{summary}");
        complaints.extend(found);
    });
    assert!(number >= 80 || std::env::var_os("MEMTRACE_HOSTILE").is_some());
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn what_is_no_file_is_refused() {
    let fixture = Fixture::new();
    let good = recorded(&fixture);
    let fifo = fixture.path("fifo.mtr");
    make_fifo(&fifo);
    let folder = fixture.path("folder.mtr");
    fs::create_dir(&folder).expect("a folder");
    let empty = fixture.path("empty.mtr");
    File::create(&empty).expect("a file");
    let zero = fixture.path("zero.mtr");
    symlink("/dev/zero", &zero).expect("a link");
    for path in [fifo, folder, empty, zero] {
        let name = path.file_name().expect("a name").to_string_lossy();
        let (complaints, summary) = check(&name, &path, &good, None);
        assert!(complaints.is_empty(), "{complaints:#?}");
        // All but the server for language models, which answers with the refusal.
        assert!(summary.ends_with("refused 17 of 18 times"), "{summary}");
    }
}

#[test]
fn a_hole_of_a_tebibyte_is_not_read() {
    let fixture = Fixture::new();
    let good = recorded(&fixture);
    let file = fixture.path("hole.mtr");
    fs::copy(&good, &file).expect("a copy");
    let hole = File::options().write(true).open(&file).expect("a file");
    hole.set_len(1 << 40).expect("a file system with holes");
    let (complaints, summary) = check("a hole", &file, &good, None);
    assert!(complaints.is_empty(), "{complaints:#?}\n{summary}");
}

fn report(file: &Path) -> Finished {
    record::memtrace([Path::new("report"), file])
}

fn make_fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: the name ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// Puts things in the place of a journal of `recording`, and calls `visit` with each.
fn with_journals(
    fixture: &Fixture,
    recording: &Path,
    suffix: &str,
    mut visit: impl FnMut(&str, &Path),
) {
    let journal = PathBuf::from(format!("{}{suffix}", recording.display()));
    let foreign = fs::read("/proc/self/exe").expect("a file");
    let other = hot_journal(fixture, recording);
    let mut try_it = |name: &str| {
        visit(name, &journal);
        fs::remove_file(&journal).expect("it is still there");
    };
    make_fifo(&journal);
    try_it("a FIFO");
    symlink("/etc/shadow", &journal).expect("a link");
    try_it("a link");
    fs::write(&journal, &foreign).expect("a file");
    try_it("a foreign file");
    fs::write(&journal, &other).expect("a file");
    std::os::unix::fs::chown(&journal, Some(12345), None).expect("root");
    try_it("a journal of another user");
}

/// The journal of another database, whose writer is in the middle of a transaction.
fn hot_journal(fixture: &Fixture, recording: &Path) -> Vec<u8> {
    let other = fixture.path("other.db");
    fs::copy(recording, &other).expect("a copy");
    let connection = Connection::open(&other).expect("a database");
    let change = "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; \
        UPDATE site SET live_bytes = 1; UPDATE string SET text = 'planted'; UPDATE site SET live_bytes = 2";
    connection.execute_batch(change).expect("a change");
    let journal = fs::read(fixture.path("other.db-journal")).expect("a journal");
    assert!(journal.starts_with(&[0xd9, 0xd5, 0x05, 0xf9]), "it is hot");
    journal
}

#[test]
fn nothing_beside_a_recording_is_followed() {
    let fixture = Fixture::new();
    let file = recorded(&fixture);
    let before = fs::read(&file).expect("a recording");
    let expected = report(&file).expect_code(0);
    for suffix in ["-journal", "-wal", "-shm"] {
        with_journals(&fixture, &file, suffix, |name, _| {
            let found = report(&file).expect_code(0);
            assert_eq!(found.stdout, expected.stdout, "{name} at {suffix}");
        });
    }
    assert_eq!(fs::read(&file).expect("a recording"), before);
}

#[test]
fn an_older_recording_with_a_planted_journal_is_refused() {
    let fixture = Fixture::new();
    let file = recorded(&fixture);
    let mut content = fs::read(&file).expect("a recording");
    // `user_version` of the SQLite header: versions before 11 had a journal.
    content[60..64].copy_from_slice(&10_u32.to_be_bytes());
    fs::write(&file, content).expect("a file");
    report(&file).expect_code(0);
    with_journals(&fixture, &file, "-journal", |name, journal| {
        let found = report(&file);
        // Nothing shows whose a file of the same owner is: it is read, and is no journal.
        if name == "a foreign file" {
            found.expect_code(0);
            return;
        }
        let found = found.expect_code(2);
        let named = format!("`{}`", journal.display());
        assert!(found.stderr.contains(&named), "{name}: {}", found.stderr);
    });
}
