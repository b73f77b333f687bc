//! Processes that were folded into a group.

use super::*;

fn count(recording: &Recording, sql: &str) -> i64 {
    let connection = recording.connection();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn group(id: u32, folded: u64) -> ProcessRow {
    ProcessRow {
        tgid: 0,
        ended_ns: Some(START + 3 * SECOND),
        folded: Some(folded),
        ..process(id, None)
    }
}

/// Processes 1 (runs on), 2 and 3 (folded into 9 in the second interval), with the same sites.
fn recording() -> (tempfile::TempDir, Recording) {
    let (directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    for id in [1, 2, 3] {
        writer.process(&process(id, None)).unwrap();
        let fact = Fact {
            process: Some(ProcessId(id)),
            field: "affinity.count".into(),
            value: "2".into(),
        };
        writer.facts(&[fact]).unwrap();
    }
    let sites = |bytes| [1, 2, 3].map(|id| (key(id, 7), site(bytes, 1))).to_vec();
    let with_layers = |mut interval: Interval, ids: &[u32], bytes| {
        let layer = |id: &u32| ((ProcessId(*id), Layer::Heap), layer(bytes, bytes, 0));
        interval.changes.layers = ids.iter().map(layer).collect();
        let memory = |id: &u32| (ProcessId(*id), MemorySample::default());
        interval.memory = ids.iter().map(memory).collect();
        interval
    };
    let mut first = with_layers(interval(1, sites(64)), &[1, 2, 3], 64);
    let births = Births {
        rows: vec![(START + SECOND, 64, 1)],
        ..Births::default()
    };
    first.births = [1, 2].map(|id| (key(id, 7), births.clone())).to_vec();
    writer.interval(&first).unwrap();
    writer.process(&group(9, 2)).unwrap();
    let mut whole = site(50, 1);
    (whole.at_peak_bytes, whole.at_peak_count) = (300, 2);
    let mut second = with_layers(interval(2, vec![(key(9, 7), whole)]), &[1, 9], 300);
    second.folded = [2, 3].map(ProcessId).to_vec();
    writer.interval(&second).unwrap();
    // The group continues.
    writer.process(&group(9, 5)).unwrap();
    let third = interval(3, vec![(key(9, 7), site(60, 3)), (key(1, 7), site(70, 2))]);
    writer.interval(&with_layers(third, &[1, 9], 400)).unwrap();
    writer.finish(START + 3 * SECOND).unwrap();
    let recording = Recording::open(&path).unwrap();
    (directory, recording)
}

#[test]
fn folded_processes_leave_no_rows_and_groups_no_history() {
    let (_directory, recording) = recording();
    for (table, rows) in [
        ("process", 2),
        ("fact", 1),
        ("site", 2),
        ("births", 1),
        // Rows of process 1; of the group its last one.
        ("site_history", 2),
        ("layer_history", 4),
        ("memory", 5),
    ] {
        let found = count(&recording, &format!("SELECT count(*) FROM {table}"));
        assert_eq!(found, rows, "{table}");
    }
    let of_group = "SELECT interval FROM layer_history WHERE process = 9";
    assert_eq!(count(&recording, of_group), 3);
}

#[test]
fn a_group_is_shown_at_the_peak_of_its_largest_or_at_all_ends() {
    let (_directory, recording) = recording();
    let site_of = |at| {
        let snapshot = recording.snapshot(at).unwrap();
        assert_eq!(snapshot.left_out, 0);
        let group = snapshot.processes.iter().find(|p| p.row.is_group());
        let group = group.unwrap().clone();
        let mut sites = snapshot.sites.iter();
        let site = sites.find(|site| site.key == key(9, 7)).unwrap();
        (group.row.processes(), group.moment, site.totals.live_bytes)
    };
    assert_eq!(site_of(At::End), (5, Moment::End, 60));
    assert_eq!(
        site_of(At::Default),
        (5, Moment::Peak, 0),
        "none of the third"
    );
}

#[test]
fn groups_are_unknown_and_counted_at_a_past_time() {
    let (_directory, recording) = recording();
    let snapshot = recording.snapshot(At::Time(2 * SECOND)).unwrap();
    assert_eq!(snapshot.left_out, 5);
    let ids: Vec<_> = snapshot.processes.iter().map(|p| p.row.id.0).collect();
    assert_eq!(ids, [1]);
    assert!(snapshot.layers.iter().all(|layer| layer.process.0 == 1));
    assert!(snapshot.sites.iter().all(|site| site.key.process.0 == 1));
}

#[test]
fn late_rows_of_a_process_stay_and_the_rest_is_removed() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let last = SHORT_LIVED.as_secs() + 5;
    for second in 1..=last {
        let sites = vec![(key(1, 7), site(second, 1))];
        writer.interval(&interval(second, sites)).unwrap();
    }
    // So old a process is never folded.
    assert_eq!(writer.written.kept_rows(), 0);
    writer.finish(START + last * SECOND).unwrap();
}
