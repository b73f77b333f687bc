//! A recording is written with [`Writer`] and must read back as the ledger's
//! rules say, whatever happened to the file in between.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::*;
use crate::{
    event::Layer,
    ledger::{LIFETIME_BUCKETS, LayerTotals, SiteTotals, Totals},
    symbolize::{Frame, FrameKind},
};
use memtrace_common::loss::Reason;

const START: u64 = 1_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn meta() -> Meta {
    Meta {
        version: "0.1.0".into(),
        host: "host".into(),
        kernel: "6.18.0".into(),
        command: vec!["memtrace".into(), "record".into()],
        started_unix_ns: 1_700_000_000 * SECOND,
        started_ns: START,
        interval_ns: SECOND,
        page_size: 4096,
    }
}

fn process(id: u32, ended_ns: Option<u64>) -> ProcessRow {
    ProcessRow {
        id: ProcessId(id),
        tgid: 100 + id,
        ppid: 1,
        origin: Origin::Attached,
        comm: "leaker".into(),
        cmdline: vec!["./leaker".into(), "two words".into()],
        started_ns: START,
        ended_ns,
        exit_status: ended_ns.map(|_| 256),
        rss_at_start: Some(8 << 20),
    }
}

fn key(process: u32, stack: u32) -> SiteKey {
    SiteKey {
        process: ProcessId(process),
        layer: Layer::Heap,
        stack: StackId(stack),
        by_allocator: false,
    }
}

fn site(live_bytes: u64, live_count: u64) -> SiteTotals {
    let mut lifetimes = [0; LIFETIME_BUCKETS];
    lifetimes[20] = 3;
    SiteTotals {
        totals: Totals {
            live_bytes,
            live_count,
            alloc_bytes: 2 * live_bytes,
            alloc_count: 2 * live_count,
            ..Totals::default()
        },
        at_peak_bytes: 0,
        at_peak_count: 0,
        peak_epoch: 0,
        first_ns: START + 1,
        last_ns: START + 2,
        lifetimes,
    }
}

fn layer(live_bytes: u64, peak_bytes: u64, peak_epoch: u64) -> LayerTotals {
    LayerTotals {
        totals: Totals {
            live_bytes,
            peak_bytes,
            peak_ns: START + SECOND,
            ..Totals::default()
        },
        peak_epoch,
        before_attach_bytes: 4096,
        ..LayerTotals::default()
    }
}

fn frame(function: &str) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: Some(function.into()),
        module: Some("/bin/leaker".into()),
        build_id: Some("abcd".into()),
        file_offset: Some(0x1234),
        file: Some("leaker.c".into()),
        line: Some(7),
        inlined: function == "inner",
        unresolved: None,
    }
}

/// Interval number `n`, ending `n` seconds after the start.
fn interval(n: u64, sites: Vec<(SiteKey, SiteTotals)>) -> Interval {
    Interval {
        time_ns: START + n * SECOND,
        changes: crate::ledger::Changes {
            sites,
            layers: vec![],
        },
        losses: Reason::ALL.map(|reason| (reason, 0)).to_vec(),
        emitted: 10 * n,
        received: 10 * n,
        ..Interval::default()
    }
}

fn temporary() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.mtr");
    (directory, path)
}

