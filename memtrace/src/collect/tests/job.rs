//! Real processes that join a recording, without a kernel side.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use memtrace_common::event::{Header, Kind, Lifecycle};

use super::replay::Replay;
use crate::{
    collect::collector::CollectError,
    process,
    recording::{Meta, Origin},
};

const LONG: Duration = Duration::from_secs(60);

/// A shell with a child; both end with the test.
struct Job {
    shell: Child,
    child: u32,
    _gate: Option<ChildStdin>,
}

impl Job {
    fn start() -> Self {
        let script = "exec 3<&0; cat <&3 >/dev/null & echo $!; wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(shell.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        Self {
            child: line.trim().parse().unwrap(),
            _gate: shell.stdin.take(),
            shell,
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Its child reads to the end.
        self._gate = None;
        let _ = self.shell.wait();
    }
}

/// A collector that traces the shell.
fn tracing(job: &Job) -> Replay {
    let mut replay = Replay::idle();
    replay.gate.let_pass(0..1000);
    let begun = replay
        .collector
        .begin(job.shell.id(), Origin::Attached, 0, LONG);
    begun.unwrap();
    replay
}

fn tgids(replay: &Replay) -> Vec<u32> {
    let rows = replay.rows();
    let mut tgids: Vec<u32> = rows.iter().map(|row| row.tgid).collect();
    tgids.dedup();
    tgids
}

#[test]
fn the_record_of_a_process_begins_when_its_probes_are_set() {
    let job = Job::start();
    let mut replay = tracing(&job);
    let meta = Meta {
        started_ns: 7_000,
        ..Meta::default()
    };
    replay.collector.observe_all(&meta).unwrap();
    let last = replay.rows().pop().unwrap();
    assert_eq!((last.tgid, last.started_ns), (job.shell.id(), 7_000));
    assert!(replay.collector.join_late(8_000).unwrap());
    let late = replay.rows().pop().unwrap();
    assert_eq!(late.tgid, job.child);
    assert!(late.started_ns > 8_000, "not when its attaching began");
}

#[test]
fn a_living_child_joins_once() {
    let job = Job::start();
    let mut replay = tracing(&job);
    replay.collector.join_all(1, |_| {}).unwrap();
    assert_eq!(tgids(&replay), [job.shell.id(), job.child]);
    let row = replay.rows().remove(1);
    assert_eq!((row.origin, row.ppid), (Origin::Attached, job.shell.id()));
    assert!(replay.kernel().traced.contains(&job.child));

    assert!(!replay.collector.join_late(2).unwrap());
    // Its parent was still in fork when it was found.
    let header = Header {
        tgid: job.child,
        tid: job.shell.id(),
        ..Header::default()
    };
    let fork = Lifecycle {
        header,
        value: 0,
        other: job.shell.id(),
        pad: 0,
    };
    replay.collector.lifecycle(Kind::Fork, fork).unwrap();
    assert_eq!(tgids(&replay), [job.shell.id(), job.child]);
    assert!(replay.untraced().is_empty());
}

#[test]
fn a_missed_child_joins_late_unless_the_kernel_side_knows_it() {
    let job = Job::start();
    let mut replay = tracing(&job);
    replay.kernel_mut().traced.insert(job.child);
    assert!(!replay.collector.join_late(1).unwrap());
    replay.kernel_mut().traced.remove(&job.child);
    assert!(replay.collector.join_late(2).unwrap());
    assert_eq!(tgids(&replay), [job.shell.id(), job.child]);
    assert!(!replay.collector.join_late(3).unwrap());
}

#[test]
fn a_child_that_is_left_out_is_named_once() {
    let job = Job::start();
    let mut replay = tracing(&job);
    for _ in 0..2 {
        replay.collector.leave_out().unwrap();
    }
    assert_eq!(tgids(&replay), [job.shell.id()]);
    assert_eq!(replay.untraced(), [(job.child, "--no-follow".to_owned())]);
}

#[test]
fn a_process_that_ends_before_tracing_is_not_recorded() {
    let mut replay = Replay::idle();
    replay.gate.let_pass(0..1000);
    let mut child = Command::new("true").spawn().unwrap();
    let tgid = child.id();
    while !process::has_ended(tgid) {
        std::thread::yield_now();
    }
    let begin = |replay: &mut Replay| {
        let begun = replay.collector.begin(tgid, Origin::Attached, 0, LONG);
        begun.unwrap_err()
    };
    let zombie = begin(&mut replay);
    assert!(matches!(zombie, CollectError::Ended(_)), "{zombie}");
    child.wait().unwrap();
    let gone = begin(&mut replay);
    assert!(matches!(gone, CollectError::Unreadable { .. }), "{gone}");

    assert!(replay.rows().is_empty());
    assert_eq!(replay.collector.processes.kept(), 0);
    assert!(!replay.kernel().traced.contains(&tgid));
}

#[test]
fn the_image_of_an_attached_process_outlives_its_children() {
    let job = Job::start();
    let mut replay = tracing(&job);
    let parent = job.shell.id();
    let header = Header {
        tgid: job.child,
        tid: parent,
        ..Header::default()
    };
    let fork = Lifecycle {
        header,
        value: 0,
        other: parent,
        pad: 0,
    };
    replay.collector.lifecycle(Kind::Fork, fork).unwrap();
    let image = replay.collector.control.kernel.trace(parent).unwrap();
    let processes = &mut replay.collector.processes;
    // The child alone sends stacks.
    assert_eq!(processes.runs(job.child, image), None);
    assert_eq!(processes.end(job.child).image, None);
    assert_eq!(processes.end(parent).image, Some(image));
}
