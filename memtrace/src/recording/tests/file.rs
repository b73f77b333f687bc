//! The file itself: its size, its owner and mode, the files it may replace, and the files that are
//! refused.

use std::{
    fs,
    os::fd::AsRawFd,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use super::*;

/// A small finished recording at `path`.
fn write_small(path: &Path) {
    let mut writer = Writer::create(path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    writer
        .interval(&interval(1, vec![(key(1, 1), site(64, 1))]))
        .unwrap();
    writer.finish(START + SECOND).unwrap();
}

#[test]
fn a_recording_in_progress_is_not_replaced() {
    let (_directory, path) = temporary();
    let writer = Writer::create(&path, false, &meta()).unwrap();
    for refused in [
        Writer::create(&path, true, &meta()).map(|_| ()),
        may_record(&path, true),
        write_private(&path, true, b"x"),
    ] {
        assert!(
            matches!(refused, Err(Error::BeingRecorded { .. })),
            "{refused:?}"
        );
    }
    writer.finish(START + SECOND).unwrap();
    // Another recording may take its place now, but nothing else.
    let refused = write_private(&path, true, b"x");
    assert!(
        matches!(refused, Err(Error::IsRecording { .. })),
        "{refused:?}"
    );
    assert!(Recording::open(&path).is_ok());
    may_record(&path, true).unwrap();
    Writer::create(&path, true, &meta()).unwrap();
}

/// Whether some descriptor of this process other than `file` has the lock of a writer (SQLite's RESERVED_BYTE).
fn is_being_written(file: &fs::File) -> bool {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0x4000_0001,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `lock` lives.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    assert_eq!(done, 0);
    i32::from(lock.l_type) != libc::F_UNLCK
}

#[test]
fn reading_in_the_process_of_the_writer_leaves_its_locks() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.interval(&interval(1, vec![])).unwrap();
    let file = fs::File::open(&path).unwrap();
    writer.process(&process(1, None)).unwrap();
    assert!(is_being_written(&file));
    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    assert!(snapshot.processes.is_empty(), "not committed yet");
    assert!(is_being_written(&file));
}

#[test]
fn processes_that_are_not_traced_are_read_as_they_were_written() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let of = |tgid, why: &str| Untraced {
        tgid,
        comm: "python3".into(),
        cmdline: vec!["python3".into(), "train.py".into()],
        why: why.into(),
    };
    for (tgid, why) in [(813, "--no-follow"), (812, "denied"), (813, "once more")] {
        writer.untraced(&of(tgid, why)).unwrap();
    }
    writer.finish(START + SECOND).unwrap();
    let read = Recording::open(&path).unwrap().untraced().unwrap();
    assert_eq!(read, [of(812, "denied"), of(813, "once more")]);
}

#[test]
fn the_start_of_a_recording_replaces_the_creation_of_its_file() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let begun = Meta {
        started_ns: START + 5 * SECOND,
        ..meta()
    };
    writer.begins(&begun).unwrap();
    writer.finish(START + 6 * SECOND).unwrap();
    assert_eq!(*Recording::open(&path).unwrap().meta(), begun);
}

fn open_error(path: &Path) -> String {
    Recording::open(path).unwrap_err().to_string()
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
        error.contains("No such file") && error.contains("choose another place"),
        "{error}"
    );
}

#[test]
fn force_replaces_no_program() {
    let (_directory, path) = temporary();
    let program = b"#!/usr/bin/env python3\nprint('trained for a week')\n";
    fs::write(&path, program).unwrap();
    let error = Writer::create(&path, true, &meta()).unwrap_err();
    assert!(error.to_string().contains("is not a recording"), "{error}");
    let error = may_record(&path, true).unwrap_err();
    assert!(error.to_string().contains("is not a recording"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), program);
    // Such as mktemp(1) makes.
    fs::write(&path, b"").unwrap();
    may_record(&path, true).unwrap();
    drop(Writer::create(&path, true, &meta()).unwrap());
    drop(Writer::create(&path, true, &meta()).unwrap());
}

#[test]
fn under_sudo_the_file_belongs_to_the_invoking_user_as_root() {
    if std::env::var_os("SUDO_UID").is_none() {
        // The environment of a process is one for all threads: a child has its own.
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact"])
            .arg("recording::tests::file::under_sudo_the_file_belongs_to_the_invoking_user_as_root")
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

#[test]
fn files_other_than_recordings_are_refused_with_a_reason() {
    let (directory, path) = temporary();
    let error = open_error(&path);
    assert!(error.contains("No such file"), "{error}");
    let error = open_error(directory.path());
    assert!(error.contains("a directory"), "{error}");
    fs::write(&path, b"").unwrap();
    assert!(open_error(&path).contains("is empty"));
    fs::write(&path, b"#!/bin/sh\n").unwrap();
    assert!(open_error(&path).contains("not an SQLite database"));
    fs::remove_file(&path).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign
        .execute_batch("CREATE TABLE recording (meta)")
        .unwrap();
    assert!(open_error(&path).contains("the SQLite database of another program"));
}

#[test]
fn a_recording_of_another_version_names_its_reader() {
    let (_directory, path) = temporary();
    write_small(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute(
            "UPDATE recording SET min_reader = ?1",
            [schema::VERSION + 1],
        )
        .unwrap();
    for (version, parts) in [
        (
            schema::VERSION + 1,
            ["written by a newer memtrace", "with a newer memtrace"],
        ),
        (
            schema::OLDEST - 1,
            ["written by an older memtrace", "or record again"],
        ),
        (-1, ["damaged", "schema version -1"]),
    ] {
        connection
            .pragma_update(None, "user_version", version)
            .unwrap();
        let error = open_error(&path);
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
        assert!(error.contains(&version.to_string()), "{error}");
    }
}

#[test]
fn a_recording_truncated_anywhere_is_an_error() {
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
