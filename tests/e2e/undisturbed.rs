//! A traced program behaves as it does untraced: same output, same exit status. Each case is a program of
//! `targets/undisturbed/`; the table has its output.

use memtrace_tests::{
    Fixture,
    descendants::Descendants,
    record::{Record, command, report},
    running::Running,
    targets,
    terminal::{self, CTRL_C, CTRL_Z, Terminal},
    undisturbed::{
        Case,
        Tracing::{self, Attached, Launched},
    },
};
use std::process::Command;

/// Launched by memtrace, and attached to before it begins.
const BOTH: &[Tracing] = &[Launched, Attached];
const LAUNCHED: &[Tracing] = &[Launched];

/// A test for each: its program, how it is traced, its exit status and its output. With `gaps`, another tracer takes
/// part, and memtrace leaves its processes alone.
macro_rules! undisturbed {
    ($($name:ident: $program:literal, $tracings:ident, $status:literal, $stdout:literal $(, $gaps:ident)?;)*) => {
        $(#[test] fn $name() {
            let gaps = false $(|| stringify!($gaps) == "gaps")?;
            Case { program: $program, status: $status, stdout: $stdout, gaps }.run($tracings);
        })*
    };
}

undisturbed! {
    // Programs that watch their child and stop themselves when it is stopped.
    sudo: "sudo.sh", BOTH, 3, "root\n";
    sudo_in_a_terminal: "sudo_terminal.sh", LAUNCHED, 3, "nobody\n";
    su: "su.sh", BOTH, 3, "nobody\n";
    su_in_a_terminal: "su_terminal.sh", LAUNCHED, 3, "nobody\n";
    child_of_su: "su_child.sh", BOTH, 3, "True\n";
    runuser: "runuser.sh", LAUNCHED, 3, "nobody\n";
    script: "script.sh", BOTH, 5, "one\ntwo\n";

    // Shells, and programs that start many processes.
    job_control: "job_control.sh", BOTH, 0, "first 1\nfrom a subshell\nsecond 4\nA\nB\npipeline 0 0 0\n1 2 3\nforeground 6\n2\nbackground 7\n";
    job_that_stops: "stopped_job.sh", BOTH, 0, "first 1\nfrom a subshell\nsecond 4\nA\nB\npipeline 0 0 0\n1 2 3\nforeground 6\n2\nbackground 7\nstopped 147\n[1]+  Stopped                 sh -c 'kill -STOP $$; exit 8'\n[1]+ sh -c 'kill -STOP $$; exit 8' &\ncontinued 8\nstopped in the foreground 147\nsh -c 'kill -STOP $$; exit 9'\ncontinued 9\n";
    traps: "traps.sh", BOTH, 3, "waited 4\nsubstituted\nchildren 12\nINT\nINT\nEXIT 3\n";
    make: "make.sh", LAUNCHED, 2, " 12 made\n";
    git: "git.sh", LAUNCHED, 1, "count: 0\nin-pack: 9\npacks: 1\n9c4bd6cae56e2f7aa0fd88b1425253c10e589b70 commit 3\n5be8c850d570e58068b0e2e239a4c521ccae2a93 commit 2\n41b4d4651dc20bfab2f68233d1c9f88aa5c61456 commit 1\n";
    parallel: "parallel.sh", LAUNCHED, 2, "1 1\n2 2\n3 0\n4 1\n5 2\n6 0\n7 1\n8 2\n9 0\n10 1\n11 2\n12 0\n0 0\n";
    xargs: "xargs.sh", LAUNCHED, 123, "484\n529\n576\n0 0 0 0\n";
    nohup: "nohup.sh", LAUNCHED, 3, "survived\n";
    timeout: "timeout.sh", LAUNCHED, 124, "TERM 124\nKILL 137\nin time 3\nTERM ignored 137\n";
    setsid: "setsid.sh", LAUNCHED, 3, "leads\n";
    tmux: "tmux.sh", BOTH, 0, "work 1\n3\nwindow\n";

    // Servers that fork their workers, attached to once they answer.
    multiprocessing_fork: "start_method.py fork", LAUNCHED, 0, "[0, 1, 4, 9, 16, 25, 36, 49]\n9\n";
    multiprocessing_spawn: "start_method.py spawn", LAUNCHED, 0, "[0, 1, 4, 9, 16, 25, 36, 49]\n9\n";
    multiprocessing_forkserver: "start_method.py forkserver", LAUNCHED, 0, "[0, 1, 4, 9, 16, 25, 36, 49]\n9\n";
    gunicorn: "gunicorn.sh", BOTH, 0, "first\nsecond\nended 0\n";
    postgresql: "postgresql.sh", BOTH, 1, "started 0\n20000100000\nstopped 0\n0\n";
    redis: "redis.sh", BOTH, 0, "\nBackground saving started\nrdb_last_bgsave_status:ok\n20000 keys read\n20000\nended 0\n";
    nginx: "nginx.sh", BOTH, 1, "first\nsecond\nended 0\n0\n";

    // Other tracers, before memtrace, inside and after it.
    strace_inside: "strace_inside.sh", LAUNCHED, 1, "one\ntwo\nstatus 3\n3\n0\n", gaps;
    gdb_inside: "gdb_inside.sh", LAUNCHED, 0, "Breakpoint 1 at ADDRESS: file debugged.c, line 8.\n[Detaching after fork from child process N]\n\nBreakpoint 1, work (n=2) at debugged.c:8\n8		char *text = malloc(100);\n#0  work (n=2) at debugged.c:8\n#1  ADDRESS in main () at debugged.c:22\nwork 2\n[Inferior 1 (process N) exited with code 03]\n", gaps;
    strace_before: "strace_first.sh", BOTH, 1, "one\nstatus 3\n2\n0\n", gaps;
    gdb_before: "gdb_first.sh", BOTH, 1, "one\ntarget 3\ngdb 0\nexited with code 03\n0\n", gaps;
    strace_after: "strace_second.sh", BOTH, 1, "one\ntarget 3\nstrace 0\n1\n0\n", gaps;
    gdb_after: "gdb_second.sh", BOTH, 1, "one\ntarget 3\ngdb 0\nexited with code 03\n0\n", gaps;
    sanitizers: "sanitized.sh", BOTH, 0, "leak, 0 threads: 7\nDirect leak of 5000 byte(s) in 50 object(s) allocated from:\n#1 ADDRESS in leak\nSUMMARY: LeakSanitizer: 5000 byte(s) leaked in 50 allocation(s).\nleak, 3 threads: 7\nDirect leak of 5000 byte(s) in 50 object(s) allocated from:\n#1 ADDRESS in leak\nSUMMARY: LeakSanitizer: 5000 byte(s) leaked in 50 allocation(s).\naddress, 0 threads: 7\nDirect leak of 5000 byte(s) in 50 object(s) allocated from:\n#1 ADDRESS in leak\nSUMMARY: AddressSanitizer: 5000 byte(s) leaked in 50 allocation(s).\naddress, 3 threads: 7\nDirect leak of 5000 byte(s) in 50 object(s) allocated from:\n#1 ADDRESS in leak\nSUMMARY: AddressSanitizer: 5000 byte(s) leaked in 50 allocation(s).\n", gaps;
    own_tracer: "own_tracer.c", BOTH, 0, "traced 20 times of 20, interrupted 0\n", gaps;
    traceme: "traceme.c", BOTH, 0, "stopped by Stopped (signal)\nstopped by Trace/breakpoint trap\nchild 3 after 2 stops\nitself 0\n", gaps;

    // Privilege and confinement.
    ping: "ping.sh", BOTH, 0, "1 received\n";
    setuid: "setuid.sh", LAUNCHED, 3, "user 65534, effective 0, secure 1\nuser 65534, effective 0, secure 1\n";
    seccomp: "seccomp.c", BOTH, 0, "blocks 2000, child 3\na call that is not allowed: signal 31\n";
    bwrap: "bwrap.sh", LAUNCHED, 3, "0\n2\nbwrap\nsh\nps\n";
    chroot: "chroot.sh", LAUNCHED, 3, "work 2\nstatus 3\nwork 2\n";
    user_namespace: "user_namespace.sh", LAUNCHED, 4, "0\n 0 0 1\nstatus 3\n0\ninside\n";
    pid_namespace: "pid_namespace.sh", LAUNCHED, 3, "1\n 1 sh\n 3 ps\n";

    // The view of parents, threads and signal handlers.
    waits: "waits.c", BOTH, 0, "exits 8, kills 4, others 0\nsignals 12: exited 8, killed 4, stopped 0, continued 0, trapped 0\n";
    stops: "stops.c", BOTH, 0, "by itself: stopped 19\nrounds while stopped: 0\nSIGCONT: continued 0\nSIGSTOP: stopped 19\nrounds while stopped: 0\nSIGCONT: continued 0\nSIGTSTP: stopped 20\nrounds while stopped: 0\nSIGCONT: continued 0\nSIGSTOP: stopped 19\nrounds while stopped: 0\nSIGKILL: killed 9\n";
    spawns: "spawns.c", LAUNCHED, 0, "vfork 30, posix_spawn 30, missing 10, system 40, popen 10\n";
    thread_forks: "thread_forks.c", BOTH, 0, "thread 0: 15\nthread 1: 15\nthread 2: 15\nthread 3: 15\n";
    dlopens: "dlopens.c", BOTH, 0, "thread 0: 25\nthread 1: 25\nthread 2: 25\nthread 3: 25\n";
    exec_by_a_thread: "../thread_exec.c", LAUNCHED, 5, "";
    signals: "signals.c", BOTH, 0, "thread 0: 300 queued, values 45150, 300 preempted\nthread 1: 300 queued, values 45150, 300 preempted\n";
    signal_waits: "signal_waits.c", BOTH, 0, "sigwaitinfo: 200, in order 1, interrupted 0\nsignalfd: 20, right 20, interrupted 0\n";
    interrupted: "interrupted.c poll select nanosleep", LAUNCHED, 0, "poll interrupted 0 times\nselect interrupted 0 times\nnanosleep interrupted 0 times\n";
    interrupted_not_restarted: "interrupted.c blocked epoll_wait sigtimedwait msgrcv", BOTH, 0, "epoll_wait interrupted 0 times\nsigtimedwait interrupted 0 times\nmsgrcv interrupted 0 times\n";
}

