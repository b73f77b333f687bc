//! A process searched by `memtrace holders` does not notice it, even if memtrace is killed meanwhile.

use memtrace_tests::{
    Fixture, descendants::Descendants, kernel::children, progress::Progress, random,
    record::Record, running::Running, targets, until,
};
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// A program that checks itself: one line, and its end, if anything is not as it should be.
struct Target {
    running: Running,
    progress: Progress,
}

impl Target {
    fn start(fixture: &Fixture) -> Self {
        let progress = Progress::new(fixture);
        let mut command = Command::new(targets::program("harmless.c"));
        let running = Running::start(command.arg(progress.path()));
        progress.await_rounds(1);
        Self { running, progress }
    }

    /// After a moment, its only children are its own, which come and go, and all of its threads run.
    #[track_caller]
    fn expect_undisturbed(&mut self) {
        self.running.expect_alive();
        expect_no_child(self.running.pid());
        self.progress.await_rounds(2);
        self.running.expect_alive();
    }

    #[track_caller]
    fn end(mut self) {
        self.running.close_stdin();
        let finished = self.running.wait().expect_code(0);
        assert_eq!(finished.stderr, "");
    }
}

#[track_caller]
fn expect_no_child(pid: u32) {
    until("the end of its children", || {
        children(pid).is_empty().then_some(())
    });
}

fn holders(pid: u32, options: &[&str]) -> Running {
    let mut command = Command::new(targets::memtrace());
    command.args(["holders", "-p", &pid.to_string()]);
    Running::start(command.args(options))
}

/// Kills memtrace at random moments of a search, this many times or `MEMTRACE_KILLS` times; every other time as soon as
/// it prints `after`, if that is given.
fn killed(options: &[&str], after: Option<&str>, kills: usize) {
    let fixture = Fixture::new();
    let descendants = Descendants::new();
    let (kills, mut random) = random::times("MEMTRACE_KILLS", kills);

    let mut target = Target::start(&fixture);
    let pid = target.running.pid();
    let begun = Instant::now();
    holders(pid, options).wait().expect_code(0);
    let usual = begun.elapsed();
    for kill in 0..kills {
        let mut search = holders(pid, options);
        match after.filter(|_| kill % 2 == 0) {
            Some(after) => drop(search.await_stderr(&format!("memtrace: process {pid} {after}"))),
            None => thread::sleep(Duration::from_micros(
                random.u64(..usual.as_micros() as u64),
            )),
        }
        search.signal(libc::SIGKILL);
        let end = search.end();
        // It may have been faster.
        assert!(end.success() || end.signal() == Some(libc::SIGKILL));
        target.expect_undisturbed();
    }
    target.end();
    descendants.expect_none();
}

/// Bytes of memory that a process has written and shares with another.
fn shared(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("readable");
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Shared_Dirty:"));
    let kib = line.and_then(|it| it.trim().strip_suffix(" kB"));
    let kib: u64 = kib.expect("a size").parse().expect("a number");
    kib << 10
}

#[test]
fn pages_that_forked_processes_share_stay_shared() {
    let fixture = Fixture::new();
    let mut command = Command::new(targets::interpreter());
    let mut parent = Running::start(command.arg(targets::source("python/forked.py")));
    let child: u32 = parent.await_stdout("child ")["child ".len()..]
        .parse()
        .expect("a number");
    let before = shared(child);
    assert!(before > 48 << 20, "{before}");
    let record = Record::attach(&fixture, child, &["-d", "4"]);
    record.running.wait().expect_code(0);
    holders(child, &["--type", "bytes"]).wait().expect_code(0);
    let copied = before.saturating_sub(shared(child));
    assert!(copied < 4 << 20, "{copied} of {before}");
    parent.close_stdin();
    parent.wait().expect_code(0);
}

#[test]
fn memtrace_killed_while_it_has_stopped_the_process() {
    killed(&["--lost", "--stop"], Some("is stopped until"), 12);
}

#[test]
fn memtrace_killed_while_it_searches() {
    killed(&["--lost"], None, 5);
}
