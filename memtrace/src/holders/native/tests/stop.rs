//! Stops of processes that watch out for them.

use super::*;
use crate::arch;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

fn undisturbed() -> (Program, u32) {
    let mut program = Program::start("gcc", include_str!("undisturbed.c"), &[], &[]);
    let pid = program.until_ready()[0].parse().unwrap();
    (program, pid)
}

#[test]
fn nobody_notices_a_stop() {
    let (mut program, pid) = undisturbed();
    let mut longest = Duration::ZERO;
    for _ in 0..200 {
        let stop = Stop::within(pid, PATIENCE).unwrap();
        assert_eq!(stop.threads().len(), 11);
        longest = longest.max(stop.end().unwrap().lasted);
    }
    eprintln!("longest of 200 stops of 11 threads: {longest:?}");
    assert_eq!(
        program.finish(),
        ["all signals", "ended with 0 after 1 signals of children"]
    );
}

#[test]
fn threads_stopped_one_by_one_notice_nothing_either() {
    let (mut program, pid) = undisturbed();
    for _ in 0..50 {
        let seen = Threads::Running(pid).each(|thread| thread.registers.is_some());
        assert_eq!(seen.len(), 11);
    }
    assert_eq!(
        program.finish(),
        ["all signals", "ended with 0 after 1 signals of children"]
    );
}

#[test]
fn nothing_runs_during_a_stop() {
    let target = Target::start(&[]);
    let stop = Stop::within(target.program.pid(), PATIENCE).unwrap();
    assert_eq!(stop.threads().len(), 3);
    let spinner = target.address("register");
    let registers = stop.threads().iter().filter_map(|thread| thread.registers);
    let held: Vec<u64> = registers
        .flat_map(|registers| arch::general(&registers).map(|(_, value)| value))
        .collect();
    assert!(held.contains(&spinner), "{held:x?}");
    for thread in stop.threads() {
        let state = fs::read_to_string(format!("/proc/{}/status", thread.tid)).unwrap();
        assert!(state.contains("State:\tt (tracing stop)"), "{state}");
    }
    drop(stop);
    let state = fs::read_to_string(format!("/proc/{}/status", target.program.pid())).unwrap();
    assert!(state.contains("TracerPid:\t0"), "{state}");
}

#[test]
fn a_stop_kept_too_long_ends_by_itself() {
    let target = Target::start(&[]);
    let pid = target.program.pid();
    let stop = Stop::within(pid, Duration::from_millis(500)).unwrap();
    let is_traced = || {
        !fs::read_to_string(format!("/proc/{pid}/status"))
            .unwrap()
            .contains("TracerPid:\t0")
    };
    while is_traced() {
        std::thread::yield_now();
    }
    assert!(stop.end().unwrap().was_cut);
}

#[test]
fn a_stop_that_was_given_up_can_be_tried_again_at_once() {
    let target = Target::start(&[]);
    let pid = target.program.pid();
    for _ in 0..20 {
        if let Err(error) = Stop::within(pid, Duration::ZERO) {
            assert!(matches!(error, StopError::TooSlow { .. }), "{error}");
        }
    }
    Stop::within(pid, PATIENCE).unwrap();
}

#[test]
fn a_traced_process_names_its_tracer() {
    let target = Target::start(&[]);
    let pid = target.program.pid();
    let first = Stop::within(pid, PATIENCE).unwrap();
    let error = Stop::within(pid, PATIENCE).err().unwrap();
    assert!(
        matches!(error, StopError::TracedAlready { tracer, .. } if tracer == std::process::id()),
        "{error}"
    );
    drop(first);
    Stop::within(pid, PATIENCE).unwrap();
}

#[test]
fn a_process_that_was_stopped_stays_so() {
    let target = Target::start(&[]);
    let pid = target.program.pid();
    // SAFETY: no memory is involved; the child is not reaped yet.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
    let state = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    while !state().contains("State:\tT (stopped)") {
        std::thread::yield_now();
    }
    for _ in 0..20 {
        drop(Stop::within(pid, PATIENCE).unwrap());
        let is_on_its_way = |state: &str| {
            ["t (tracing stop)", "R (running)"]
                .iter()
                .any(|on| state.contains(on))
        };
        while is_on_its_way(&state()) {
            std::thread::yield_now();
        }
        assert!(state().contains("State:\tT (stopped)"), "{}", state());
    }
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    let pid = {
        let target = Target::start(&[]);
        target.program.pid()
    };
    assert!(matches!(Stop::new(pid), Err(StopError::Ended { .. })));
}

#[test]
fn a_process_that_is_killed_during_a_stop_ends() {
    let mut target = Target::start(&[]);
    let stop = Stop::within(target.program.pid(), PATIENCE).unwrap();
    target.program.child.kill().unwrap();
    drop(stop);
    assert!(!target.program.child.wait().unwrap().success());
}
