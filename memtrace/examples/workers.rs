//! Writes a recording of forked workers with very many sites, for `cargo xtask soak --sites N`:
//! `workers FILE SITES`. The ledger's changes for made-up events are written as the collector does.

use std::{path::Path, process::ExitCode};

use memtrace::made_up::{
    Action, Event, Frame, FrameKind, Interval, Layer, Ledger, LocationId, MemorySample, Meta, Node,
    NodeId, Origin, ProcessId, ProcessRow, StackId, StackRow, Writer,
};
use memtrace_common::unwind::End;

/// Blocks that the master allocated before it forked: each worker inherits them.
const STACKS: u32 = 2000;
/// Frames of a stack.
const DEPTH: u32 = 20;
const INTERVALS: u64 = 60;
/// Places at which each worker allocates in an interval.
const CHANGES: u32 = 5;
const SECOND: u64 = 1_000_000_000;
const MASTER: u32 = 100;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, sites] = &arguments[..] else {
        return ExitCode::from(2);
    };
    match sites
        .parse()
        .map_err(Error::from)
        .and_then(|sites: u32| write(file.as_ref(), sites))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn write(path: &Path, sites: u32) -> Result<(), Error> {
    let meta = Meta {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "host".to_owned(),
        kernel: "6.18.0".to_owned(),
        command: vec!["memtrace".to_owned(), "record".to_owned()],
        started_unix_ns: 1_700_000_000 * SECOND,
        started_ns: SECOND,
        interval_ns: SECOND,
        interval_is_auto: false,
        page_size: 4096,
        allocator_prefixes: vec![],
        without_heap: false,
    };
    let mut writer = Writer::create(path, true, &meta)?;
    stacks(&mut writer)?;
    let mut ledger = Ledger::new(4096);
    let master = ledger.start_process(MASTER);
    writer.process(&row(master, MASTER, Origin::Launched))?;
    for stack in 1..=STACKS {
        allocate(&mut ledger, MASTER, stack, SECOND);
    }
    let workers = MASTER + 1..=MASTER + sites / STACKS;
    let mut ids = vec![master];
    for child in workers.clone() {
        let shared_vm = false;
        apply(
            &mut ledger,
            MASTER,
            Action::Fork { child, shared_vm },
            SECOND,
        );
        let id = ledger.process_of(child).ok_or("a child is not known")?;
        writer.process(&row(id, child, Origin::Child))?;
        ids.push(id);
    }
    for number in 1..=INTERVALS {
        let time_ns = SECOND + number * SECOND;
        for worker in workers.clone() {
            for change in 0..CHANGES {
                let stack = 1 + (worker * 31 + number as u32 * CHANGES + change) % STACKS;
                allocate(&mut ledger, worker, stack, time_ns);
            }
        }
        let memory = MemorySample {
            rss_anon: Some(number << 20),
            ..MemorySample::default()
        };
        writer.interval(&Interval {
            time_ns,
            changes: ledger.take_changes(),
            memory: ids.iter().map(|id| (*id, memory)).collect(),
            ..Interval::default()
        })?;
    }
    writer.finish(SECOND + INTERVALS * SECOND)?;
    Ok(())
}

/// Callers that all have in common, and a leaf of each one's own.
fn stacks(writer: &mut Writer) -> Result<(), Error> {
    let mut nodes = Vec::new();
    for depth in 1..DEPTH {
        writer.location(LocationId(depth), &[frame(format!("caller{depth}"))])?;
        nodes.push(Node {
            parent: NodeId(depth - 1),
            location: LocationId(depth),
        });
    }
    for stack in 1..=STACKS {
        let location = LocationId(DEPTH - 1 + stack);
        writer.location(location, &[frame(format!("leaf{stack}"))])?;
        nodes.push(Node {
            parent: NodeId(DEPTH - 1),
            location,
        });
    }
    writer.nodes(NodeId(1), &nodes)?;
    for stack in 1..=STACKS {
        writer.stack(&StackRow {
            id: StackId(stack),
            node: NodeId(DEPTH - 1 + stack),
            end: End::Complete,
            thread: Some("worker".into()),
        })?;
    }
    Ok(())
}

fn allocate(ledger: &mut Ledger, tgid: u32, stack: u32, time_ns: u64) {
    let action = Action::Alloc {
        layer: Layer::Heap,
        // Never the same twice.
        addr: (time_ns / SECOND * u64::from(STACKS) + u64::from(stack)) * 4096,
        size: 4096,
        stack: StackId(stack),
    };
    apply(ledger, tgid, action, time_ns);
}

fn apply(ledger: &mut Ledger, tgid: u32, action: Action, time_ns: u64) {
    ledger.apply(&Event {
        time_ns,
        tgid,
        tid: tgid,
        action,
    });
}

fn row(id: ProcessId, tgid: u32, origin: Origin) -> ProcessRow {
    ProcessRow {
        id,
        tgid,
        ppid: 1,
        origin,
        comm: "server".to_owned(),
        cmdline: vec!["server".to_owned()],
        started_ns: SECOND,
        ended_ns: None,
        exit_status: None,
        rss_at_start: None,
        folded: None,
    }
}

fn frame(function: String) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: Some(function),
        module: Some("/usr/bin/server".to_owned()),
        build_id: None,
        file_offset: Some(4096),
        file: None,
        line: None,
        inlined: false,
        is_packaged: false,
        unresolved: None,
    }
}
