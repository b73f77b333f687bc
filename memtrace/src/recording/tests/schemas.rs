//! Recordings of other versions: `schemas/N.mtr.zst` was made by the memtrace whose schema had the
//! number N.

use super::*;
use std::fs;

/// A recording of that version, if there is one.
fn recorded_by(version: i64, path: &std::path::Path) -> bool {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/recording/tests/schemas");
    let Ok(compressed) = fs::File::open(folder.join(format!("{version}.mtr.zst"))) else {
        return false;
    };
    fs::write(path, zstd::decode_all(compressed).unwrap()).unwrap();
    true
}

#[test]
fn recordings_of_every_supported_schema_are_read() {
    let (_directory, path) = temporary();
    for version in schema::OLDEST..=schema::VERSION {
        assert!(
            recorded_by(version, &path),
            "record something small with this version: tests/schemas/{version}.mtr.zst is missing"
        );
        let recording = Recording::open(&path).unwrap();
        assert!(recording.meta().version.starts_with("0."));
        for at in [At::End, At::Default] {
            let snapshot = recording.snapshot(at).unwrap();
            assert!(snapshot.finished_ns.is_some(), "{version}");
            assert!(!snapshot.processes.is_empty(), "{version}");
            assert!(
                snapshot
                    .sites
                    .iter()
                    .any(|site| site.key.layer == Layer::Heap)
            );
            let layers = &snapshot.layers;
            assert!(
                layers
                    .iter()
                    .any(|layer| layer.totals.totals.alloc_count > 0)
            );
        }
        assert!(!recording.facts().unwrap().is_empty(), "{version}");
        // A feature of later versions.
        assert!(recording.ages(i64::MAX).unwrap().is_none(), "{version}");
        recording.untraced().unwrap();
        recording.holders().unwrap();
        recording.types().unwrap();
    }
}

fn tables(connection: &rusqlite::Connection) -> Vec<String> {
    let mut names = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        .unwrap();
    let names = names.query_map([], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

#[test]
fn the_recording_of_the_present_schema_has_all_its_tables() {
    let (_directory, path) = temporary();
    assert!(recorded_by(schema::VERSION, &path));
    let recorded = rusqlite::Connection::open(&path).unwrap();
    let present = rusqlite::Connection::open_in_memory().unwrap();
    present.execute_batch(&schema::statements()).unwrap();
    assert_eq!(tables(&recorded), tables(&present), "record it again");
}

#[test]
fn a_newer_recording_is_read_unless_it_requires_more() {
    let (_directory, path) = temporary();
    assert!(recorded_by(schema::VERSION, &path));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "ALTER TABLE site ADD COLUMN later INTEGER; CREATE TABLE later (id INTEGER);",
        )
        .unwrap();
    connection
        .pragma_update(None, "user_version", schema::VERSION + 1)
        .unwrap();
    let sites = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    assert!(!sites.sites.is_empty());
    connection
        .execute(
            "UPDATE recording SET min_reader = ?1",
            [schema::VERSION + 1],
        )
        .unwrap();
    let refused = Recording::open(&path).unwrap_err();
    assert!(matches!(refused, Error::Newer { .. }), "{refused}");
}
