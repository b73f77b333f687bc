//! Holders of the blocks of sites.

use super::*;
use crate::recording::{
    Collector, StepKind, Unknown, Unsearched, WayKind,
    fixture::{heap_site, history, holders, step, tree},
};

#[test]
fn holders_read_back() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let sites = [1, 2, 3].map(|stack| (heap_site(stack), site(64, 1)));
    writer.interval(&interval(1, sites.to_vec())).unwrap();
    let every_kind = Path {
        steps: StepKind::ALL
            .into_iter()
            .map(|kind| step(kind, "name", "type"))
            .collect(),
        container: None,
        container_number: None,
        expression: None,
    };
    let mut bounded = tree();
    bounded.steps[1].length = Some(120);
    bounded.steps[1].limit = Some(128);
    let first = holders(
        heap_site(1),
        64,
        vec![
            (40, WayKind::Path(history(Some(heap_site(2))))),
            (10, WayKind::Path(bounded)),
            (8, WayKind::Path(every_kind)),
            (3, WayKind::Cycle(Collector::On, tree())),
            (3, WayKind::Cycle(Collector::Off, Path::of(vec![]))),
            (3, WayKind::Cycle(Collector::Frozen, Path::of(vec![]))),
            (3, WayKind::Surplus(tree())),
            (3, WayKind::Hidden(tree())),
            (3, WayKind::LostWith(tree())),
            (3, WayKind::LostCycle(tree())),
            (2, WayKind::Nothing),
        ],
    );
    let mut unknown = holders(heap_site(3), 12, vec![]);
    unknown.unknown = Some(Unknown::Unclear);
    writer.holders(&first).unwrap();
    writer.holders(&unknown).unwrap();
    writer.finish(START + SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.holders().unwrap(), [first.clone(), unknown]);
    let at_the_end = recording.snapshot(At::Default).unwrap().holders;
    assert_eq!(at_the_end.get(&heap_site(1)), Some(&first));
    let before = recording.snapshot(At::Time(0)).unwrap();
    assert!(before.holders.is_empty());
}

#[test]
fn a_later_search_replaces_an_earlier_one() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let sites = vec![(heap_site(1), site(64, 1))];
    writer.interval(&interval(1, sites)).unwrap();
    let ways = vec![
        (40, WayKind::Path(history(None))),
        (3, WayKind::Path(tree())),
    ];
    let early = Holders {
        seen: Some(std::time::Duration::from_millis(12_300)),
        ..holders(heap_site(1), 64, ways)
    };
    writer.holders(&early).unwrap();
    // Commits it.
    writer.interval(&interval(2, Vec::new())).unwrap();
    let read = || Recording::open(&path).unwrap().holders().unwrap();
    assert_eq!(read(), [early]);
    let late = holders(heap_site(1), 64, vec![(40, WayKind::Path(tree()))]);
    writer.holders(&late).unwrap();
    writer.finish(START + SECOND).unwrap();
    assert_eq!(read(), [late]);
}

#[test]
fn sites_that_are_not_recorded_are_left_out() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let sites = vec![(heap_site(1), site(64, 1))];
    writer.interval(&interval(1, sites)).unwrap();
    let way = |buffer| vec![(1, WayKind::Path(history(buffer)))];
    let of = |site, buffer| holders(heap_site(site), 1, way(buffer));
    writer.holders(&of(9, None)).unwrap();
    writer.holders(&of(1, Some(heap_site(9)))).unwrap();
    writer.finish(START + SECOND).unwrap();
    let read = Recording::open(&path).unwrap().holders().unwrap();
    assert_eq!(read, [of(1, None)]);
}

#[test]
fn a_path_that_makes_no_sense_is_an_error() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let sites = vec![(heap_site(1), site(64, 1))];
    writer.interval(&interval(1, sites)).unwrap();
    let way = vec![(1, WayKind::Path(history(None)))];
    writer.holders(&holders(heap_site(1), 1, way)).unwrap();
    writer.finish(START + SECOND).unwrap();
    let change = |sql: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute(sql, []).unwrap();
        let recording = Recording::open(&path).unwrap();
        let error = recording.holders().unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    };
    change("UPDATE holders_way SET container = 7");
    change("UPDATE holders_way SET container = -1");
    change("UPDATE holders_way SET container = 2, held = 'otherwise'");
    change("UPDATE holders_way SET held = 'path', container = 'list'");
}

#[test]
fn reasons_for_no_search_read_back() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let reasons = [
        Unsearched::NotRequested,
        Unsearched::CutShort,
        Unsearched::Failed("process 7 has ended".into()),
    ];
    for (process, why) in (1..).zip(&reasons) {
        writer.unsearched(ProcessId(process), why).unwrap();
    }
    writer.finish(START + SECOND).unwrap();
    let read = Recording::open(&path).unwrap().unsearched().unwrap();
    let read = [1, 2, 3].map(|process| read[&ProcessId(process)].clone());
    assert_eq!(read, reasons);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let change = "UPDATE unsearched SET why = 'otherwise'";
    connection.execute(change, []).unwrap();
    let error = Recording::open(&path).unwrap().unsearched().unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}
