//! Names are read by a process of their own, which may be killed.

use std::{fs, net::TcpListener, process::Command, time::Duration};

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture,
    kernel::children,
    record::{self, BEGUN, Record},
    report::Report,
    running::Running,
    targets, until,
};

/// Names that do not come would be waited for much longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// The processes that read symbols for a recording.
fn readers(record: &Record) -> Vec<u32> {
    let is_reader = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        comm.trim() == "name-symbols" && !state.contains(") Z")
    };
    let children = children(record.running.pid()).into_iter();
    children.filter(is_reader).collect()
}

fn has(report: &Report, site: &str) -> bool {
    let mut sites = report.sites.iter();
    sites.any(|of| of.layer == "heap" && of.name() == Some(site))
}

#[test]
fn names_survive_the_process_that_reads_them() {
    let fixture = Fixture::new();
    let options = ["--interval", "50ms"];
    let mut record = Record::launch(&fixture, &options, [targets::program("named.c")]);
    record.running.await_stdout("ready");
    record.running.send("1");
    let named = |site: &'static str| {
        let file = record.file.clone();
        move || {
            record::try_report(&file)
                .ok()
                .filter(|report| has(report, site))
        }
    };
    until("the name of the first site", named("first"));
    let reader = until("the process that reads symbols", || readers(&record).pop());
    // It has no rights and little memory.
    let status = fs::read_to_string(format!("/proc/{reader}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000004"), "{status}");
    let limits = fs::read_to_string(format!("/proc/{reader}/limits")).unwrap();
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"));
    assert!(
        data.is_some_and(|line| line.contains("268435456")),
        "{limits}"
    );

    // SAFETY: no memory is involved.
    unsafe { libc::kill(reader.cast_signed(), libc::SIGKILL) };
    // Another one may be there at once.
    until("its end", || {
        (!readers(&record).contains(&reader)).then_some(())
    });
    record.running.send("2");
    until("the name of the second site", named("second"));
    assert_ne!(readers(&record), [reader]);
    record.running.close_stdin();
    let report = record.finish(7);
    assert!(has(&report, "first") && has(&report, "second"));
    assert_eq!(report.loss(Reason::NamesBudget), 0);
}

/// Whoever waits for a name does not hear of a signal.
#[test]
fn a_signal_ends_a_recording_whose_names_do_not_come() {
    let fixture = Fixture::new();
    let mut target = Running::start(&mut Command::new(targets::program("named.c")));
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &["--interval", "50ms"]);
    target.send("1\n");
    let reader = until("the process that reads symbols", || readers(&record).pop());
    // SAFETY: no memory is involved.
    unsafe { libc::kill(reader.cast_signed(), libc::SIGSTOP) };
    end(record, &target);
}

/// A server of debug information that accepts and says nothing.
#[test]
fn a_signal_ends_a_recording_whose_server_does_not_answer() {
    let fixture = Fixture::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let program = targets::build("gcc", &["-O1", "-s"], &["named.c"], &[]);
    let mut target = Running::start(&mut Command::new(program));
    target.await_stdout("ready");
    let file = fixture.path("x.mtr");
    let mut command = record::command(["record", "--debuginfod", "-p"]);
    command
        .arg(target.pid().to_string())
        .arg("-o")
        .arg(&file)
        .env("DEBUGINFOD_CACHE_PATH", fixture.path("cache"))
        .env(
            "DEBUGINFOD_URLS",
            format!("http://{}", server.local_addr().unwrap()),
        );
    let running = Running::start(&mut command);
    running.await_stderr(BEGUN);
    target.send("1\n");
    let connection = until("a request", || server.accept().ok());
    end(Record { running, file }, &target);
    drop(connection);
}

/// Ends a recording as Ctrl-C does. Its last names are not waited for.
fn end(record: Record, target: &Running) {
    record.running.signal(libc::SIGINT);
    record.running.wait_within(DEADLINE).expect_code(0);
    let report = record::report(&record.file);
    assert!(
        report
            .processes
            .iter()
            .any(|process| process.tgid == target.pid())
    );
}
