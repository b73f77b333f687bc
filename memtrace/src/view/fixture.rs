//! One snapshot for the tests of all output formats.

use crate::{
    event::{Layer, StackId},
    frames::{Frame, FrameKind, fixture::python as python_frame},
    hash::FastMap,
    ledger::{Births, LayerTotals, ProcessId, SiteKey, Totals},
    recording::{
        At, BirthsAt, LayerSnapshot, Meta, Moment, Origin, ProcessRow, ProcessSnapshot,
        SiteSnapshot, Snapshot, Stacks,
    },
};
use memtrace_common::{loss::Reason, unwind::End};

pub(crate) const PARENT: u32 = 4242;
pub(crate) const CHILD: u32 = 4243;
const SECOND: u64 = 1_000_000_000;
const START: u64 = 500 * SECOND;

fn process(id: u32, tgid: u32, ended_ns: Option<u64>) -> ProcessSnapshot {
    ProcessSnapshot {
        row: ProcessRow {
            id: ProcessId(id),
            tgid,
            ppid: 1,
            origin: Origin::Attached,
            comm: "leaker".into(),
            cmdline: vec!["./leaker".into(), "two\x1b[31m".into()],
            started_ns: START,
            ended_ns,
            exit_status: ended_ns.map(|_| 3 << 8),
            rss_at_start: Some(8 << 20),
            folded: None,
        },
        oom_kills: 0,
        moment: if ended_ns.is_some() {
            Moment::Peak
        } else {
            Moment::End
        },
    }
}

fn frame(function: Option<&str>, inlined: bool) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: function.map(Into::into),
        module: Some("/usr/bin/leaker".into()),
        build_id: None,
        file_offset: Some(0x1234),
        file: function.map(|_| "/src/leaker.c".into()),
        line: function.map(|_| 7),
        inlined,
        is_packaged: false,
        unresolved: function.is_none().then(|| "no symbols".into()),
    }
}

fn site(process: u32, layer: Layer, stack: u32, live_bytes: u64, live_count: u64) -> SiteSnapshot {
    SiteSnapshot {
        key: SiteKey {
            process: ProcessId(process),
            layer,
            stack: StackId(stack),
            by_allocator: layer == Layer::Vm,
            device: None,
        },
        totals: Totals {
            live_bytes,
            live_count,
            alloc_bytes: live_bytes + 64,
            alloc_count: live_count + 1,
            free_bytes: 64,
            free_count: 1,
            peak_bytes: live_bytes + 32,
            peak_ns: START + 3 * SECOND,
            ..Totals::default()
        },
        first_ns: START + SECOND,
        last_ns: Some(START + 9 * SECOND),
        lifetimes: Some({
            let mut lifetimes = [0; 21];
            lifetimes[20] = 1;
            lifetimes.into()
        }),
        births: None,
    }
}

/// All but stack 0, which there is not.
fn stacks() -> Stacks {
    let mut stacks = Stacks::default();
    for (id, end) in [(1, End::Complete), (2, End::Truncated), (3, End::NoRow)] {
        let frames = [
            frame(Some("grow;it"), true),
            frame(Some("fill"), false),
            frame(None, false),
            frame(Some("main"), false),
        ];
        stacks.put(StackId(id), end, None, frames);
    }
    stacks
}

/// The frames of a site's stack.
pub(crate) fn frames(snapshot: &Snapshot, site: &SiteSnapshot) -> Vec<Frame> {
    let stack = snapshot.stacks.get(site.key.stack);
    stack.frames().cloned().collect()
}

fn layer(process: u32, layer: Layer, live_bytes: u64, live_count: u64) -> LayerSnapshot {
    LayerSnapshot {
        process: ProcessId(process),
        layer,
        totals: LayerTotals {
            totals: Totals {
                live_bytes,
                live_count,
                inherited_bytes: if process == 2 { 2048 } else { 0 },
                peak_bytes: live_bytes,
                peak_ns: START + 3 * SECOND,
                ..Totals::default()
            },
            before_attach_bytes: if layer == Layer::Vm { 6 << 20 } else { 0 },
            ..LayerTotals::default()
        },
    }
}

/// The snapshot, with an allocator's frame at the end of every stack.
pub(crate) fn snapshot_with_wrappers() -> Snapshot {
    let mut snapshot = snapshot();
    for site in &snapshot.sites {
        let wrapper = frame(Some("operator new(unsigned long)"), false);
        let frames = [vec![wrapper], frames(&snapshot, site)].concat();
        let id = site.key.stack;
        let end = snapshot.stacks.get(id).end().unwrap_or(End::Complete);
        snapshot.stacks.put(id, end, None, frames);
    }
    snapshot
}

/// The snapshot, with the stack of its largest site that of a Python program's thread `worker`:
/// `leaker` is the interpreter, and the list is grown in one of its functions.
pub(crate) fn snapshot_of_python() -> Snapshot {
    let mut snapshot = snapshot();
    let id = snapshot.sites[1].key.stack;
    let frames = [
        frame(Some("PyMem_Realloc"), false),
        frame(Some("list_resize"), false),
        frame(Some("cfunction_vectorcall_O"), false),
        python_frame("Cache.fill", "/src/cache;1.py", 41),
        frame(None, false),
        python_frame("<module>", "/src/main.py", 7),
        frame(None, false),
        frame(Some("main"), false),
    ];
    snapshot
        .stacks
        .put(id, End::Complete, Some("worker"), frames);
    snapshot
}

/// A parent that ran to the end and a child that exited by itself, ten seconds of recording, and
/// lost releases.
pub(crate) fn snapshot() -> Snapshot {
    let mut growing = site(1, Layer::Heap, 2, 1 << 20, 4);
    let births = Births {
        rows: vec![
            (START + SECOND, 512 << 10, 2),
            (START + 4 * SECOND, 256 << 10, 1),
            (START + 9 * SECOND, 256 << 10, 1),
        ],
        ..Births::default()
    };
    growing.births = Some(Box::new(BirthsAt {
        time_ns: START + 10 * SECOND,
        births,
    }));
    let mut losses = Reason::ALL.map(|reason| (reason, 0));
    losses[Reason::RingFullFree as usize].1 = 5;
    Snapshot {
        at: At::Default,
        left_out: 0,
        meta: Meta {
            version: "0.1.0".into(),
            host: "testhost".into(),
            kernel: "6.18.0".into(),
            command: vec!["memtrace".into(), "record".into()],
            started_unix_ns: 1_798_761_599 * SECOND,
            started_ns: START,
            interval_ns: SECOND,
            interval_is_auto: false,
            page_size: 4096,
            allocator_prefixes: vec![],
            without_heap: false,
        },
        processes: vec![
            process(1, PARENT, None),
            process(2, CHILD, Some(START + 5 * SECOND)),
        ],
        layers: vec![
            layer(1, Layer::Vm, 8192, 1),
            layer(1, Layer::Heap, 1 << 20, 4),
            layer(2, Layer::Heap, 100, 10),
        ],
        sites: vec![
            site(1, Layer::Vm, 1, 8192, 1),
            growing,
            site(1, Layer::Heap, 3, 0, 0),
            site(2, Layer::Heap, 0, 100, 10),
        ],
        devices: vec![],
        failures: vec![],
        libraries: vec![],
        holders: FastMap::default(),
        stacks: stacks(),
        losses: losses.to_vec(),
        emitted: 100,
        received: 95,
        time_ns: Some(START + 10 * SECOND),
        finished_ns: Some(START + 10 * SECOND),
    }
}
