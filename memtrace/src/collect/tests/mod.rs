//! The collector on captured records of the kernel side (`captures/`; tests/e2e/captures.rs writes
//! them), without a kernel: following, ending, losing.

mod job;
mod replay;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use memtrace_common::{
    code_map::mapping_kind,
    device,
    event::{Free, Header, Kind, Lifecycle, flags},
    loss::Reason,
};

use zerocopy::IntoBytes;

use self::replay::{Capture, Replay};
use super::{schedule::Tick, tables::Job};
use crate::{
    bpf::decode::Record,
    event::{Layer, StackId},
    frames::caching::fixture,
    recording::{Origin, ProcessRow},
};

const CAPTURES: [&str; 4] = ["c", "python", "fork-storm", "torch"];

/// Allocations of one layer, all processes together, computed from the records alone.
fn allocations(capture: &Capture, wanted: Layer) -> (u64, u64) {
    let mut sum = (0, 0);
    for (kind, record) in capture.decoded() {
        if let Record::Alloc(alloc) = record
            && alloc.header.layer == wanted as u8
            && (kind == Kind::Alloc || alloc.addr != 0)
        {
            sum = (sum.0 + alloc.size, sum.1 + 1);
        }
    }
    sum
}

/// Births and ends, computed from the records alone: wait statuses by tgid.
fn lives(capture: &Capture) -> (BTreeSet<u32>, BTreeMap<u32, u32>) {
    let mut born = BTreeSet::from([capture.root()]);
    let mut ended = BTreeMap::new();
    for (kind, record) in capture.decoded() {
        let Record::Lifecycle(life) = record else {
            continue;
        };
        match kind {
            Kind::Fork if life.header.flags & flags::SHARED_VM == 0 => {
                born.insert(life.header.tgid);
            }
            Kind::Exit => {
                ended.insert(life.header.tgid, life.value as u32);
            }
            _ => {}
        }
    }
    (born, ended)
}

/// The last word on each process.
fn last_rows(replay: &Replay) -> BTreeMap<u32, ProcessRow> {
    let rows = replay.rows().into_iter();
    rows.map(|row| (row.tgid, row)).collect()
}

#[test]
fn every_process_is_followed_to_its_end() {
    for name in CAPTURES {
        let capture = Capture::read(name);
        let (born, ended) = lives(&capture);
        assert!(born.iter().all(|tgid| ended.contains_key(tgid)), "{name}");
        let mut replay = Replay::of(&capture);
        replay.all(&capture);
        let rows = last_rows(&replay);
        assert_eq!(rows.keys().copied().collect::<BTreeSet<_>>(), born);
        for (tgid, row) in &rows {
            assert_eq!(row.exit_status, ended.get(tgid).copied(), "{name}");
            assert!(row.ended_ns >= Some(row.started_ns), "{name}: {row:?}");
            let expected = match *tgid == capture.root() {
                true => Origin::Launched,
                false => Origin::Child,
            };
            assert_eq!(row.origin, expected, "{name}");
        }
        assert_eq!(replay.kernel().ended, born, "{name}");
    }
}

#[test]
fn ended_processes_leave_no_state() {
    for name in CAPTURES {
        let capture = Capture::read(name);
        let mut replay = Replay::of(&capture);
        replay.python_minor = Some(11);
        let (born, _) = lives(&capture);
        replay.kernel_mut().wanted = born.into_iter().collect();
        let mut most = 0;
        for record in capture.records() {
            replay.one(record);
            most = most.max(replay.collector.processes.kept());
        }
        assert!(most > 0, "{name}: nothing was kept of those that ran");
        assert_eq!(replay.collector.processes.kept(), 0, "{name}");
        assert_eq!(replay.collector.control.waiting.len(), 0, "{name}");
    }
}

