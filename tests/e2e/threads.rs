//! Stacks of threads with different names are distinguished, even if their frames are equal.

use memtrace_tests::{
    Fixture,
    record::{self, Record},
    targets,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Bytes of a block of the target.
const BLOCK: u64 = 100;

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    key: String,
    live_bytes: u64,
}

#[test]
fn names_of_threads() {
    let fixture = Fixture::new();
    let program = targets::program("thread_names.c");
    // The longest name that the kernel keeps; two threads of one name; one that has none.
    let threads = [
        ("worker", 1000),
        ("fifteen-letters", 20),
        ("pool", 300),
        ("pool", 4),
        ("", 7),
    ];
    let mut arguments = vec![program.display().to_string()];
    for (name, blocks) in threads {
        arguments.extend([name.to_owned(), blocks.to_string()]);
    }
    let main = "main thread";
    arguments.extend([main.to_owned(), 50.to_string()]);
    let file = fixture.path("launched.mtr");
    let report = Record::launch(&fixture, &[], &arguments).finish(5);

    let mut truth: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for (name, blocks) in threads.into_iter().chain([(main, 50)]) {
        let name = Some(name).filter(|name| !name.is_empty());
        *truth.entry(name).or_default() += blocks;
    }
    let sites = report.sites.iter();
    let sites = sites.filter(|site| site.layer == "heap");
    let sites: Vec<_> = sites.filter(|site| site.name() == Some("block")).collect();
    let mut found: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for site in &sites {
        assert_eq!(site.counts.alloc_bytes, site.counts.alloc_count * BLOCK);
        assert!(site.is_complete(), "{site:#?}");
        *found.entry(site.thread.as_deref()).or_default() += site.counts.alloc_count;
    }
    assert_eq!(found, truth);
    assert_eq!(sites.len(), truth.len(), "threads of one name are one");
    report.expect_no_losses(0);

    let arguments = "--at end --layer heap --by thread --format json";
    let arguments = ["report", file.to_str().expect("a path of ASCII")]
        .into_iter()
        .chain(arguments.split(' '));
    let reported = record::memtrace(arguments).stdout;
    let reported: Groups = serde_json::from_str(&reported).expect("the report is JSON");
    for (name, blocks) in truth {
        let key = name.unwrap_or("[unknown thread]");
        let group = reported.groups.iter().find(|group| group.key == key);
        let live_bytes = group.map(|group| group.live_bytes);
        assert!(live_bytes >= Some(blocks * BLOCK), "{key}: {live_bytes:?}");
    }
}