/// A small finished recording at `path`.
fn write_small(path: &Path) {
    let mut writer = Writer::create(path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    writer
        .interval(&interval(1, vec![(key(1, 1), site(64, 1))]))
        .unwrap();
    writer.finish(START + SECOND).unwrap();
}

fn open_error(path: &Path) -> String {
    Recording::open(path).unwrap_err().to_string()
}

#[test]
fn what_was_written_reads_back() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let frames = [frame("inner"), frame("outer"), frame("main")];
    let row = StackRow {
        id: StackId(7),
        truncated: true,
    };
    writer.stack(&row, &frames).unwrap();
    let sample = MemorySample {
        rss_anon: Some(5),
        vm_pte: Some(0),
        children: Some(2),
        ..MemorySample::default()
    };
    let births = Births {
        rows: vec![(START + 5, 60, 2), (START + 900, 4, 1)],
    };
    let mut first = interval(1, vec![(key(1, 7), site(64, 3))]);
    first.changes.layers = vec![((ProcessId(1), Layer::Heap), layer(64, 64, 1))];
    first.memory = vec![(ProcessId(1), sample)];
    first.births = vec![(key(1, 7), births.clone())];
    writer.interval(&first).unwrap();
    let ended = process(1, Some(START + 2 * SECOND));
    writer.process(&ended).unwrap();
    let mut second = interval(2, vec![]);
    second.losses[Reason::RingFullFree as usize].1 = 9;
    writer.interval(&second).unwrap();
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.meta(), &meta());
    let memory = recording.memory(ProcessId(1)).unwrap();
    assert_eq!(memory, [(START + SECOND, sample)]);
    let snapshot = recording.snapshot(At::End).unwrap();
    assert_eq!(snapshot.processes[0].row, ended);
    assert_eq!(snapshot.layers[0].totals, layer(64, 64, 1));
    assert_eq!(snapshot.layers[0].layer, Layer::Heap);
    let got = &snapshot.sites[0];
    assert_eq!(got.key, key(1, 7));
    assert_eq!(got.totals, site(64, 3).totals);
    assert_eq!(got.lifetimes, Some(site(64, 3).lifetimes));
    assert_eq!((got.first_ns, got.last_ns), (START + 1, Some(START + 2)));
    assert_eq!(got.births.as_ref().unwrap().births, births);
    assert!(got.stack.truncated);
    assert_eq!(got.stack.frames, frames);
    assert_eq!(snapshot.losses.len(), Reason::ALL.len());
    let lost: Vec<_> = snapshot.losses.iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(lost, [&(Reason::RingFullFree, 9)]);
    assert_eq!((snapshot.emitted, snapshot.received), (20, 20));
    assert_eq!(snapshot.time_ns, Some(START + 2 * SECOND));
    assert_eq!(snapshot.finished_ns, Some(START + 3 * SECOND));
}

#[test]
fn the_peak_is_exact_whether_or_not_a_site_changed_since() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    // Peak number 3 of the layer: 100 (noted by the site as it shrank to 10), 50 (untouched since
    // peak 1, at which it held 20), and nothing at a site first used after the peak.
    let mut shrunk = site(10, 1);
    (
        shrunk.at_peak_bytes,
        shrunk.at_peak_count,
        shrunk.peak_epoch,
    ) = (100, 4, 3);
    let mut untouched = site(50, 5);
    (
        untouched.at_peak_bytes,
        untouched.at_peak_count,
        untouched.peak_epoch,
    ) = (20, 2, 1);
    let mut later = site(30, 3);
    (later.at_peak_bytes, later.at_peak_count, later.peak_epoch) = (0, 0, 3);
    let sites = vec![
        (key(1, 1), shrunk),
        (key(1, 2), untouched),
        (key(1, 3), later),
    ];
    let mut only = interval(1, sites);
    only.changes.layers = vec![((ProcessId(1), Layer::Heap), layer(90, 150, 3))];
    writer.interval(&only).unwrap();
    writer.finish(START + SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let live = |at| {
        let snapshot = recording.snapshot(at).unwrap();
        let sites: Vec<_> = snapshot
            .sites
            .iter()
            .map(|site| (site.totals.live_bytes, site.totals.live_count))
            .collect();
        let totals = snapshot.layers[0].totals.totals;
        (sites, totals.live_bytes, totals.live_count)
    };
    assert_eq!(live(At::Peak), (vec![(100, 4), (50, 5), (0, 0)], 150, 9));
    assert_eq!(live(At::End), (vec![(10, 1), (50, 5), (30, 3)], 90, 0));
}