#[test]
fn every_allocation_is_counted_and_nothing_is_lost() {
    for name in CAPTURES {
        let capture = Capture::read(name);
        let mut replay = Replay::of(&capture);
        replay.all(&capture);
        let expected = allocations(&capture, Layer::Heap);
        // The one of devices was captured without the heap.
        assert_eq!(expected.1 > 0, name != "torch", "{name}");
        assert_eq!(replay.allocated(Layer::Heap), expected, "{name}");
        let losses = replay.losses();
        // Counters of the kernel side are not in a capture.
        let lost: Vec<_> = losses
            .iter()
            .filter(|(reason, count)| **count > 0 && **reason != Reason::UnknownFree)
            .collect();
        assert!(lost.is_empty(), "{name}: {lost:?}");
    }
}

#[test]
fn an_exec_clears_the_previous_programs_memory() {
    let capture = Capture::read("c");
    let execs: Vec<usize> = capture
        .decoded()
        .enumerate()
        .filter(|(_, (kind, _))| *kind == Kind::Exec)
        .map(|(at, _)| at)
        .collect();
    // The launch, and a thread that is not the leader.
    assert_eq!(execs.len(), 2);
    let mut replay = Replay::of(&capture);
    for record in &capture.records()[..execs[1]] {
        replay.one(record);
    }
    let before = replay.collector.accounts.ledger.outstanding();
    assert!(before > 0);
    replay.one(&capture.records()[execs[1]]);
    assert_eq!(replay.collector.accounts.ledger.outstanding(), 0);
    let mut most = 0;
    for record in &capture.records()[execs[1] + 1..] {
        replay.one(record);
        most = most.max(replay.collector.accounts.ledger.outstanding());
    }
    // The new program's are kept until it ends.
    assert!(most >= 1000, "{most}");
    assert_eq!(replay.collector.accounts.ledger.outstanding(), 0);
}

#[test]
fn children_of_a_storm_have_parents() {
    let capture = Capture::read("fork-storm");
    let mut replay = Replay::of(&capture);
    replay.all(&capture);
    let rows = last_rows(&replay);
    assert!(rows.len() > 10, "{}", rows.len());
    for row in rows.values().filter(|row| row.tgid != capture.root()) {
        assert!(rows.contains_key(&row.ppid), "{row:?}");
    }
    let forks = replay.kernel().forked.clone();
    let (born, _) = lives(&capture);
    let children: BTreeSet<u32> = forks.iter().map(|&(_, child)| child).collect();
    assert_eq!(children.len() + 1, born.len());
}

/// Threads that wait for the collector.
fn stops(capture: &Capture) -> Vec<Lifecycle> {
    let stops = capture.decoded().filter_map(|(kind, record)| match record {
        Record::Lifecycle(life) if kind == Kind::Stopped => Some(*life),
        _ => None,
    });
    let stops = stops.filter(|life| life.header.flags & flags::FAILED == 0);
    stops.collect()
}

#[test]
fn every_stopped_thread_continues_once() {
    for name in CAPTURES {
        let capture = Capture::read(name);
        let expected: Vec<u32> = stops(&capture).iter().map(|life| life.header.tid).collect();
        assert!(!expected.is_empty(), "{name}");
        let mut replay = Replay::of(&capture);
        replay.all(&capture);
        assert_eq!(replay.continued(), expected, "{name}");
    }
}

#[test]
fn a_stopped_thread_waits_only_for_the_tables_of_its_files() {
    let capture = Capture::read("c");
    let mut replay = Replay::of(&capture);
    let mut life = stops(&capture)[0];
    let no_elf = tempfile::tempfile().unwrap();
    for exec in [1, 2] {
        replay.collector.control.tables.add(Job {
            exec,
            path: "file".to_owned(),
            file: no_elf.try_clone().unwrap(),
            build_id: None,
        });
    }
    for (tid, files) in [(11, vec![1]), (12, vec![1, 2]), (13, vec![])] {
        life.header.tid = tid;
        replay.collector.continue_with_tables(life, files);
    }
    assert_eq!(replay.continued(), [13]);
    for (exec, continued) in [(1, vec![13, 11]), (2, vec![13, 11, 12])] {
        replay.gate.let_pass([exec]);
        let long = Duration::from_secs(60);
        assert!(replay.collector.control.tables.wait(&[exec], long));
        replay.collector.look_around();
        assert_eq!(replay.continued(), continued);
    }
    assert_eq!(replay.collector.control.waiting.len(), 0);
}