/// Jobs that a user stops and continues in an interactive shell: the terminal's content.
fn jobs(shell: &mut Terminal) -> String {
    let start = shell.seen();
    shell.send("cat\n");
    for (word, key) in [("one", CTRL_Z), ("two", CTRL_Z), ("three", CTRL_C)] {
        // The terminal echoes the input, and so does cat: it is in the foreground by then.
        shell.send(&format!("{word}\n"));
        shell.await_text(&format!("{word}\r\n{word}\r\n"));
        shell.send(key);
        shell.await_prompt();
        if key == CTRL_Z {
            shell.run("jobs");
            shell.send("fg\n");
            shell.await_text("cat\r\n");
        }
    }
    shell.run("echo status $?");

    shell.send("sh -c 'echo up; read line <gate; exit 4'\n");
    shell.await_text("up\r\n");
    shell.send(CTRL_Z);
    shell.await_prompt();
    shell.run("bg");
    shell.run("echo >gate; wait %1; echo status $?");
    shell.run("jobs");

    shell.run("sh -c 'kill -STOP $$; exit 5'");
    shell.run("fg");
    shell.run("echo status $?");
    shell.run("seq 3 | tac | /bin/cat; echo ${PIPESTATUS[*]}");
    shell.run("for i in 1 2 3 4 5; do /bin/echo $(/bin/echo $i); done");
    shell.since(start)
}

