//! Recording while something interferes: a kill, a reader, a full disk.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
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

#[test]
fn an_unfinished_interval_is_replaced_by_the_next() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let write = |writer: &mut Writer, n, unfinished, rss| {
        let sample = MemorySample {
            pss: rss,
            ..MemorySample::default()
        };
        let interval = Interval {
            unfinished,
            memory: vec![(ProcessId(1), sample)],
            ..interval(n, vec![(key(1, n as u32), site(n, 1))])
        };
        writer.interval(&interval).unwrap();
        let recording = Recording::open(&path).unwrap();
        let ends = recording.intervals().unwrap();
        let ends: Vec<u64> = ends.iter().map(|(_, end)| (end - START) / SECOND).collect();
        (ends, recording.memory(ProcessId(1)).unwrap())
    };
    let rss = |memory: &[(u64, MemorySample)]| memory.last().unwrap().1.pss;
    assert_eq!(write(&mut writer, 1, false, Some(1)).0, [1]);
    let (ends, memory) = write(&mut writer, 2, true, Some(2));
    assert_eq!((ends, rss(&memory)), (vec![1, 2], Some(2)));
    // Figures that only an earlier one has stay.
    let (ends, memory) = write(&mut writer, 3, true, None);
    assert_eq!((ends, rss(&memory)), (vec![1, 3], Some(2)));
    let (ends, memory) = write(&mut writer, 4, false, Some(4));
    assert_eq!((ends, rss(&memory)), (vec![1, 4], Some(4)));
    assert_eq!(write(&mut writer, 5, false, None).0, [1, 4, 5]);
    writer.finish(START + 5 * SECOND).unwrap();
    let sites = Recording::open(&path)
        .unwrap()
        .snapshot(At::End)
        .unwrap()
        .sites;
    assert_eq!(sites.len(), 5);
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

/// The journal of a recorder whose SQLite had one, at the moment of its last commit.
fn interrupted_with_a_journal(path: &Path) -> PathBuf {
    let writer = Writer::create(path, false, &meta()).unwrap();
    writer.finish(START).unwrap();
    let journal = create::with_suffix(path, "-journal");
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .pragma_update(None, "user_version", schema::WITHOUT_JOURNAL - 1)
        .unwrap();
    connection.pragma_update(None, "cache_size", 1).unwrap();
    // The changes spill into the file, and the journal has the pages of before.
    connection
        .execute_batch(
            "BEGIN; UPDATE recording SET finished_ns = 7;
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5000)
             INSERT INTO string SELECT x, 'some text of some length ' || x FROM n;",
        )
        .unwrap();
    let copies = [path, &journal].map(|file| std::fs::read(file).unwrap());
    drop(connection);
    std::fs::write(path, &copies[0]).unwrap();
    std::fs::write(&journal, &copies[1]).unwrap();
    journal
}

#[test]
fn the_journal_of_an_older_recorder_is_followed_if_it_is_its_own_as_root() {
    let (_directory, path) = temporary();
    let journal = interrupted_with_a_journal(&path);
    let before = std::fs::read(&path).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.cut_off().unwrap(), None, "not 7");
    assert_eq!(
        recording.snapshot(At::End).unwrap().finished_ns,
        Some(START)
    );
    assert!(
        std::fs::read(&path).unwrap() == before && journal.exists(),
        "nothing is written"
    );

    std::os::unix::fs::chown(&journal, Some(65534), None).unwrap();
    let refused = Recording::open(&path).unwrap_err().to_string();
    assert!(
        refused.contains("-journal` belongs to user 65534"),
        "{refused}"
    );
    std::fs::remove_file(&journal).unwrap();
    std::os::unix::fs::symlink("/dev/null", &journal).unwrap();
    let refused = Recording::open(&path).unwrap_err().to_string();
    assert!(refused.contains("is a symbolic link"), "{refused}");
    std::fs::remove_file(&journal).unwrap();
    let status = Command::new("mkfifo").arg(&journal).status().unwrap();
    assert!(status.success());
    let refused = Recording::open(&path).unwrap_err().to_string();
    assert!(refused.contains("is not a regular file"), "{refused}");
}

#[test]
fn a_journal_beside_a_present_recording_is_not_looked_at() {
    let (_directory, path) = temporary();
    let journal = create::with_suffix(&path, "-journal");
    assert!(
        Command::new("mkfifo")
            .arg(&journal)
            .status()
            .unwrap()
            .success()
    );
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.interval(&interval(1, vec![])).unwrap();
    assert_eq!(
        Recording::open(&path).unwrap().intervals().unwrap().len(),
        1
    );
    writer.finish(START + SECOND).unwrap();
    assert_eq!(
        Recording::open(&path).unwrap().intervals().unwrap().len(),
        1
    );
}

/// Whatever part of a commit has reached the file when power fails, it reads as before or after it.
#[test]
fn a_commit_is_whole_or_not_there() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let sites = |n: u64| (0..200).map(|stack| (key(1, stack), site(n, 1))).collect();
    writer.interval(&interval(1, sites(1))).unwrap();
    let before = std::fs::read(&path).unwrap();
    writer.interval(&interval(2, sites(2))).unwrap();
    let after = std::fs::read(&path).unwrap();
    drop(writer);

    let page = 4096;
    let changed: std::collections::BTreeMap<u64, Box<[u8]>> = (0..before.len() / page)
        .map(|index| index * page..(index + 1) * page)
        .filter(|range| before[range.clone()] != after[range.clone()])
        .map(|range| (range.start as u64, after[range].into()))
        .collect();
    assert!(changed.len() > 3);
    // New pages and the log are there; the others are not.
    let mut logged = after.clone();
    logged[..before.len()].copy_from_slice(&before);
    std::fs::write(&path, &logged).unwrap();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    crate::recording::file::append_log(&file, after.len() as u64, &changed).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let live = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
        let mut bytes: Vec<u64> = snapshot
            .sites
            .iter()
            .map(|site| site.totals.live_bytes)
            .collect();
        bytes.dedup();
        bytes
    };
    assert_eq!(live(&before), [1]);
    // The log is being written.
    for length in (before.len()..whole.len()).step_by(5001) {
        assert_eq!(live(&whole[..length]), [1], "{length}");
    }
    // Some of it never arrived.
    for hole in (after.len()..whole.len()).step_by(5001) {
        let mut torn = whole.clone();
        torn[hole] ^= 1;
        assert_eq!(live(&torn), [1], "{hole}");
    }
    // Pages are being written in their places, in any order.
    let mut written = whole.clone();
    assert_eq!(live(&written), [2]);
    for (offset, page) in changed.iter().rev() {
        let at = *offset as usize;
        written[at..at + page.len() / 2].copy_from_slice(&page[..page.len() / 2]);
        assert_eq!(live(&written), [2], "{offset}");
        written[at..at + page.len()].copy_from_slice(page);
        assert_eq!(live(&written), [2], "{offset}");
    }
    assert_eq!(live(&after), [2]);
}