#[test]
fn a_running_process_has_its_allocators_probed_and_its_files_made_known() {
    let mut replay = Replay::idle();
    replay.gate.let_pass(0..1000);
    let this = std::process::id();
    replay
        .collector
        .begin(this, Origin::Attached, 0, Duration::from_secs(60))
        .unwrap();
    let kernel = replay.kernel();
    let probes: usize = kernel
        .attached
        .iter()
        .filter(|(tgid, _)| *tgid == this)
        .map(|(_, probes)| probes)
        .sum();
    // The malloc family of libc at least.
    assert!(probes >= 5, "{:?}", kernel.attached);
    let files: HashSet<u32> = kernel.published[&this]
        .iter()
        .filter(|mapping| mapping.kind == mapping_kind::FILE)
        .map(|mapping| mapping.exec)
        .collect();
    assert!(files.len() >= 3, "the test, libc and its loader: {files:?}");
    assert!(files.is_subset(&kernel.known), "{:?}", kernel.known);
}

#[test]
fn a_file_is_not_made_known_before_its_table() {
    let mut replay = Replay::idle();
    let this = std::process::id();
    replay
        .collector
        .begin(this, Origin::Launched, 0, Duration::from_secs(60))
        .unwrap();
    let files = replay.collector.inspect(this).unwrap();
    replay.collector.control.announce();
    assert!(
        replay.kernel().known.is_empty(),
        "{:?}",
        replay.kernel().known
    );
    replay.gate.let_pass(files.iter().copied());
    assert!(
        replay
            .collector
            .control
            .tables
            .wait(&files, Duration::from_secs(60))
    );
    replay.collector.control.announce();
    assert!(
        files
            .iter()
            .all(|exec| replay.kernel().known.contains(exec))
    );
}

#[test]
fn a_wait_before_exec_or_end_releases_no_other_thread() {
    let capture = Capture::read("c");
    let mut replay = Replay::of(&capture);
    let mut life = stops(&capture)[0];
    for tgid in [1, 2] {
        life.header.tgid = tgid;
        replay.collector.control.tables.add(Job {
            exec: 1,
            path: "file".to_owned(),
            file: tempfile::tempfile().unwrap(),
            build_id: None,
        });
        replay.collector.continue_with_tables(life, vec![1]);
    }
    replay.collector.control.forget_waiting(1);
    assert_eq!(replay.collector.control.waiting.len(), 1);
    replay.collector.ended(2, None, 0).unwrap();
    assert_eq!(replay.collector.control.waiting.len(), 0);
    assert_eq!(replay.continued(), [0; 0]);
}

#[test]
fn lost_stacks_count_by_their_allocations() {
    let capture = Capture::read("c");
    let without = capture.without(|_, record| matches!(record, Record::Stack(..)));
    let mut expected = 0;
    for (_, record) in without.decoded() {
        expected += match record {
            Record::Alloc(alloc) => u64::from(alloc.addr != 0 && alloc.stack != 0),
            Record::Map(map) => u64::from(map.stack != 0),
            _ => 0,
        };
    }
    let mut replay = Replay::of(&without);
    replay.all(&without);
    assert!(expected > 1000);
    assert_eq!(replay.losses()[&Reason::UnknownStack], expected);
    // The blocks are counted all the same.
    let whole = allocations(&capture, Layer::Heap);
    assert_eq!(replay.allocated(Layer::Heap), whole);
    let sites = replay.sites(Layer::Heap);
    assert_eq!(sites, HashSet::from([StackId::UNKNOWN]));
}

