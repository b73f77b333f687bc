//! A launched command inherits the state that memtrace was started with.

use memtrace_tests::{Fixture, record::command, running::Running, targets};
use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::Path,
    process::Command,
};

/// Lines of `/proc/PID/status` that differ between any two processes.
const STATUS: [&str; 14] = [
    "Pid:",
    "Tgid:",
    "PPid:",
    "Ngid:",
    "NStgid:",
    "NSpid:",
    "NSpgid:",
    "NSsid:",
    "SigQ:",
    "voluntary_ctxt_switches:",
    "nonvoluntary_ctxt_switches:",
    "Vm",
    "Rss",
    "Hugetlb",
];
/// A tracer that holds a process is seen there.
const TRACER: &str = "TracerPid:";

/// Fields of `/proc/PID/stat` (proc(5)) that do not: settings of the process, not its later state. From 1: state,
/// terminal, flags, priority, nice, threads, limit, signals, scheduling.
const STAT: [usize; 16] = [3, 7, 8, 9, 18, 19, 20, 21, 25, 31, 32, 33, 34, 38, 40, 41];

/// The output of a target, without the values that differ between any two processes.
fn normalised(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("the target has written");
    let mut section = String::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            section = name.to_owned();
        }
        match section.as_str() {
            "status" if line.starts_with(TRACER) => {}
            "status" if STATUS.iter().any(|start| line.starts_with(start)) => {}
            "stat" if line.contains(')') => {
                let (_, after) = line.rsplit_once(')').expect("a name in parentheses");
                // The first after the name is field 3.
                let fields: Vec<_> = after.split_whitespace().collect();
                let kept = STAT.map(|number| format!("{number}={}", fields[number - 3]));
                lines.push(kept.join(" "));
            }
            // Each run has pipes of its own.
            "" if line.contains("pipe:[") => {
                let (start, rest) = line.split_once("pipe:[").expect("it is there");
                let flags = rest.split_once(']').expect("a number").1;
                lines.push(format!("{start}pipe{flags}"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    // The file to write to is named.
    lines.retain(|line| !line.contains("truth-"));
    assert!(lines.len() > 60, "{lines:#?}");
    lines
}

/// Changes that a process makes to itself before it executes memtrace or the target.
type Setup = fn() -> io::Result<()>;

fn same(what: &str, setup: Setup) {
    let fixture = Fixture::new();
    let target = targets::program("inherited.c");
    let extra = File::create(fixture.path("extra")).expect("the folder is writable");
    let extra = extra.as_raw_fd();
    let run = |mut command: Command, truth: &Path| {
        let prepared = move || {
            // SAFETY: takes integers; the copy is not closed by exec.
            unsafe { libc::dup2(extra, 207) };
            setup()
        };
        // SAFETY: only async-signal-safe system calls are made.
        unsafe { command.pre_exec(prepared) };
        Running::start(&mut command).wait().expect_code(0);
        normalised(truth)
    };
    let (plain, traced) = (fixture.path("truth-plain"), fixture.path("truth-traced"));
    let mut untraced = Command::new(&target);
    untraced.arg(&plain);
    let mut recorded = command(["record", "-f", "-o"]);
    recorded
        .arg(fixture.path("launched.mtr"))
        .arg("--")
        .arg(&target)
        .arg(&traced);
    let expected = run(untraced, &plain);
    assert!(
        expected.iter().any(|line| line.starts_with("fd 207")),
        "{expected:#?}"
    );
    let found = run(recorded, &traced);
    let missing: Vec<_> = expected
        .iter()
        .filter(|line| !found.contains(line))
        .collect();
    let new: Vec<_> = found
        .iter()
        .filter(|line| !expected.contains(line))
        .collect();
    assert!(
        missing.is_empty() && new.is_empty(),
        "{what}: untraced {missing:#?}, traced {new:#?}"
    );
}

fn ignore(signal: i32) {
    // SAFETY: changes the disposition of a child that runs nothing else.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

#[test]
fn as_it_is() {
    same("as it is", || Ok(()));
}

#[test]
fn signals_that_are_ignored() {
    same("ignored", || {
        for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGINT, libc::SIGUSR2] {
            ignore(signal);
        }
        Ok(())
    });
}

#[test]
fn signals_that_are_blocked() {
    same("blocked", || {
        // SAFETY: an all-zero set is a valid one; the calls read and write it only.
        unsafe {
            let mut set = std::mem::zeroed();
            for signal in [libc::SIGUSR1, libc::SIGCHLD, libc::SIGRTMIN()] {
                libc::sigaddset(&mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        Ok(())
    });
}

#[test]
fn limits_nice_and_umask() {
    same("limits", || {
        let limit = libc::rlimit {
            rlim_cur: 256,
            rlim_max: 4096,
        };
        // SAFETY: the limit lives; the others take integers.
        unsafe {
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            libc::setpriority(libc::PRIO_PROCESS, 0, 5);
            libc::umask(0o27);
        }
        Ok(())
    });
}

#[test]
fn streams_that_are_closed() {
    same("closed", || {
        // SAFETY: takes an integer.
        unsafe { libc::close(0) };
        Ok(())
    });
}