/// Such a shell, traced or not, in a folder with a fifo.
#[track_caller]
fn interactive(fixture: &Fixture, command: &mut Command) -> Terminal {
    let mut shell = Terminal::start(command.current_dir(fixture.folder()));
    shell.await_prompt();
    shell
}

#[track_caller]
fn end(mut shell: Terminal) {
    shell.send("exit 6\n");
    assert_eq!(shell.end().code(), Some(6));
}

/// The untraced output of [`jobs`].
#[track_caller]
fn untraced_jobs(fixture: &Fixture) -> String {
    let mut mkfifo = Command::new("mkfifo");
    Running::start(mkfifo.arg(fixture.path("gate")))
        .wait()
        .expect_code(0);
    let mut shell = interactive(fixture, &mut terminal::shell());
    let untraced = jobs(&mut shell);
    for line in [
        "[1]+  Stopped                 cat\n",
        "status 130\n",
        "status 4\n",
        "status 5\n",
        "0 0 0\n",
    ] {
        assert!(untraced.contains(line), "{untraced}");
    }
    end(shell);
    untraced
}

#[test]
fn interactive_shell_attached_to() {
    let fixture = Fixture::new();
    let descendants = Descendants::new();
    let untraced = untraced_jobs(&fixture);
    let mut shell = interactive(&fixture, &mut terminal::shell());
    let record = Record::attach(&fixture, shell.pid(), &[]);
    assert_eq!(jobs(&mut shell), untraced);
    end(shell);
    record.finish(0).expect_followed();
    descendants.expect_none();
}

#[test]
fn interactive_shell_launched() {
    let fixture = Fixture::new();
    let descendants = Descendants::new();
    let untraced = untraced_jobs(&fixture);
    let file = fixture.path("launched.mtr");
    let mut memtrace = command(["record", "-o"]);
    memtrace.arg(&file).arg("--");
    let shell = terminal::shell();
    memtrace.arg(shell.get_program()).args(shell.get_args());
    let mut shell = interactive(&fixture, &mut memtrace);
    assert_eq!(jobs(&mut shell), untraced);
    end(shell);
    report(&file).expect_followed();
    descendants.expect_none();
}

/// Its blocks are counted, also after LeakSanitizer has taken the threads over.
#[test]
fn leak_checked() {
    let fixture = Fixture::new();
    let checked = targets::leak_checked("undisturbed/sanitized.c");
    let file = fixture.path("checked.mtr");
    let mut memtrace = command(["record", "-o"]);
    memtrace.arg(&file).arg("--").arg(checked).arg("3");
    let finished = Running::start(&mut memtrace).wait().expect_code(23);
    assert!(!finished.stderr.contains("refused"), "{finished:#?}");
    let report = report(&file);
    report.expect_followed();
    let heap = report.sites.iter().filter(|site| site.layer == "heap");
    let leaks = heap.filter(|site| (site.counts.live_count, site.counts.live_bytes) == (50, 5000));
    assert_eq!(leaks.count(), 1, "{:#?}", report.sites);
}
