//! Copies of programs that look for any trace of them.

use super::*;
use crate::{
    holders::{memory::Memory, native::copy::keep},
    process::tasks,
};
use std::thread;

/// As the helper does it, in a thread.
fn copied(pid: u32) -> Result<Copied, copied::CopyError> {
    Copied::by(|line| {
        thread::spawn(move || keep(pid, &line));
        Ok(None)
    })
}

fn watching() -> (Program, u64) {
    let mut program = Program::start("gcc", include_str!("copied.c"), &[], &[]);
    let marks = program.until_ready()[0]
        .strip_prefix("marks 0x")
        .map(|digits| u64::from_str_radix(digits, 16).unwrap());
    (program, marks.unwrap())
}

/// Printed by the program if it noticed nothing.
const NOTHING: [&str; 4] = [
    "read returned 1",
    "0 signals, 0 interrupted, 0 too early",
    "waitpid: -1 No child processes",
    "waitpid: -1 No child processes",
];

fn seen(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

fn state(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("State:"));
    line.unwrap_or_default().to_owned()
}

#[test]
fn nobody_notices_a_copy() {
    let (mut program, marks) = watching();
    let pid = program.pid();
    for _ in 0..50 {
        let copy = copied(pid).unwrap();
        assert_eq!(copy.threads().len(), 2);
        assert_eq!(Live::new(copy.pid()).word(marks + 8 * 1023), Some(1023));
        assert!(state(copy.pid()).contains("tracing stop"));
        let number = copy.pid();
        assert!(copy.end().unwrap().is_reaped);
        assert_eq!(state(number), "");
    }
    assert_eq!(program.finish(), NOTHING);
}

#[test]
fn threads_in_all_kinds_of_calls_do_not_notice_a_copy() {
    let mut program = Program::start("gcc", include_str!("undisturbed.c"), &[], &[]);
    let pid = program.until_ready()[0].parse().unwrap();
    for _ in 0..50 {
        let copy = copied(pid).unwrap();
        assert_eq!(copy.threads().len(), 11);
        assert!(copy.end().unwrap().is_reaped);
    }
    assert_eq!(
        program.finish(),
        ["all signals", "ended with 0 after 1 signals of children"]
    );
}

#[test]
fn a_copy_is_not_changed_by_the_program() {
    let mut program = Program::start(
        "gcc",
        "#include <stdio.h>\n#include <unistd.h>\nlong mark = 1;\nint main(void) { char byte; \
         printf(\"%lx\\nready\\n\", (long)&mark); fflush(stdout); \
         if (read(0, &byte, 1) == 1) mark = 2; printf(\"changed\\nready\\n\"); fflush(stdout); \
         return read(0, &byte, 1) < 0; }",
        &[],
        &[],
    );
    let mark = u64::from_str_radix(&program.until_ready()[0], 16).unwrap();
    let copy = copied(program.pid()).unwrap();
    program.input.as_mut().unwrap().write_all(b"x").unwrap();
    assert_eq!(program.until_ready(), ["changed"]);
    assert_eq!(Live::new(program.pid()).word(mark), Some(2));
    assert_eq!(Live::new(copy.pid()).word(mark), Some(1));
}

#[test]
fn a_busy_program_can_be_copied() {
    let mut program = Program::start(
        "gcc",
        "#include <stdio.h>\n#include <sys/select.h>\nvolatile long words;\nint main(void) { \
         struct timeval none = {0, 0}; fd_set in; printf(\"ready\\n\"); fflush(stdout); \
         do { for (long i = 0; i < 100000000; i++) words++; FD_ZERO(&in); FD_SET(0, &in); } \
         while (select(1, &in, 0, 0, &none) == 0); printf(\"%ld\\n\", words % 100000000); return 0; }",
        &[],
        &[],
    );
    program.until_ready();
    for _ in 0..20 {
        assert!(copied(program.pid()).unwrap().end().unwrap().is_reaped);
    }
    assert_eq!(program.finish(), ["0"]);
}

#[test]
fn a_program_that_is_stopped_can_be_copied_and_stays_so() {
    let (mut program, marks) = watching();
    let pid = program.pid();
    // SAFETY: no memory is involved; the child is not reaped yet.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
    while !state(pid).contains("T (stopped)") {
        thread::yield_now();
    }
    let copy = copied(pid).unwrap();
    assert_eq!(Live::new(copy.pid()).word(marks + 8), Some(1));
    assert!(copy.end().unwrap().is_reaped);
    while !state(pid).contains("T (stopped)") {
        thread::yield_now();
    }
    // SAFETY: as above.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGCONT) };
    let end = program.finish();
    assert!(end[1].starts_with("1 signals, "), "{end:?}");
    assert_eq!(
        (&end[..1], &end[2..]),
        (&seen(&NOTHING[..1])[..], &seen(&NOTHING[2..])[..])
    );
}

#[test]
fn a_program_that_ends_first_leaves_nothing() {
    let (mut program, _) = watching();
    let copy = copied(program.pid()).unwrap();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let number = copy.pid();
    assert!(copy.end().unwrap().is_reaped);
    // Its heir takes it away.
    while !tasks::has_ended(number) {
        thread::yield_now();
    }
}

#[test]
fn a_program_that_may_not_fork_is_refused() {
    let source = "#include <stdio.h>\n#include <sys/resource.h>\n#include <unistd.h>\nint main(void) { char byte; \
                  struct rlimit none = {0, 0}; setrlimit(RLIMIT_NPROC, &none); if (setuid(12345)) return 1; \
                  printf(\"ready\\n\"); fflush(stdout); printf(\"%ld\\n\", read(0, &byte, 1)); return 0; }";
    let mut program = Program::start("gcc", source, &[], &[]);
    program.until_ready();
    let error = copied(program.pid()).err().unwrap().to_string();
    assert!(error.contains("RLIMIT_NPROC"), "{error}");
    assert_eq!(program.finish(), ["1"]);
}

/// A filter that kills the process for the call must not see it.
#[test]
fn a_filter_of_system_calls_harms_nobody() {
    let source = "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stddef.h>\n#include <stdio.h>\n\
                  #include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\nint main(void) { char byte;\n\
                  struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),\n\
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};\n\
                  struct sock_fprog program = {4, filter};\n\
                  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;\n\
                  printf(\"ready\\n\"); fflush(stdout); printf(\"%ld\\n\", read(0, &byte, 1)); return 0; }";
    let mut program = Program::start("gcc", source, &[], &[]);
    program.until_ready();
    match copied(program.pid()) {
        Ok(copy) => assert!(copy.end().unwrap().is_reaped),
        Err(error) => assert!(error.to_string().contains("seccomp"), "{error}"),
    }
    assert_eq!(program.finish(), ["1"]);
}
