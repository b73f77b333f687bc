//! A recording is written with [`Writer`] and must read back according to the ledger's rules,
//! whatever happened to the file in between. This file has the tests' input.

mod file;
mod folded;
mod holders;
mod interrupted;
mod killed;
mod reading;
mod schemas;
mod stacks;
mod thin;
mod types;

use std::path::PathBuf;

use super::*;
use crate::{
    event::Layer,
    frames::{Fold, Frame, FrameKind},
    ledger::{LayerTotals, SiteTotals, Totals},
};
use memtrace_common::loss::Reason;

const START: u64 = 1_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn meta() -> Meta {
    Meta {
        version: "0.1.0".into(),
        host: "host".into(),
        kernel: "6.18.0".into(),
        command: vec!["memtrace".into(), "record".into()],
        started_unix_ns: 1_700_000_000 * SECOND,
        started_ns: START,
        interval_ns: SECOND,
        interval_is_auto: false,
        page_size: 4096,
        allocator_prefixes: vec![],
        without_heap: false,
    }
}

fn process(id: u32, ended_ns: Option<u64>) -> ProcessRow {
    ProcessRow {
        id: ProcessId(id),
        tgid: 100 + id,
        ppid: 1,
        origin: Origin::Attached,
        comm: "leaker".into(),
        cmdline: vec!["./leaker".into(), "two words".into()],
        started_ns: START,
        ended_ns,
        exit_status: ended_ns.map(|_| 256),
        rss_at_start: Some(8 << 20),
        folded: None,
    }
}

fn key(process: u32, stack: u32) -> SiteKey {
    SiteKey {
        process: ProcessId(process),
        layer: Layer::Heap,
        stack: StackId(stack),
        by_allocator: false,
        device: None,
    }
}

fn site(live_bytes: u64, live_count: u64) -> SiteTotals {
    let mut lifetimes = [0; 21];
    lifetimes[20] = 3;
    SiteTotals {
        totals: Totals {
            live_bytes,
            live_count,
            alloc_bytes: 2 * live_bytes,
            alloc_count: 2 * live_count,
            ..Totals::default()
        },
        at_peak_bytes: 0,
        at_peak_count: 0,
        peak_epoch: 0,
        first_ns: START + 1,
        last_ns: START + 2,
        lifetimes: lifetimes.into(),
    }
}

fn layer(live_bytes: u64, peak_bytes: u64, peak_epoch: u64) -> LayerTotals {
    LayerTotals {
        totals: Totals {
            live_bytes,
            peak_bytes,
            peak_ns: START + SECOND,
            ..Totals::default()
        },
        peak_epoch,
        before_attach_bytes: 4096,
        ..LayerTotals::default()
    }
}

fn frame(function: &str) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: Some(function.into()),
        module: Some("/bin/leaker".into()),
        build_id: Some("abcd".into()),
        file_offset: Some(0x1234),
        file: Some("leaker.c".into()),
        line: Some(7),
        inlined: function == "inner",
        is_packaged: false,
        unresolved: None,
    }
}

fn node(parent: u32, location: u32) -> Node {
    Node {
        parent: NodeId(parent),
        location: LocationId(location),
    }
}

/// Interval number `n`, ending `n` seconds after the start.
fn interval(n: u64, sites: Vec<(SiteKey, SiteTotals)>) -> Interval {
    Interval {
        time_ns: START + n * SECOND,
        changes: crate::ledger::Changes {
            sites,
            ..crate::ledger::Changes::default()
        },
        losses: Reason::ALL.map(|reason| (reason, 0)).to_vec(),
        emitted: 10 * n,
        received: 10 * n,
        ..Interval::default()
    }
}

fn temporary() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.mtr");
    (directory, path)
}
