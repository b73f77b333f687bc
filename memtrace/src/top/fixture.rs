//! A reading for the tests.

use super::reading::{Judged, Reading};
use crate::{
    analysis::{
        courses::{Courses, layer_key},
        verdict::{Class, Grade, How, Keeper},
    },
    frames::Frame,
    frames::fixture::{native, python},
    hash::FastMap,
    ledger::SiteKey,
    recording::{
        Snapshot, WayKind,
        fixture::{history, holders},
    },
    view::fixture,
};
use memtrace_common::unwind::End;
use std::collections::HashMap;

const SECOND: u64 = 1_000_000_000;

/// The site that grows: 1 MiB in 4 blocks.
pub(super) fn growing(snapshot: &Snapshot) -> SiteKey {
    snapshot.sites[1].key
}

/// Of the fixture's snapshot: ten seconds, in which one site grows by 100 KiB each second. Both processes run, and no
/// event was lost.
pub(super) fn reading() -> Reading {
    let mut snapshot = fixture::snapshot();
    snapshot.losses.iter_mut().for_each(|(_, count)| *count = 0);
    snapshot.processes[1].row.ended_ns = None;
    let start = snapshot.meta.started_ns;
    let times_ns: Vec<u64> = (1..=10).map(|second| start + second * SECOND).collect();
    let first = (1 << 20) - 9 * (100 << 10);
    let course = (0..10usize).map(|second| {
        let change = if second == 0 { first } else { 100 << 10 };
        (second, [change, 0, change, 0])
    });
    let key = growing(&snapshot);
    let live = (0..10).map(|second| (1 << 20) - (9 - second) * (100 << 10));
    let courses = Courses {
        times_ns: times_ns.clone(),
        sites: HashMap::from([(key, course.collect())]),
        layers: HashMap::from([(layer_key(&key), live.collect())]),
        ..Courses::default()
    };
    let resident = times_ns.iter().map(|time| (*time, (time - start) / 1000));
    Reading {
        resident: resident.collect(),
        courses,
        verdicts: FastMap::default(),
        snapshot,
        is_open: true,
    }
}

/// The same with a growing site that is larger by this many bytes.
pub(super) fn later(bytes: u64) -> Reading {
    let mut reading = reading();
    let totals = &mut reading.snapshot.sites[1].totals;
    totals.live_bytes += bytes;
    reading
}

/// The reading with this stack at its growing site, leaf first.
pub(super) fn with_stack(frames: Vec<Frame>) -> Reading {
    let mut reading = reading();
    let id = growing(&reading.snapshot).stack;
    reading.snapshot.stacks.put(id, End::Complete, None, frames);
    reading
}

/// A stack of this many calls, the innermost of which are the library's.
pub(super) fn deep(calls: usize) -> Vec<Frame> {
    let library = (1..calls).map(|n| native(&format!("std::inner{n}"), "/srv/app/server"));
    let own = Frame {
        file: Some("/srv/app/src/handler.cc".into()),
        line: Some(77),
        ..native("Handler::keep", "/srv/app/server")
    };
    library
        .chain([own, native("main", "/srv/app/server")])
        .collect()
}

/// The reading after a search for holders: a list keeps the growing site's blocks, and a line of Python fills it.
pub(super) fn held() -> Reading {
    let mut reading = reading();
    let site = growing(&reading.snapshot);
    let path = history(None);
    let held = WayKind::Path(path.clone());
    let holders = holders(site, 4, vec![(4, held)]);
    reading.snapshot.holders.insert(site, holders);
    let keeper = Keeper {
        how: How::Path { path, share: 1.0 },
        line: Some(python("Service.handle", "/srv/app/server.py", 34)),
        package: None,
    };
    let judged = Judged {
        class: Class::Leak,
        grade: Grade::B,
        keeper: Some(keeper),
    };
    reading.verdicts.insert(site, judged);
    reading
}
