//! First screens of recorded programs: the report of `tests/snapshots/NAME.mtr.zst` begins with
//! `tests/snapshots/NAME.txt`. `cargo xtask verdicts --snapshots` makes the recordings; with
//! `MEMTRACE_SNAPSHOTS=write` this test rewrites the texts.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::{
    analysis::{
        suppressions::Suppressions,
        system::SystemSeries,
        verdict::{assert_agrees, diagnose},
    },
    recording::{At, Recording},
    render::{TextOptions, diagnosis, text},
};

/// Classes that a program which leaks must get, and the same program without the faulty line must not.
const ALARMS: [Class; 6] = [
    Class::Leak,
    Class::MappingLeak,
    Class::ThreadLeak,
    Class::GpuLeak,
    Class::Pinned,
    Class::Retention,
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/snapshots")
}

pub(in crate::render) fn read(name: &str) -> (tempfile::TempDir, Recording) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording.mtr");
    let compressed = fs::File::open(self::folder().join(format!("{name}.mtr.zst"))).unwrap();
    fs::write(&path, zstd::decode_all(compressed).unwrap()).unwrap();
    let recording = Recording::open(&path).unwrap();
    (folder, recording)
}

/// The first screen of a recording; both commands begin with it.
fn first_screen(name: &str) -> String {
    let (_folder, recording) = read(name);
    let machine = SystemSeries::read(&recording).unwrap();
    let found = diagnose(&recording, &machine, &Suppressions::default()).unwrap();
    assert_agrees(&found);
    let filter = Filter::default();
    let of_class: Vec<Class> = findings(&found, &filter)
        .iter()
        .map(|finding| finding.verdict.class)
        .collect();
    let alarm = of_class.iter().find(|class| ALARMS.contains(class));
    if name.ends_with("-leak") {
        assert_eq!(alarm, of_class.first(), "{name}");
    }
    if name.ends_with("-ok") {
        assert_eq!(alarm, None, "{name}");
    }
    let mut screen = Vec::new();
    section(&mut screen, &found, &filter).unwrap();
    let screen = String::from_utf8(screen).unwrap();
    assert_classes(name, &screen, &of_class);

    let mut diagnosed = Vec::new();
    diagnosis(&mut diagnosed, &found, None, &filter).unwrap();
    let mut reported = Vec::new();
    let snapshot = recording.snapshot(At::Default).unwrap();
    text(&mut reported, &snapshot, &TextOptions::default(), &found).unwrap();
    let whole = format!("{screen}\n");
    assert!(diagnosed.starts_with(whole.as_bytes()), "{name}");
    assert!(reported.starts_with(whole.as_bytes()), "{name}");
    screen
}

/// Checks that its headlines name these classes, in this order, and that it fits on a screen.
fn assert_classes(name: &str, screen: &str, of_class: &[Class]) {
    assert!(screen.lines().count() <= LINES, "{name}:\n{screen}");
    let long = screen.lines().find(|line| line.chars().count() > COLUMNS);
    assert_eq!(long, None, "{name}");
    let headlines = screen.lines().filter(|line| !line.starts_with(' '));
    let named: Vec<&str> = headlines
        .filter_map(|line| Some(line.split_once(" (grade ")?.0))
        .collect();
    let expected: Vec<&str> = of_class.iter().map(|class| class.name()).collect();
    assert!(
        !named.is_empty() && expected.starts_with(&named),
        "{name}: {expected:?}\n{screen}"
    );
}

/// The differences, line by line; empty if there are none.
fn difference(name: &str, expected: &str, got: &str) -> String {
    if expected == got {
        return String::new();
    }
    let (expected, got): (Vec<_>, Vec<_>) = (expected.lines().collect(), got.lines().collect());
    let mut text = format!("\n{name}\n");
    for n in 0..expected.len().max(got.len()) {
        match (expected.get(n), got.get(n)) {
            (Some(a), Some(b)) if a == b => text += &format!("   {a}\n"),
            (was, is) => {
                text.extend(was.map(|line| format!("  -{line}\n")));
                text.extend(is.map(|line| format!("  +{line}\n")));
            }
        }
    }
    text
}

/// Names of the recordings.
fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.strip_suffix(".mtr.zst")?.to_owned()))
        .collect();
    names.sort();
    names
}

#[test]
fn recorded_programs_begin_with_their_first_screen() {
    let names = names();
    assert!(!names.is_empty());
    let writes = std::env::var("MEMTRACE_SNAPSHOTS").is_ok_and(|what| what == "write");
    let next = AtomicUsize::new(0);
    let compare = || {
        let mut differences = String::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = folder().join(format!("{name}.txt"));
            let screen = first_screen(name);
            if writes {
                fs::write(path, screen).unwrap();
            } else {
                let expected = fs::read_to_string(path).unwrap_or_default();
                differences += &difference(name, &expected, &screen);
            }
        }
        differences
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let differences: String = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(compare)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        differences.is_empty(),
        "first screens differ; if they are as they should be, run this test with \
         MEMTRACE_SNAPSHOTS=write and review the changes:\n{differences}"
    );
}
