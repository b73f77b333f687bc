//! Known counts, site by site and process by process, to the byte.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture, kernel,
    record::Record,
    report::{Report, ReportedSite},
    running::Running,
    targets,
    truth::Truth,
};
use std::{
    env, fs,
    io::Write as _,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

/// Allocated before attach and freed after by `exact hold`.
const FREED_OF_BEFORE: u64 = 4;

fn runs() -> u32 {
    match env::var("MEMTRACE_EXACT_RUNS") {
        Ok(runs) => runs.parse().expect("MEMTRACE_EXACT_RUNS is a number"),
        Err(_) => 10,
    }
}

#[test]
fn launched_with_every_function_thread_child_and_library() {
    let fixture = Fixture::new();
    let target = targets::program("exact.c");
    let library = targets::library("constructor.c");
    for run in 1..=runs() {
        let truth = fixture.path(&format!("truth-{run}"));
        let command = [&target, &"run".into(), &truth, &library];
        let report = Record::launch(&fixture, &[], command).finish(7);
        eprintln!("run {run}: {} records", report.emitted);
        report.expect_exact(&Truth::read(&truth));
        report.expect_no_losses(0);
    }
}

/// A malloc whose cache of free blocks has another block than it gives at one of its 200 calls.
fn mispredicted(lie_at: u32) -> Report {
    let fixture = Fixture::new();
    let library = targets::library("mispredicted.c");
    let preload = format!("LD_PRELOAD={}", library.display());
    let lie_at = format!("LIE_AT={lie_at}");
    Record::launch(&fixture, &[], ["env", &preload, &lie_at, "true"]).finish(0)
}

#[test]
fn a_cache_that_misleads_is_not_trusted() {
    let report = mispredicted(10);
    let expected = u64::from(kernel::has_uprobe_sessions());
    assert_eq!(report.loss(Reason::ResultMispredicted), expected);
    assert_eq!(report.loss(Reason::UnknownFree), 0);
}

/// It is trusted later, where only some results are compared. So this also shows that results are predicted at all.
#[test]
fn a_cache_that_misleads_after_many_calls_is_visible() {
    let report = mispredicted(150);
    let expected = u64::from(kernel::has_uprobe_sessions());
    assert_eq!(report.loss(Reason::ResultMispredicted), 0);
    assert_eq!(report.loss(Reason::UnknownFree), expected);
}

/// Nor is the place of a cache kept when a thread's variables are elsewhere.
#[test]
fn a_thread_with_the_variables_of_another() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::program("thread_pointer.c");
    let report = Record::launch(&fixture, &[], [&target, &truth]).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// Allocations whose stack begins in a function.
fn directly_in(report: &Report, function: &str) -> u64 {
    let sites = report.sites.iter().filter(|site| site.layer == "heap");
    let first = |site: &ReportedSite| site.frames.first()?.function.clone();
    sites
        .filter(|site| first(site).as_deref() == Some(function))
        .map(|site| site.counts.alloc_count)
        .sum()
}

/// Whether or not the return of malloc is probed, its caller is the first frame.
#[test]
fn callers_along_frame_pointers() {
    let fixture = Fixture::new();
    let target = targets::program("tail_call.c");
    for options in [&[][..], &["--frame-pointers"]] {
        let report = Record::launch(&fixture, options, [&target]).finish(0);
        assert_eq!(directly_in(&report, "caller"), 2000, "{options:?}");
        assert_eq!(directly_in(&report, "direct"), 2000, "{options:?}");
    }
}

/// Another tool's return probe has replaced the return address before malloc is entered by a jump.
#[test]
fn callers_where_another_tool_probes_returns() {
    const EVENTS: &str = "/sys/kernel/tracing/uprobe_events";
    let fixture = Fixture::new();
    let target = targets::program("tail_call.c");
    let output = Command::new(&target).arg("where").output().unwrap();
    let offset: u64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let append = |line: &str| {
        let file = fs::OpenOptions::new().append(true).open(EVENTS);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    };
    let enable = |on: &str| {
        fs::write("/sys/kernel/tracing/events/memtrace_test/jump/enable", on).unwrap();
    };
    append(&format!(
        "r:memtrace_test/jump {}:{offset:#x}\n",
        target.display()
    ));
    enable("1");
    let report = Record::launch(&fixture, &[], [&target]).finish(0);
    enable("0");
    append("-:memtrace_test/jump\n");
    report.expect_no_losses(0);
    assert_eq!(directly_in(&report, "caller"), 2000);
    assert_eq!(directly_in(&report, "direct"), 2000);
}

#[test]
fn attached_while_it_waits() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let mut command = Command::new(targets::program("exact.c"));
    command
        .arg("hold")
        .arg(&truth)
        .arg(targets::library("constructor.c"));
    let mut target = Running::start(&mut command);
    target.await_stdout("ready");

    let record = Record::attach(&fixture, target.pid(), &[]);
    target.send("!");
    target.await_stdout("done");
    let report = record.stop();

    // A correct recording does not prove that the target was undisturbed.
    target.expect_alive();
    target.send("!");
    target.wait().expect_code(0);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(FREED_OF_BEFORE);
}