#[test]
fn by_default_an_ended_process_is_shown_at_its_peak() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    writer.process(&process(2, Some(START + SECOND))).unwrap();
    let mut running = site(10, 1);
    running.at_peak_bytes = 99;
    let mut ended = site(0, 0);
    ended.at_peak_bytes = 77;
    let mut only = interval(1, vec![(key(1, 1), running), (key(2, 1), ended)]);
    only.changes.layers = vec![
        ((ProcessId(1), Layer::Heap), layer(10, 99, 0)),
        ((ProcessId(2), Layer::Heap), layer(0, 77, 0)),
    ];
    writer.interval(&only).unwrap();
    writer.finish(START + SECOND).unwrap();

    let snapshot = Recording::open(&path)
        .unwrap()
        .snapshot(At::Default)
        .unwrap();
    let moments: Vec<_> = snapshot.processes.iter().map(|p| p.moment).collect();
    assert_eq!(moments, [Moment::End, Moment::Peak]);
    let live: Vec<_> = snapshot.sites.iter().map(|s| s.totals.live_bytes).collect();
    assert_eq!(live, [10, 77]);
}

#[test]
fn a_time_shows_the_last_interval_before_it() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    for n in 1..=3 {
        let mut next = interval(n, vec![(key(1, 1), site(100 * n, n))]);
        if n == 2 {
            next.changes.sites.push((key(1, 2), site(5, 1)));
        }
        next.changes.layers = vec![((ProcessId(1), Layer::Heap), layer(100 * n, 300, n))];
        next.losses[0].1 = n;
        writer.interval(&next).unwrap();
    }
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let at = |ns| recording.snapshot(At::Time(ns)).unwrap();
    let live = |snapshot: &Snapshot| {
        let sites = snapshot.sites.iter().map(|s| s.totals.live_bytes);
        sites.collect::<Vec<_>>()
    };
    assert_eq!(live(&at(SECOND / 2)), [0; 0]);
    let second = at(SECOND * 5 / 2);
    assert_eq!(live(&at(SECOND)), [100]);
    assert_eq!(live(&second), [200, 5]);
    assert_eq!(second.layers[0].totals.totals.live_bytes, 200);
    assert_eq!(second.losses[0].1, 2);
    assert_eq!(second.emitted, 20);
    assert_eq!(second.processes[0].moment, Moment::Time(START + 2 * SECOND));
    assert_eq!(second.sites[0].lifetimes, None);
    assert_eq!(live(&at(3 * SECOND)), [300, 5]);
    assert!(at(3 * SECOND).sites[0].lifetimes.is_some());
    let late = recording.snapshot(At::Time(4 * SECOND)).unwrap_err();
    assert!(late.to_string().contains("expected at most 3.0s"), "{late}");
}

#[test]
fn a_new_births_scan_replaces_the_old_one() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let births = |ns| Births {
        rows: vec![(ns, 1, 1)],
    };
    let sites = vec![(key(1, 1), site(1, 1)), (key(1, 2), site(1, 1))];
    let mut first = interval(1, sites);
    first.births = vec![(key(1, 1), births(5)), (key(1, 2), births(6))];
    writer.interval(&first).unwrap();
    let mut second = interval(2, vec![]);
    second.births = vec![(key(1, 2), births(7))];
    writer.interval(&second).unwrap();
    drop(writer);

    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    assert_eq!(snapshot.sites[0].births, None);
    let kept = snapshot.sites[1].births.clone().unwrap();
    assert_eq!((kept.time_ns, kept.births), (START + 2 * SECOND, births(7)));
}

#[test]
fn an_unchanged_interval_costs_little() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let sites = (0..200).map(|n| (key(1, n), site(1 << 20, 1000))).collect();
    writer.interval(&interval(1, sites)).unwrap();
    let before = fs::metadata(&path).unwrap().len();
    for n in 2..=101 {
        writer.interval(&interval(n, vec![])).unwrap();
    }
    let grown = fs::metadata(&path).unwrap().len() - before;
    assert!(grown <= 100 * 64, "100 empty intervals took {grown} bytes");
}

