//! Recordings for the tests: written as the collector writes them, from a
//! function of time.

use crate::{
    event::{Device, Layer, OUT_OF_MEMORY, StackId},
    frames::{Frame, FrameKind, fixture},
    ledger::{
        Births, Changes, DeviceTotals, Failure, FailureKey, Holes, LayerTotals, ProcessId, SiteKey,
        SiteTotals, Totals,
    },
    recording::{
        Census, Fact, GrowingType, Holders, Interval, LocationId, MemorySample, Meta, Node, NodeId,
        Origin, ProcessRow, Recording, StackRow, Writer, capacity_of,
    },
};
use memtrace_common::{loss::Reason, unwind::End};

pub(super) const START: u64 = 1_000_000_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;
/// The node of `main`, with which all stacks begin.
const MAIN: NodeId = NodeId(1);

pub(super) const MIB: f64 = 1024.0 * 1024.0;

/// The name of a function that stands for Python's import system.
pub(super) const IMPORT: &str = "import";

/// The names of Python's functions begin with this.
pub(super) const PYTHON: &str = "python:";

/// Most blocks of a site whose births count.
const BLOCKS: u64 = 100_000;

/// The state at one interval.
#[derive(Clone, Default)]
pub(super) struct Moment {
    pub(super) memory: MemorySample,
    pub(super) sites: Vec<SiteCourse>,
    /// Its memory on device 0.
    pub(super) device: Option<DeviceTotals>,
    /// Process total on that device, MiB.
    pub(super) device_usage: Option<f64>,
    /// Capacity of that device, MiB.
    pub(super) capacity: Option<u64>,
    /// Its memory on another device, and the sites there.
    pub(super) other: Option<(Device, DeviceTotals, Vec<SiteCourse>)>,
    /// Failed allocations on device 0: layer, function name of a site, bytes, and the memory held
    /// then.
    pub(super) failures: Vec<(Layer, &'static str, u64, DeviceTotals)>,
    /// Memory that the blocks of sites hold open, MiB.
    pub(super) holes: Vec<(&'static str, f64)>,
    /// Holders of the blocks of sites, whose stacks are numbered in order of appearance.
    pub(super) holders: Vec<Holders>,
    /// Types of Python's objects that grew up to then; the last ones count.
    pub(super) types: Vec<GrowingType>,
    /// Blocks from before the recording that were freed so far.
    pub(super) unknown_frees: u64,
    pub(super) freed: Freed,
    /// The start, and the end with the wait status, of other children of its parent, seconds.
    pub(super) siblings: Vec<(u64, Option<(u64, u32)>)>,
}

/// The blocks that sites free.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Freed {
    #[default]
    Latest,
    Oldest,
    /// Of any age.
    Any,
}

/// Layer, name of the function that allocates, made by an allocator, bytes, blocks. `main` calls the function, but
/// names with semicolons between them are a whole stack, leaf first.
pub(super) type SiteCourse = (Layer, &'static str, bool, f64, u64);

/// A process over `n` intervals of a second, and records lost of a thousand.
pub(super) struct Course<'a> {
    pub(super) origin: Origin,
    pub(super) n: u64,
    /// Whether the process ends with the recording.
    pub(super) ends: bool,
    pub(super) lost: u64,
    /// Whether malloc is recorded.
    pub(super) heap: bool,
    pub(super) at: &'a dyn Fn(f64) -> Moment,
}

/// The bucket of an age in seconds.
fn bucket(age: u64) -> usize {
    (age * SECOND).max(1).ilog2() as usize
}

fn frame(function: &str) -> Frame {
    if function == IMPORT {
        return fixture::python("_load", "<frozen importlib._bootstrap>", 1);
    }
    if let Some(function) = function.strip_prefix(PYTHON) {
        return fixture::python(function, "/srv/main.py", 1);
    }
    Frame {
        kind: FrameKind::Native,
        function: Some(function.into()),
        module: Some("/bin/program".into()),
        build_id: None,
        file_offset: Some(0x10),
        file: None,
        line: None,
        inlined: false,
        is_packaged: false,
        unresolved: None,
    }
}

/// Writes the course and opens it; the folder must outlive the recording.
pub(super) fn record(course: &Course) -> (tempfile::TempDir, Recording) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.mtr");
    let meta = Meta {
        version: "0".into(),
        host: "host".into(),
        kernel: "6".into(),
        command: vec![],
        started_unix_ns: 0,
        started_ns: START,
        interval_ns: SECOND,
        interval_is_auto: false,
        page_size: 4096,
        allocator_prefixes: vec![],
        without_heap: !course.heap,
    };
    let mut writer = Writer::create(&path, false, &meta).unwrap();
    let mut row = ProcessRow {
        id: ProcessId(1),
        tgid: 100,
        ppid: 1,
        origin: course.origin,
        comm: "program".into(),
        cmdline: vec![],
        started_ns: START,
        ended_ns: None,
        exit_status: None,
        rss_at_start: None,
        folded: None,
    };
    writer.process(&row).unwrap();
    let main = Node {
        parent: NodeId::ROOT,
        location: LocationId(MAIN.0),
    };
    writer.location(main.location, &[frame("main")]).unwrap();
    writer.nodes(MAIN, &[main]).unwrap();
    let mut names: Vec<&str> = Vec::new();
    let mut before: Vec<(SiteKey, Totals)> = Vec::new();
    // Blocks that live, with the second of their birth, of each of these sites.
    let mut births: Vec<Vec<u64>> = Vec::new();
    let mut lifetimes: Vec<[u64; 48]> = Vec::new();
    for second in 1..=course.n {
        let moment = (course.at)(second as f64);
        let mut changes = Changes::default();
        let sites = moment.sites.into_iter().map(|site| (Some(0), site));
        let elsewhere = moment.other.iter().flat_map(|(device, _, sites)| {
            let sites = sites.iter();
            sites.map(|site| (*device, *site))
        });
        for (device, (layer, name, by_allocator, bytes, blocks)) in sites.chain(elsewhere) {
            let number = names
                .iter()
                .position(|known| *known == name)
                .unwrap_or_else(|| {
                    names.push(name);
                    let number = names.len() as u32;
                    let leaf = NodeId(MAIN.0 + number);
                    let row = StackRow {
                        id: StackId(number),
                        node: leaf,
                        end: End::Complete,
                        thread: None,
                    };
                    let location = LocationId(leaf.0);
                    let frames: Vec<Frame> = name.split(';').map(frame).collect();
                    writer.location(location, &frames).unwrap();
                    let parent = match frames.len() {
                        1 => MAIN,
                        _ => NodeId::ROOT,
                    };
                    let node = Node { parent, location };
                    writer.nodes(leaf, &[node]).unwrap();
                    writer.stack(&row).unwrap();
                    names.len() - 1
                });
            let key = SiteKey {
                process: row.id,
                layer,
                stack: StackId(number as u32 + 1),
                by_allocator,
                device: device.filter(|_| layer.of_device()),
            };
            let at = before
                .iter()
                .position(|(known, _)| *known == key)
                .unwrap_or_else(|| {
                    before.push((key, Totals::default()));
                    births.push(Vec::new());
                    lifetimes.push([0; 48]);
                    before.len() - 1
                });
            let freed = births[at].len().saturating_sub(blocks as usize);
            let mut free = |birth: u64| lifetimes[at][bucket(second - birth)] += 1;
            match moment.freed {
                Freed::Latest => {}
                Freed::Oldest => births[at].drain(..freed).for_each(&mut free),
                Freed::Any => {
                    let (all, mut number) = (births[at].len(), 0);
                    births[at].retain(|birth| {
                        number += 1;
                        let goes = number * freed / all > (number - 1) * freed / all;
                        if goes {
                            free(*birth);
                        }
                        !goes
                    });
                }
            }
            births[at].resize(blocks.min(BLOCKS) as usize, second);
            let totals = &mut before[at].1;
            let old = totals.live_count;
            totals.alloc_count += blocks.saturating_sub(old);
            totals.free_count += old.saturating_sub(blocks);
            totals.alloc_bytes += (bytes as u64).saturating_sub(totals.live_bytes);
            (totals.live_bytes, totals.live_count) = (bytes as u64, blocks);
            totals.peak_bytes = totals.peak_bytes.max(totals.live_bytes);
            let site = SiteTotals {
                totals: *totals,
                at_peak_bytes: 0,
                at_peak_count: 0,
                peak_epoch: 0,
                first_ns: START + SECOND,
                last_ns: START + second * SECOND,
                lifetimes: lifetimes[at].into(),
            };
            changes.sites.push((key, site));
        }
        changes
            .layers
            .push(((row.id, Layer::Heap), LayerTotals::default()));
        let mut losses: Vec<_> = Reason::ALL.map(|reason| (reason, 0)).into();
        losses[Reason::RingFullAlloc as usize].1 = course.lost * second;
        let unknown = losses
            .iter_mut()
            .find(|(reason, _)| *reason == Reason::UnknownFree);
        unknown.unwrap().1 = moment.unknown_frees;
        let mut interval = Interval {
            time_ns: START + second * SECOND,
            ..Interval::default()
        };
        let failures = moment.failures.iter();
        changes.failures = failures
            .map(|(layer, name, size, held)| {
                let number = names.iter().position(|known| known == name);
                let key = FailureKey {
                    process: row.id,
                    layer: *layer,
                    device: Some(0),
                    stack: StackId(number.map_or(0, |number| number as u32 + 1)),
                    error: OUT_OF_MEMORY,
                };
                let time = interval.time_ns;
                let failure = Failure {
                    count: 1,
                    first_ns: time,
                    last_ns: time,
                    size: *size,
                    held: *held,
                };
                (key, failure)
            })
            .collect();
        let device = moment.device.map(|totals| ((row.id, Some(0)), totals));
        let capacity = moment.capacity.map(|mib| Fact {
            process: Some(row.id),
            field: capacity_of(0),
            value: (mib << 20).to_string(),
        });
        writer.facts(capacity.as_slice()).unwrap();
        let other = moment.other.as_ref();
        let other = other.map(|(device, totals, _)| ((row.id, *device), *totals));
        changes.devices.extend(device.into_iter().chain(other));
        let usage = moment.device_usage.into_iter();
        interval.device_usage = usage.map(|mib| (row.id, 0, (mib * MIB) as u64)).collect();
        let of_site = |name: &str| {
            before
                .iter()
                .find(|(key, _)| names[key.stack.0 as usize - 1] == name)
        };
        let holes = moment.holes.iter().filter_map(|(name, mib)| {
            let held = Holes {
                bytes: (mib * MIB) as u64,
                holes: 1,
            };
            Some((of_site(name)?.0, held))
        });
        interval.holes = vec![(row.id, holes.collect())];
        interval.births = before
            .iter()
            .zip(&births)
            .map(|((key, totals), births)| {
                let mut ages = [0; 48];
                for birth in births {
                    ages[bucket(second - birth)] += 1;
                }
                let births = Births {
                    rows: vec![(interval.time_ns, totals.live_bytes, totals.live_count)],
                    ages: ages.into(),
                };
                (*key, births)
            })
            .collect();
        interval.changes = changes;
        interval.memory = vec![(row.id, moment.memory)];
        interval.losses = losses;
        interval.emitted = 1000 * second;
        interval.received = (1000 - course.lost) * second;
        writer.interval(&interval).unwrap();
        for of in &moment.holders {
            writer.holders(of).unwrap();
        }
    }
    let Moment {
        types, siblings, ..
    } = (course.at)(course.n.saturating_sub(1) as f64);
    let number = siblings.len() as u32;
    for (id, (start, end)) in (2..).zip(siblings) {
        let sibling = ProcessRow {
            id: ProcessId(id),
            tgid: 100 + id,
            origin: Origin::Child,
            started_ns: START + start * SECOND,
            ended_ns: end.map(|(end, _)| START + end * SECOND),
            exit_status: end.map(|(_, status)| status),
            ..row.clone()
        };
        writer.process(&sibling).unwrap();
    }
    if number > 0 {
        let parent = ProcessRow {
            id: ProcessId(2 + number),
            tgid: row.ppid,
            origin: Origin::Launched,
            ..row.clone()
        };
        writer.process(&parent).unwrap();
    }
    writer.types(row.id, &Census::default(), &types).unwrap();
    if course.ends {
        row.ended_ns = Some(START + course.n * SECOND);
        row.exit_status = Some(0);
        writer.process(&row).unwrap();
    }
    writer.finish(START + course.n * SECOND).unwrap();
    let recording = Recording::open(&path).unwrap();
    (folder, recording)
}

/// Resident memory, MiB.
pub(super) fn resident(anonymous: f64, file: f64, shared: f64) -> MemorySample {
    let bytes = |mib: f64| Some((mib * MIB) as u64);
    MemorySample {
        rss_anon: bytes(anonymous),
        rss_file: bytes(file),
        rss_shmem: bytes(shared),
        swap: Some(0),
        ..MemorySample::default()
    }
}