/// Calls in one tick of the kernel share a time.
#[test]
fn lifetimes_to_a_tick() {
    /// The longest of any kernel, and as much again for a virtual machine's that come late; nanoseconds.
    const TICK: u64 = 2 * 10_000_000;
    let fixture = Fixture::new();
    let record = Record::launch(&fixture, &[], [targets::program("lifetimes.c")]);
    let line = record.running.await_stdout("lived ");
    let words = line.split_whitespace().skip(1);
    let bounds: Vec<u64> = words.map(|word| word.parse().expect("ns")).collect();
    let report = record.finish(0);

    let mut sites = report.sites.iter();
    let site = sites.find(|site| site.layer == "heap" && site.name() == Some("lived"));
    let lifetimes = site.and_then(|site| site.lifetimes.as_ref()).expect("some");
    assert_eq!(lifetimes.iter().sum::<u64>(), 20);
    let present = || (0..lifetimes.len()).filter(|i| lifetimes[*i] > 0);
    let shortest = present().next().map(|i| 1 << (i + 1));
    let longest = present().next_back().map(|i| 1 << i);
    assert!(
        shortest > Some(bounds[0] - TICK),
        "{bounds:?}: {lifetimes:?}"
    );
    assert!(
        longest <= Some(bounds[1] + TICK),
        "{bounds:?}: {lifetimes:?}"
    );
}

#[test]
fn cpp_operators_on_libc() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let command = [&targets::program("cxx.cc"), &"run".into(), &truth];
    let report = Record::launch(&fixture, &[], command).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// An exception may pass through whatever called operator new: libstdc++'s is
/// not probed itself, so no return address on its way is replaced.
#[test]
fn cpp_exceptions_pass() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    for target in [
        targets::program("cxx.cc"),
        targets::static_program("cxx.cc"),
    ] {
        let report = Record::launch(&fixture, &[], [&target, &"throw".into(), &truth]).finish(7);
        report.expect_no_losses(0);
    }
}

/// Set when it is dropped, whatever the result of the test.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A library that is overwritten while it is mapped is read again, or left out. Stacks may end early where it was
/// mapped again faster than it is read; no allocation is lost.
#[test]
fn a_file_that_is_rewritten_while_it_is_read() {
    let fixture = Fixture::new();
    let (library, truth) = (fixture.path("library.so"), fixture.path("truth"));
    let libstdcxx = targets::system_library("libstdc++.so.6");
    let content = fs::read(libstdcxx).expect("libstdc++ is installed");
    fs::write(&library, &content).expect("the folder is writable");
    let target = targets::program("rewritten.c");
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        // Truncates it first. It is whole for as long as it takes to read it again.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::write(&library, &content).expect("the folder is writable");
                assert_eq!(fs::read(&library).expect("it is there"), content);
            }
        });
        let _over = AtEnd(&over);
        Record::launch(&fixture, &[], [&target, &library, &truth]).finish(7)
    });
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses_but(&[Reason::FileChanged, Reason::StackStale], 0);
}

/// More threads than CPUs on a small machine: where the kernel preempts tracing programs, one thread's program is
/// interrupted by another's.
#[test]
fn threads_that_preempt_one_another() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::program("overload.c");
    let command = [&target, &truth, &"4".into(), &"20000".into()];
    let report = Record::launch(&fixture, &[], command).finish(0);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
}

/// Kernels before 6.10 take a perf event for each probe instead of one link for all.
#[test]
fn probes_attached_one_by_one() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::program("cxx.cc");
    let options = ["--one-by-one"];
    let expedited = || fs::read_to_string("/sys/kernel/rcu_expedited").ok();
    let before = expedited();
    let report = Record::launch(&fixture, &options, [&target, &"run".into(), &truth]).finish(7);
    report.expect_exact(&Truth::read(&truth));
    report.expect_no_losses(0);
    assert_eq!(expedited(), before, "grace periods are as they were");
}

/// Each process has perf events of its own then, and older kernels run the programs of all of them at each return.
#[test]
fn processes_beside_one_another_with_probes_attached_one_by_one() {
    let fixture = Fixture::new();
    let target = targets::program("overload.c").display().to_string();
    let truths = [fixture.path("first"), fixture.path("second")];
    let [first, second] = truths.each_ref().map(|truth| truth.display());
    let script = format!("{target} {first} 2 5000 & {target} {second} 2 5000; wait");
    let options = ["--one-by-one"];
    let report = Record::launch(&fixture, &options, ["sh", "-c", &script]).finish(0);
    let [mut truth, of_second] = truths.each_ref().map(|truth| Truth::read(truth));
    truth.sites.extend(of_second.sites);
    report.expect_exact(&truth);
    report.expect_no_losses(0);
}