#[test]
fn the_file_is_private_and_nothing_is_overwritten_unasked() {
    let (_directory, path) = temporary();
    write_small(&path);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let before = fs::read(&path).unwrap();
    let error = Writer::create(&path, false, &meta())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("exists already") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(
        create::with_suffix(&path, "-journal"),
        b"left by a killed recorder",
    )
    .unwrap();
    drop(Writer::create(&path, true, &meta()).unwrap());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    assert!(snapshot.processes.is_empty());
    let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(names, 1, "nothing but the recording is left");
}

#[test]
fn force_replaces_regular_files_only() {
    let (directory, path) = temporary();
    let target = directory.path().join("target");
    fs::write(&target, b"precious").unwrap();
    symlink(&target, &path).unwrap();
    for force in [false, true] {
        let error = Writer::create(&path, force, &meta())
            .unwrap_err()
            .to_string();
        assert!(error.contains("symbolic link"), "{error}");
        let error = Writer::create(directory.path(), force, &meta()).unwrap_err();
        assert!(error.to_string().contains("a directory"), "{error}");
    }
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    let missing = directory.path().join("missing/test.mtr");
    let error = Writer::create(&missing, false, &meta())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("No such file") && error.contains("-o"),
        "{error}"
    );
}

#[test]
fn what_is_no_recording_is_refused_with_its_reason() {
    let (directory, path) = temporary();
    let error = open_error(&path);
    assert!(error.contains("No such file"), "{error}");
    let error = open_error(directory.path());
    assert!(error.contains("a directory"), "{error}");
    fs::write(&path, b"").unwrap();
    assert!(open_error(&path).contains("is empty"));
    fs::write(&path, b"#!/bin/sh\n").unwrap();
    assert!(open_error(&path).contains("not an SQLite file"));
    fs::remove_file(&path).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign
        .execute_batch("CREATE TABLE recording (meta)")
        .unwrap();
    assert!(open_error(&path).contains("another program's SQLite file"));
}

