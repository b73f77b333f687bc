//! Stacks: a tree of callers, and the names of its places.

use super::*;

#[test]
fn stacks_share_callers_and_a_location_named_later_is_named_in_all() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    for (id, name) in (1..).zip(["main", "f", "g"]) {
        writer.location(LocationId(id), &[frame(name)]).unwrap();
    }
    // main → f → g, and main → g → f, written in two runs.
    let first = [node(0, 1), node(1, 2), node(2, 3)];
    writer.nodes(NodeId(1), &first).unwrap();
    writer.nodes(NodeId(4), &[node(1, 3), node(4, 2)]).unwrap();
    for (id, leaf) in [(1, 3), (2, 5)] {
        let row = StackRow {
            id: StackId(id),
            node: NodeId(leaf),
            end: End::Complete,
            thread: None,
        };
        writer.stack(&row).unwrap();
    }
    writer.interval(&interval(1, vec![])).unwrap();
    let named = [frame("inner"), frame("renamed")];
    writer.location(LocationId(2), &named).unwrap();
    writer.finish(START + SECOND).unwrap();

    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    let functions = |id| {
        let frames = snapshot.stacks.get(StackId(id)).frames();
        let functions = frames.map(|frame| frame.function.as_deref().unwrap());
        functions.collect::<Vec<_>>()
    };
    assert_eq!(functions(1), ["g", "inner", "renamed", "main"]);
    assert_eq!(functions(2), ["inner", "renamed", "g", "main"]);
    assert!(snapshot.stacks.get(StackId(3)).is_empty());
}

/// Damage must neither crash a reader nor send it round in circles.
#[test]
fn a_malformed_tree_is_an_error() {
    for (damage, what) in [
        // Its own parent; one before the first.
        ("UPDATE node SET nodes = x'0001'", "nodes"),
        ("UPDATE node SET nodes = x'0201'", "nodes"),
        // Half a node; half a number.
        ("UPDATE node SET nodes = x'010101'", "nodes"),
        ("UPDATE node SET nodes = x'01ff'", "nodes"),
        ("UPDATE node SET first = 2", "first"),
        ("UPDATE location SET id = 7", "location"),
        ("UPDATE location SET frames = x'63'", "frames"),
        ("UPDATE stack SET thread = 99", "thread"),
    ] {
        let (_directory, path) = temporary();
        let mut writer = Writer::create(&path, false, &meta()).unwrap();
        writer.location(LocationId(1), &[frame("main")]).unwrap();
        writer.nodes(NodeId(1), &[node(0, 1)]).unwrap();
        let row = StackRow {
            id: StackId(1),
            node: NodeId(1),
            end: End::Complete,
            thread: Some("worker".into()),
        };
        writer.stack(&row).unwrap();
        writer.finish(START).unwrap();
        let recording = Recording::open(&path).unwrap();
        assert!(recording.snapshot(At::End).is_ok());
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute(damage, []).unwrap();
        let error = recording.snapshot(At::End).unwrap_err().to_string();
        assert!(error.contains(&format!("`{what}`")), "{damage}: {error}");
    }
}

/// A missing stack has no frames: the rest of the recording can still be read.
#[test]
fn a_stack_of_a_node_or_location_that_was_lost_is_cut_short() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.location(LocationId(1), &[frame("main")]).unwrap();
    let nodes = [node(0, 1), node(1, 9)];
    writer.nodes(NodeId(1), &nodes).unwrap();
    for (id, leaf) in [(1, 2), (2, 77)] {
        let row = StackRow {
            id: StackId(id),
            node: NodeId(leaf),
            end: End::Complete,
            thread: None,
        };
        writer.stack(&row).unwrap();
    }
    writer.finish(START).unwrap();
    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    let frames = |id| snapshot.stacks.get(StackId(id)).frames().count();
    assert_eq!((frames(1), frames(2)), (1, 0));
}
