//! kill -9 of memtrace while it records: the recording stays readable up to the last interval, and the target does not
//! suffer. The same if memtrace is stopped.

use memtrace_tests::{
    Fixture,
    control_group::ControlGroup,
    descendants::Descendants,
    kernel::{Loaded, children, patched_bytes, stopped_children},
    progress::Progress,
    random,
    record::{self, Record, report, try_report},
    report::Report,
    running::Running,
    storm::Storm,
    targets,
    terminal::{self, CTRL_C, CTRL_Z, Terminal},
    until,
};
use std::{fs, iter, os::unix::process::ExitStatusExt, process::Command, time::Duration};

const OPTIONS: [&str; 2] = ["--interval", "200ms"];

/// Waits for an interval with allocations in the file, and returns how many it has.
fn await_interval(record: &Record) -> u64 {
    until("an interval in the recording", || {
        // Before its first interval there is nothing to report.
        let report = try_report(&record.file).ok()?;
        let count = allocations(&report);
        // Names come a moment later than figures.
        (count > 0 && !report.sites("heap").is_empty()).then_some(count)
    })
}

/// Waits for an interval in the file, kills memtrace and opens the file again.
fn kill(record: &mut Record, pid: u32, progress: &Progress) {
    progress.await_rounds(1);
    let seen = await_interval(record);
    record.running.signal(libc::SIGKILL);
    assert_eq!(record.running.end().signal(), Some(libc::SIGKILL));
    let report = report(&record.file);
    assert!(allocations(&report) >= seen);
    assert!(report.processes.iter().any(|process| process.tgid == pid));
    assert!(!report.sites("heap").is_empty(), "totals without sites");
}

/// Heap allocations of all processes.
fn allocations(report: &Report) -> u64 {
    let heaps = report.totals.iter().filter(|total| total.layer == "heap");
    heaps.map(|total| total.alloc_count).sum()
}

#[test]
fn attached_to_a_busy_program() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let mut target = Running::start(Command::new(targets::program("busy.cc")).arg(progress.path()));
    let mut record = Record::attach(&fixture, target.pid(), &OPTIONS);
    kill(&mut record, target.pid(), &progress);
    target.expect_alive();
    until("the end of every breakpoint", || {
        (patched_bytes(target.pid()) == 0).then_some(())
    });
    progress.await_rounds(100);
}

#[test]
fn around_a_launched_program() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let target = targets::program("busy.cc");
    let mut record = Record::launch(&fixture, &OPTIONS, [&target, progress.path()]);
    let pid = progress.pid();
    kill(&mut record, pid, &progress);
    progress.await_rounds(100);
}

/// Children are stopped at their first instruction until memtrace has set their probes. One that waits at the moment of
/// the kill must not wait for ever.
#[test]
fn no_forked_child_stays_stopped() {
    let fixture = Fixture::new();
    let forker = targets::program("forker.c");
    for _ in 0..3 {
        let progress = Progress::new(&fixture);
        let mut target = Running::start(Command::new(&forker).arg(progress.path()));
        let mut record = Record::attach(&fixture, target.pid(), &OPTIONS);
        kill(&mut record, target.pid(), &progress);
        progress.await_rounds(20);
        target.expect_alive();
        until("no stopped child", || {
            stopped_children(target.pid()).is_empty().then_some(())
        });
    }
}

#[test]
fn no_forked_child_of_a_launched_program_stays_stopped() {
    let fixture = Fixture::new();
    let progress = Progress::new(&fixture);
    let mut record = Record::launch(
        &fixture,
        &OPTIONS,
        [&targets::program("forker.c"), progress.path()],
    );
    let pid = progress.pid();
    kill(&mut record, pid, &progress);
    progress.await_rounds(20);
    until("no stopped child", || {
        stopped_children(pid).is_empty().then_some(())
    });
}

/// How long a process may be stopped after the death of memtrace, in addition to its untraced pauses.
const HELD: Duration = Duration::from_millis(100);

/// How long the kernel may take to close the descriptors of a killed collector.
const CLOSING: Duration = Duration::from_secs(300);

/// The processes of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Collector,
    Holder,
}

use Part::{Collector, Holder};

impl Part {
    /// Its pid in the recording of this collector.
    #[track_caller]
    fn of(self, collector: u32) -> u32 {
        let is_pauser = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(b"pause")
        };
        match self {
            Collector => collector,
            Holder => children(collector)
                .into_iter()
                .find(is_pauser)
                .expect("memtrace has a process that holds"),
        }
    }
}

#[track_caller]
fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::kill(pid as i32, signal) };
    assert_eq!(result, 0, "kill: {}", std::io::Error::last_os_error());
}