#[test]
fn a_newer_recording_says_so() {
    let (_directory, path) = temporary();
    write_small(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    let error = open_error(&path);
    assert!(
        error.contains("newer memtrace") && error.contains('2'),
        "{error}"
    );
}

#[test]
fn a_truncated_recording_is_an_error_wherever_it_ends() {
    let (_directory, path) = temporary();
    write_small(&path);
    let whole = fs::read(&path).unwrap();
    for length in [40, 511, 600, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = Recording::open(&path)
            .and_then(|recording| recording.snapshot(At::End))
            .unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{length}: {error}");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let (_directory, path) = temporary();
    write_small(&path);
    let whole = fs::read(&path).unwrap();
    let mut errors = 0;
    for position in (100..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[position] ^= 0xff;
        fs::write(&path, damaged).unwrap();
        let read = Recording::open(&path).and_then(|recording| recording.snapshot(At::Default));
        errors += u32::from(read.is_err());
    }
    assert!(errors > 0, "some damage must be noticed");
}

/// Set for the child process of [`a_killed_recorder_leaves_its_last_interval`].
const VICTIM: &str = "MEMTRACE_TEST_VICTIM";

#[test]
fn a_killed_recorder_leaves_its_last_interval() {
    if let Ok(path) = std::env::var(VICTIM) {
        record_until_killed(Path::new(&path));
    }
    let (_directory, path) = temporary();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("recording::tests::a_killed_recorder_leaves_its_last_interval")
        .env(VICTIM, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let committed = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(|line| line.unwrap())
        .filter_map(|line| line.strip_prefix("committed ")?.parse::<u64>().ok())
        .find(|n| *n == 25)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    let snapshot = Recording::open(&path)
        .unwrap()
        .snapshot(At::Default)
        .unwrap();
    assert_eq!(snapshot.finished_ns, None);
    let last = (snapshot.time_ns.unwrap() - START) / SECOND;
    assert!(
        last >= committed,
        "interval {last} is there, {committed} was committed"
    );
    assert_eq!(snapshot.sites.len(), 500);
    for site in &snapshot.sites {
        assert_eq!(
            site.totals.live_bytes, last,
            "all of one interval, or nothing of it"
        );
    }
}

/// Writes intervals as fast as it can, each with all sites set to its number.
fn record_until_killed(path: &Path) -> ! {
    let mut writer = Writer::create(path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    for n in 1.. {
        let sites = (0..500).map(|stack| (key(1, stack), site(n, 1))).collect();
        writer.interval(&interval(n, sites)).unwrap();
        println!("committed {n}");
    }
    unreachable!("it is killed before the numbers run out")
}

#[test]
fn a_reader_delays_an_interval_but_fails_none() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.interval(&interval(1, vec![])).unwrap();
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT * FROM interval")
        .unwrap();
    let mut rows = reader.prepare("SELECT id FROM interval").unwrap();
    let mut rows = rows.query([]).unwrap();
    rows.next().unwrap();
    writer.interval(&interval(2, vec![])).unwrap();
    drop(rows);
    reader.execute_batch("COMMIT").unwrap();
    writer.interval(&interval(3, vec![])).unwrap();
    let snapshot = Recording::open(&path)
        .unwrap()
        .snapshot(At::Time(2 * SECOND))
        .unwrap();
    assert_eq!(snapshot.time_ns, Some(START + 2 * SECOND));
}

/// A file system of 256 KiB. Needs root, as do memtrace and its tests.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> SmallDisk {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "memtrace-test"])
            .arg(disk.0.path())
            .status()
            .unwrap();
        assert!(status.success(), "mounting a tmpfs needs root");
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status().unwrap();
        assert!(unmounted.success() || std::thread::panicking());
    }
}

#[test]
fn a_full_disk_keeps_what_was_committed() {
    let disk = SmallDisk::mount();
    let path = disk.0.path().join("test.mtr");
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let mut committed = 0;
    let error = loop {
        let sites = (0..100)
            .map(|stack| (key(1, stack), site(committed + 1, 1)))
            .collect();
        match writer.interval(&interval(committed + 1, sites)) {
            Ok(()) => committed += 1,
            Err(error) => break error.to_string(),
        }
        assert!(committed < 10_000, "the disk never filled");
    };
    for part in ["test.mtr", "full", "stays readable", "free some space"] {
        assert!(error.contains(part), "{error}");
    }
    let after = writer.interval(&interval(99, vec![])).unwrap_err();
    assert!(matches!(after, Error::FailedBefore { .. }), "{after}");
    drop(writer);
    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    assert_eq!(snapshot.time_ns, Some(START + committed * SECOND));
    assert!(
        snapshot
            .sites
            .iter()
            .all(|site| site.totals.live_bytes == committed)
    );
}

#[test]
fn under_sudo_the_file_belongs_to_the_invoking_user() {
    if std::env::var_os("SUDO_UID").is_none() {
        // The environment of a process is one for all threads: a child has its own.
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact"])
            .arg("recording::tests::under_sudo_the_file_belongs_to_the_invoking_user")
            .envs([("SUDO_UID", "12345"), ("SUDO_GID", "54321")])
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let (_directory, path) = temporary();
    for force in [false, true] {
        drop(Writer::create(&path, force, &meta()).unwrap());
        let metadata = fs::metadata(&path).unwrap();
        let expected = ["SUDO_UID", "SUDO_GID"].map(|id| std::env::var(id).unwrap());
        let owner = [metadata.uid(), metadata.gid()].map(|id| id.to_string());
        assert_eq!(owner, expected);
    }
}
