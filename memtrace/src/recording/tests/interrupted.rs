//! Recording while something interferes: a kill, a reader, a full disk.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use super::*;

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
        .arg("recording::tests::interrupted::a_killed_recorder_leaves_its_last_interval")
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

    let recording = Recording::open(&path).unwrap();
    let snapshot = recording.snapshot(At::Default).unwrap();
    assert_eq!(snapshot.finished_ns, None);
    let last = (snapshot.time_ns.unwrap() - START) / SECOND;
    assert_eq!(recording.cut_off().unwrap(), Some(last * SECOND));
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
fn a_full_disk_keeps_committed_data_as_root() {
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