/// Kills parts of memtrace at random moments of a storm that it is attached to, this many times or `MEMTRACE_KILLS`
/// times.
fn killed_in_a_storm(parts: &[Part], kills: usize) {
    let fixture = Fixture::new();
    let _descendants = Descendants::new();
    let (kills, mut random) = random::times("MEMTRACE_KILLS", kills);

    let storm = Storm::new(&fixture);
    let mut target = storm.start();
    let untraced = storm.mark().longest_gap();
    let mut longest = Duration::ZERO;
    // The kernel closes a collector's probes one after the other. That takes seconds after a storm, so it is awaited at
    // the end.
    let mut killed = Vec::new();
    for kill in 0..kills {
        let file = fixture.path(&format!("{kill}.mtr"));
        let record = Record::attach_to(&storm.pids(), file, &["--interval", "20ms"]);
        let collector = record.running.pid();
        let loaded = Loaded::by(collector);
        let seen = await_interval(&record);
        let pids: Vec<_> = parts.iter().map(|part| part.of(collector)).collect();
        std::thread::sleep(Duration::from_micros(random.u64(..300_000)));

        let mark = storm.mark();
        for &pid in &pids {
            signal(pid, libc::SIGKILL);
        }
        let gap = mark.longest_gap();
        eprintln!("kill {kill}: {gap:?}, untraced {untraced:?}");
        longest = longest.max(gap);
        target.expect_alive();
        if !parts.contains(&Collector) {
            // A recording without its pauser continues, or has ended by itself.
            record.running.signal(libc::SIGINT);
        }
        killed.push((record, loaded, seen));
    }
    for (mut record, loaded, seen) in killed {
        let end = record.running.end_within(CLOSING);
        if parts.contains(&Collector) {
            assert_eq!(end.signal(), Some(libc::SIGKILL));
        }
        loaded.expect_gone();
        let report = report(&record.file);
        assert!(allocations(&report) >= seen, "{report:#?}");
        assert!(!report.sites.is_empty(), "totals without sites");
    }
    for pid in storm.pids() {
        assert_eq!(patched_bytes(pid), 0, "breakpoints");
    }
    target.expect_alive();
    assert!(
        longest < HELD + untraced,
        "{longest:?} after {parts:?} was killed; untraced {untraced:?}"
    );
}

#[test]
fn the_collector_in_a_storm() {
    killed_in_a_storm(&[Collector], 8);
}

#[test]
fn the_pauser_in_a_storm() {
    killed_in_a_storm(&[Holder], 3);
}

#[test]
fn the_collector_and_then_the_pauser_in_a_storm() {
    killed_in_a_storm(&[Collector, Holder], 3);
}

#[test]
fn the_pauser_and_then_the_collector_in_a_storm() {
    killed_in_a_storm(&[Holder, Collector], 3);
}

/// A collector that is stopped, as a debugger or an overfull machine may do.
#[test]
fn nothing_waits_for_a_stopped_collector() {
    let fixture = Fixture::new();
    let _descendants = Descendants::new();
    let storm = Storm::new(&fixture);
    let _target = storm.start();
    let mut record = Record::attach_to(&storm.pids(), fixture.path("attached.mtr"), &[]);
    record.running.signal(libc::SIGSTOP);
    for _ in 0..3 {
        storm.mark().longest_gap();
    }
    record.running.signal(libc::SIGCONT);
    record.running.expect_alive();
    storm.mark().longest_gap();
    assert!(allocations(&record.stop()) > 0);
}

/// A shell in a terminal.
fn shell() -> Terminal {
    let mut shell = Terminal::start(&mut terminal::shell());
    shell.await_prompt();
    shell
}

#[test]
fn nothing_waits_for_a_collector_stopped_from_its_terminal() {
    let fixture = Fixture::new();
    let _descendants = Descendants::new();
    let storm = Storm::new(&fixture);
    let _target = storm.start();
    let file = fixture.path("attached.mtr");
    let pids: Vec<_> = storm.pids().iter().map(|pid| format!("-p {pid}")).collect();
    let mut shell = shell();
    let memtrace = targets::memtrace().display();
    shell.send(&format!(
        "{memtrace} record -o {} {}\n",
        file.display(),
        pids.join(" ")
    ));
    shell.await_text(record::BEGUN);
    shell.send(CTRL_Z);
    shell.await_text("Stopped");
    for _ in 0..3 {
        storm.mark().longest_gap();
    }
    shell.send("fg\n");
    shell.await_foreground_job();
    storm.mark().longest_gap();
    shell.send(CTRL_C);
    shell.await_text("memtrace: next: ");
    shell.await_prompt();
    shell.send("echo status $?\n");
    shell.await_text("\nstatus 0\r");
    assert!(allocations(&report(&file)) > 0);
}

/// A launched command is in the foreground with memtrace: both stop, and both continue.
#[test]
fn a_launched_storm_stops_and_continues_with_its_terminal() {
    let fixture = Fixture::new();
    let _descendants = Descendants::new();
    let storm = Storm::new(&fixture);
    let file = fixture.path("launched.mtr");
    let mut shell = shell();
    let memtrace = targets::memtrace().display();
    let [program, shared, workers] = storm.words().map(|word| word.display().to_string());
    shell.send(&format!(
        "{memtrace} record -o {} -- {program} {shared} {workers}\n",
        file.display()
    ));
    storm.pid();
    storm.mark().longest_gap();
    for _ in 0..3 {
        shell.send(CTRL_Z);
        shell.await_text("Stopped");
        shell.await_prompt();
        shell.run("bg");
        storm.mark().longest_gap();
        shell.send("fg\n");
        shell.await_foreground_job();
    }
    storm.mark().longest_gap();
    shell.send(CTRL_C);
    shell.await_text("memtrace: next: ");
    shell.await_prompt();
    shell.send("echo status $?\n");
    shell.await_text("\nstatus 130\r");
    assert!(allocations(&report(&file)) > 0);
}

/// The kernel kills the program, whose last state is in the recording.
#[test]
fn a_program_that_exceeds_its_limit_of_memory() {
    let fixture = Fixture::new();
    let name = format!("memtrace-tests-{}", std::process::id());
    let group = ControlGroup::limited(&name, 64 << 20);
    let code = "keep = []\nwhile True: keep.append(b'x' * 1000000)";
    let mut target = Command::new(targets::interpreter());
    let target = group.command(target.args(["-c", code]));
    let target = iter::once(target.get_program()).chain(target.get_args());
    let record = Record::launch(&fixture, &[], target);
    let report = record.finish(128 + libc::SIGKILL);
    let process = report.processes.first().expect("a process");
    assert_eq!(process.exit_status, Some(9));
    assert!(process.oom_kills > 0, "{process:?}");
    let live = report.total(process.tgid, "heap").live_bytes;
    assert!(live > 30_000_000, "{live}");
}