#[test]
fn an_overload_shows_in_the_losses_and_not_as_a_panic() {
    for name in CAPTURES {
        let capture = Capture::read(name);
        for (from, to) in [(0.0, 0.3), (0.2, 0.9), (0.5, 1.0)] {
            // A full ring buffer drops all records that come while it is full, of any kind.
            let part = capture.without_range(from, to);
            let dropped = (capture.records().len() - part.records().len()) as u64;
            let mut replay = Replay::of(&part);
            replay
                .kernel_mut()
                .lost
                .insert(Reason::RingFullAlloc, dropped);
            replay.all(&part);
            let losses = replay.losses();
            assert_eq!(losses[&Reason::RingFullAlloc], dropped, "{name}");
            assert!(replay.collector.missing().records() >= dropped, "{name}");
            assert_eq!(losses[&Reason::Undecodable], 0, "{name}");
        }
    }
}

#[test]
fn a_process_whose_end_was_lost_is_buried_once() {
    let capture = Capture::read("fork-storm");
    let without = capture.without(|kind, _| kind == Kind::Exit);
    let mut replay = Replay::of(&without);
    replay.all(&without);
    // None of them is a process of this machine.
    let vanished = replay.collector.vanished();
    let (born, _) = lives(&without);
    assert_eq!(vanished.iter().copied().collect::<BTreeSet<_>>(), born);
    for _ in 0..2 {
        replay.collector.bury(&vanished, u64::MAX).unwrap();
    }
    assert_eq!(replay.collector.processes.kept(), 0);
    let ends = replay
        .rows()
        .into_iter()
        .filter(|row| row.ended_ns.is_some());
    assert_eq!(ends.count(), born.len());
    assert!(
        last_rows(&replay)
            .values()
            .all(|row| row.exit_status.is_none())
    );
}

#[test]
fn damaged_records_are_counted_each() {
    let capture = Capture::read("torch");
    let mut replay = Replay::of(&capture);
    for record in capture.records() {
        replay.one(&record[..record.len().min(20)]);
    }
    let count = capture.records().len() as u64;
    assert_eq!(replay.losses()[&Reason::Undecodable], count);
}

#[test]
fn code_objects_of_python_name_its_frames() {
    let capture = Capture::read("python");
    let mut replay = Replay::of(&capture);
    replay.python_minor = Some(11);
    replay.all(&capture);
    let names = replay.code_names();
    for name in ["<module>", "Kept.add", "Kept.add.<locals>.<listcomp>"] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
}

#[test]
fn memory_of_devices_is_counted_by_layer() {
    let capture = Capture::read("torch");
    let mut replay = Replay::of(&capture);
    replay.all(&capture);
    let mut expected = BTreeMap::new();
    for (_, record) in capture.decoded() {
        if let Record::DeviceAlloc(alloc) = record
            && alloc.error == 0
            && let Ok(layer) = Layer::try_from(alloc.header.layer)
        {
            *expected.entry(layer).or_insert(0) += 1;
        }
    }
    for layer in [Layer::CudaDriver, Layer::CudaRuntime, Layer::Pinned] {
        assert_eq!(replay.allocated(layer).1, expected[&layer], "{layer:?}");
    }
}

#[test]
fn blocks_of_a_caching_allocator_are_known_by_the_layer_of_its_functions() {
    let capture = Capture::read("torch");
    let mut replay = Replay::of(&capture);
    let layer = fixture::POOL.layer;
    let header = Header {
        kind: Kind::DeviceAlloc as u8,
        layer: layer as u8,
        tgid: capture.root(),
        tid: capture.root(),
        ..Header::default()
    };
    for (addr, size) in [(0x1000, 300), (0x2000, 50)] {
        let alloc = device::Alloc {
            header,
            addr,
            size,
            device: 1,
            ..device::Alloc::default()
        };
        replay.one(alloc.as_bytes());
    }
    let free = Free {
        header: Header {
            kind: Kind::Free as u8,
            ..header
        },
        addr: 0x1000,
    };
    replay.one(free.as_bytes());
    replay
        .collector
        .interval(
            u64::MAX,
            Tick {
                scan: true,
                ..Tick::default()
            },
        )
        .unwrap();
    assert_eq!(replay.allocated(layer), (350, 2));
    let cache = replay.device_totals(Some(0)).cache.unwrap();
    assert_eq!((cache.allocated, cache.peak_allocated), (50, 350));
}
