//! Written recordings read back: at the end, at the peak, and at a time.

use super::*;
use crate::{
    frames::fixture::python,
    ledger::{CacheTotals, DeviceTotals, Failure, FailureKey, StreamKey, StreamTotals},
};

#[test]
fn devices_read_back_as_of_each_moment() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let totals = |allocated| DeviceTotals {
        cache: Some(CacheTotals {
            allocated,
            peak_allocated: 99,
            reserved: None,
            peak_reserved: Some(4),
            largest_free: Some(3),
        }),
        runtime: 5,
        runtime_by_cache: 4,
        driver: 3,
        driver_by_allocator: 2,
        pinned: 1,
    };
    let failed = (
        FailureKey {
            process: ProcessId(1),
            layer: Layer::CudaRuntime,
            device: None,
            stack: StackId(7),
            error: 2,
        },
        Failure {
            count: 3,
            first_ns: START + SECOND,
            last_ns: START + SECOND + 5,
            size: 10,
            held: totals(8),
        },
    );
    let on_device = SiteKey {
        layer: Layer::TorchCuda,
        device: Some(3),
        ..key(1, 7)
    };
    let mut first = interval(1, vec![(on_device, site(64, 3))]);
    first.changes.devices = vec![
        ((ProcessId(1), Some(3)), totals(10)),
        ((ProcessId(1), None), DeviceTotals::default()),
    ];
    let stream = |stream, allocated| {
        let key = StreamKey {
            process: ProcessId(1),
            device: Some(3),
            stream,
        };
        let totals = StreamTotals {
            allocated,
            requested: allocated / 2,
        };
        (key, totals)
    };
    // A number can have any bits.
    first.changes.streams = vec![stream(0, 100), stream(u64::MAX, 200)];
    first.device_usage = vec![(ProcessId(1), 3, 1000)];
    writer.interval(&first).unwrap();
    let mut second = interval(2, vec![]);
    second.changes.devices = vec![((ProcessId(1), Some(3)), totals(20))];
    second.changes.streams = vec![stream(0, 0)];
    second.changes.failures = vec![failed];
    writer.interval(&second).unwrap();
    writer
        .library("/lib/libcudart.so", "CUDA runtime", &["a", "b"])
        .unwrap();
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let at = |at| {
        let snapshot = recording.snapshot(at).unwrap();
        let devices = snapshot.devices.iter();
        let figures = devices.map(|device| (device.device, device.totals, device.process_total));
        figures.collect::<Vec<_>>()
    };
    let unknown = (None, DeviceTotals::default(), None);
    assert_eq!(at(At::End), [unknown, (Some(3), totals(20), Some(1000))]);
    assert_eq!(
        at(At::Time(SECOND)),
        [unknown, (Some(3), totals(10), Some(1000))]
    );
    let streams = |at| {
        let snapshot = recording.snapshot(at).unwrap();
        let streams = snapshot.devices[1].streams.iter();
        streams
            .map(|(stream, totals)| (*stream, totals.allocated, totals.requested))
            .collect::<Vec<_>>()
    };
    assert_eq!(streams(At::End), [(u64::MAX, 200, 100)]);
    let both = [(u64::MAX, 200, 100), (0, 100, 50)];
    assert_eq!(streams(At::Time(SECOND)), both);
    let snapshot = recording.snapshot(At::End).unwrap();
    assert_eq!(snapshot.sites[0].key, on_device);
    assert_eq!(
        (snapshot.failures[0].key, snapshot.failures[0].failure),
        failed
    );
    assert_eq!(snapshot.libraries[0].lacking, ["a", "b"]);
}

#[test]
fn written_data_reads_back() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let frames = [frame("inner"), frame("outer"), frame("main")];
    let row = StackRow {
        id: StackId(7),
        node: NodeId(2),
        end: End::NoRow,
        thread: Some("worker".into()),
    };
    writer.location(LocationId(1), &frames[2..]).unwrap();
    writer.location(LocationId(2), &frames[..2]).unwrap();
    let (main, outer) = (node(0, 1), node(1, 2));
    writer.nodes(NodeId(1), &[main, outer]).unwrap();
    writer.stack(&row).unwrap();
    let sample = MemorySample {
        rss_anon: Some(5),
        vm_pte: Some(0),
        children: Some(2),
        ..MemorySample::default()
    };
    let system = SystemSample {
        used: Some(7),
        ..SystemSample::default()
    };
    let group = CgroupSample {
        current: Some(9),
        ..CgroupSample::default()
    };
    let births = Births {
        rows: vec![(START + 5, 60, 2), (START + 900, 4, 1)],
        ..Births::default()
    };
    let mut first = interval(1, vec![(key(1, 7), site(64, 3))]);
    first.changes.layers = vec![((ProcessId(1), Layer::Heap), layer(64, 64, 1))];
    first.memory = vec![(ProcessId(1), sample)];
    first.system = Some(system);
    first.cgroups = vec![(0, group), (4, CgroupSample::default())];
    first.members = vec![(ProcessId(1), 0)];
    first.births = vec![(key(1, 7), births.clone())];
    writer.interval(&first).unwrap();
    let ended = process(1, Some(START + 2 * SECOND));
    writer.process(&ended).unwrap();
    let mut second = interval(2, vec![]);
    second.losses[Reason::RingFullFree as usize].1 = 9;
    writer.interval(&second).unwrap();
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.meta(), &meta());
    let memory = recording.memory(ProcessId(1)).unwrap();
    assert_eq!(memory, [(START + SECOND, sample)]);
    assert_eq!(recording.system().unwrap(), [(START + SECOND, system)]);
    let cgroup = recording.cgroup(ProcessId(1)).unwrap();
    assert_eq!(cgroup, [(START + SECOND, group)]);
    assert_eq!(recording.cgroup(ProcessId(2)).unwrap(), []);
    let snapshot = recording.snapshot(At::End).unwrap();
    assert_eq!(snapshot.processes[0].row, ended);
    assert_eq!(snapshot.layers[0].totals, layer(64, 64, 1));
    assert_eq!(snapshot.layers[0].layer, Layer::Heap);
    let got = &snapshot.sites[0];
    assert_eq!(got.key, key(1, 7));
    assert_eq!(got.totals, site(64, 3).totals);
    assert_eq!(got.lifetimes, Some(site(64, 3).lifetimes));
    assert_eq!((got.first_ns, got.last_ns), (START + 1, Some(START + 2)));
    assert_eq!(got.births.as_ref().unwrap().births, births);
    let stack = snapshot.stacks.get(got.key.stack);
    assert_eq!(stack.end(), Some(End::NoRow));
    assert_eq!(stack.thread(), Some("worker"));
    assert_eq!(stack.frames().cloned().collect::<Vec<_>>(), frames);
    assert_eq!(stack.outermost(), Some(&frames[2]));
    assert_eq!(snapshot.losses.len(), Reason::ALL.len());
    let lost: Vec<_> = snapshot.losses.iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(lost, [&(Reason::RingFullFree, 9)]);
    assert_eq!((snapshot.emitted, snapshot.received), (20, 20));
    assert_eq!(snapshot.time_ns, Some(START + 2 * SECOND));
    assert_eq!(snapshot.finished_ns, Some(START + 3 * SECOND));
    assert_eq!(recording.cut_off().unwrap(), None);
}

#[test]
fn the_peak_is_exact_whether_or_not_a_site_changed_since() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    // Peak number 3 of the layer: 100 (noted by the site as it shrank to 10), 50 (untouched since
    // peak 1, at which it held 20), and nothing at a site first used after the peak.
    let mut shrunk = site(10, 1);
    (
        shrunk.at_peak_bytes,
        shrunk.at_peak_count,
        shrunk.peak_epoch,
    ) = (100, 4, 3);
    let mut untouched = site(50, 5);
    (
        untouched.at_peak_bytes,
        untouched.at_peak_count,
        untouched.peak_epoch,
    ) = (20, 2, 1);
    let mut later = site(30, 3);
    (later.at_peak_bytes, later.at_peak_count, later.peak_epoch) = (0, 0, 3);
    let sites = vec![
        (key(1, 1), shrunk),
        (key(1, 2), untouched),
        (key(1, 3), later),
    ];
    let mut only = interval(1, sites);
    only.changes.layers = vec![((ProcessId(1), Layer::Heap), layer(90, 150, 3))];
    writer.interval(&only).unwrap();
    writer.finish(START + SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let live = |at| {
        let snapshot = recording.snapshot(at).unwrap();
        let sites: Vec<_> = snapshot
            .sites
            .iter()
            .map(|site| (site.totals.live_bytes, site.totals.live_count))
            .collect();
        let totals = snapshot.layers[0].totals.totals;
        (sites, totals.live_bytes, totals.live_count)
    };
    assert_eq!(live(At::Peak), (vec![(100, 4), (50, 5), (0, 0)], 150, 9));
    assert_eq!(live(At::End), (vec![(10, 1), (50, 5), (30, 3)], 90, 0));
}

#[test]
fn by_default_an_ended_process_is_shown_at_its_peak() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    writer.process(&process(2, Some(START + SECOND))).unwrap();
    let mut running = site(10, 1);
    running.at_peak_bytes = 99;
    let mut ended = site(0, 0);
    ended.at_peak_bytes = 77;
    ended.totals.alloc_count = 1;
    let mut only = interval(1, vec![(key(1, 1), running), (key(2, 1), ended)]);
    only.changes.layers = vec![
        ((ProcessId(1), Layer::Heap), layer(10, 99, 0)),
        ((ProcessId(2), Layer::Heap), layer(0, 77, 0)),
    ];
    writer.interval(&only).unwrap();
    writer.finish(START + SECOND).unwrap();

    let snapshot = Recording::open(&path)
        .unwrap()
        .snapshot(At::Default)
        .unwrap();
    let moments: Vec<_> = snapshot.processes.iter().map(|p| p.moment).collect();
    assert_eq!(moments, [Moment::End, Moment::Peak]);
    let live: Vec<_> = snapshot.sites.iter().map(|s| s.totals.live_bytes).collect();
    assert_eq!(live, [10, 77]);
}

#[test]
fn a_time_shows_the_last_interval_before_it() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    for n in 1..=3 {
        let mut next = interval(n, vec![(key(1, 1), site(100 * n, n))]);
        if n == 2 {
            next.changes.sites.push((key(1, 2), site(5, 1)));
        }
        next.changes.layers = vec![((ProcessId(1), Layer::Heap), layer(100 * n, 300, n))];
        next.losses[0].1 = n;
        writer.interval(&next).unwrap();
    }
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let at = |ns| recording.snapshot(At::Time(ns)).unwrap();
    let live = |snapshot: &Snapshot| {
        let sites = snapshot.sites.iter().map(|s| s.totals.live_bytes);
        sites.collect::<Vec<_>>()
    };
    assert_eq!(live(&at(SECOND / 2)), [0; 0]);
    let second = at(SECOND * 5 / 2);
    assert_eq!(live(&at(SECOND)), [100]);
    assert_eq!(live(&second), [200, 5]);
    assert_eq!(second.layers[0].totals.totals.live_bytes, 200);
    assert_eq!(second.losses[0].1, 2);
    assert_eq!(second.emitted, 20);
    assert_eq!(second.processes[0].moment, Moment::Time(START + 2 * SECOND));
    assert_eq!(second.sites[0].lifetimes, None);
    assert_eq!(live(&at(3 * SECOND)), [300, 5]);
    assert!(at(3 * SECOND).sites[0].lifetimes.is_some());
    let late = recording.snapshot(At::Time(4 * SECOND)).unwrap_err();
    assert!(late.to_string().contains("expected at most 3.0s"), "{late}");
}

#[test]
fn ages_stay_when_their_process_has_ended() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let mut first = interval(1, vec![(key(1, 1), site(2048, 2))]);
    let births = |bytes| Births {
        rows: vec![(START, bytes, 2)],
        ages: [0, 0, 2].into(),
    };
    first.births = vec![(key(1, 1), births(2048)), (key(1, 2), births(1023))];
    first.changes.sites.push((key(1, 2), site(1023, 1)));
    writer.interval(&first).unwrap();
    // A scan after the end records no ages.
    let mut second = interval(2, vec![(key(1, 1), site(0, 0))]);
    second.births = vec![(key(1, 1), Births::default())];
    writer.interval(&second).unwrap();
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let ages = recording.ages(1).unwrap().unwrap();
    assert_eq!(ages.time_ns, START + SECOND);
    assert_eq!(*ages.live, [0, 0, 2]);
    assert_eq!(ages.freed, site(2048, 2).lifetimes);
    assert_eq!(recording.ages(2).unwrap(), None);
}

#[test]
fn a_new_births_scan_replaces_the_old_one() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let births = |ns| Births {
        rows: vec![(ns, 1, 1)],
        ..Births::default()
    };
    let sites = vec![(key(1, 1), site(1, 1)), (key(1, 2), site(1, 1))];
    let mut first = interval(1, sites);
    first.births = vec![(key(1, 1), births(5)), (key(1, 2), births(6))];
    writer.interval(&first).unwrap();
    let mut second = interval(2, vec![]);
    second.births = vec![(key(1, 2), births(7))];
    writer.interval(&second).unwrap();
    drop(writer);

    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    assert_eq!(snapshot.sites[0].births, None);
    let kept = snapshot.sites[1].births.clone().unwrap();
    assert_eq!((kept.time_ns, kept.births), (START + 2 * SECOND, births(7)));
}

#[test]
fn every_end_of_a_stack_reads_back_and_an_unknown_one_is_an_error() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.location(LocationId(1), &[frame("main")]).unwrap();
    writer.nodes(NodeId(1), &[node(0, 1)]).unwrap();
    // Stack 0 is the one that is never written: it was lost.
    for (id, end) in (1..).zip(End::ALL) {
        let row = StackRow {
            id: StackId(id),
            node: NodeId(1),
            end,
            thread: None,
        };
        writer.stack(&row).unwrap();
    }
    let sites = (0..=End::ALL.len() as u32).map(|stack| (key(1, stack), site(1, 1)));
    writer.interval(&interval(1, sites.collect())).unwrap();
    writer.finish(START + SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let snapshot = recording.snapshot(At::End).unwrap();
    let stacks = snapshot.sites.iter();
    let ends: Vec<_> = stacks
        .map(|site| snapshot.stacks.get(site.key.stack).end())
        .collect();
    let written = End::ALL.into_iter().map(Some);
    assert_eq!(ends, [None].into_iter().chain(written).collect::<Vec<_>>());

    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE stack SET end = 'tired' WHERE id = 3", [])
        .unwrap();
    let error = recording.snapshot(At::End).unwrap_err().to_string();
    assert!(
        error.contains("test.mtr") && error.contains("unexpected value of `end`"),
        "{error}"
    );
}

#[test]
fn sites_are_followed_through_the_intervals_in_which_they_changed() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    for (n, sites) in [
        (1, vec![(key(1, 7), site(64, 3)), (key(1, 8), site(9, 1))]),
        (2, vec![]),
        (3, vec![(key(1, 7), site(128, 6))]),
    ] {
        writer.interval(&interval(n, sites)).unwrap();
    }
    writer.finish(START + 3 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    let intervals = recording.intervals().unwrap();
    let times: Vec<u64> = intervals.iter().map(|(_, time)| *time).collect();
    assert_eq!(times, [1, 2, 3].map(|n| START + n * SECOND));
    let mut present = Vec::new();
    recording
        .each_site(|number, site| present.push((number, site.key, site.totals)))
        .unwrap();
    let expected = [
        (1, key(1, 7), site(128, 6).totals),
        (2, key(1, 8), site(9, 1).totals),
    ];
    assert_eq!(present, expected);
    let mut changes = Vec::new();
    recording
        .site_changes(&[(1, key(1, 7))], |at, site| {
            changes.push((at, site.totals.live_bytes))
        })
        .unwrap();
    assert_eq!(changes, [(intervals[0].0, 64), (intervals[2].0, 128)]);
}

#[test]
fn facts_are_replaced_inherited_and_forgotten() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let fact = |process: Option<u32>, field: &str, value: &str| Fact {
        process: process.map(ProcessId),
        field: field.into(),
        value: value.into(),
    };
    let machine = fact(None, "thp.enabled", "always");
    let parent = fact(Some(0), "affinity.count", "2");
    writer
        .facts(&[machine.clone(), fact(Some(0), "affinity.count", "8")])
        .unwrap();
    writer
        .facts(&[parent.clone(), fact(Some(0), "lib.a.size", "1")])
        .unwrap();
    for child in [1, 2] {
        writer
            .inherit_facts(ProcessId(0), ProcessId(child))
            .unwrap();
    }
    writer.forget_facts(ProcessId(2)).unwrap();
    writer
        .facts(&[fact(Some(2), "affinity.count", "1")])
        .unwrap();
    writer.finish(START).unwrap();
    let expected = [
        machine,
        parent,
        fact(Some(0), "lib.a.size", "1"),
        fact(Some(1), "affinity.count", "2"),
        fact(Some(1), "lib.a.size", "1"),
        fact(Some(2), "affinity.count", "1"),
    ];
    assert_eq!(Recording::open(&path).unwrap().facts().unwrap(), expected);
}

#[test]
fn a_sites_series_has_the_changes_at_the_chosen_intervals() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    for n in 1..=6 {
        // The second site comes late, and the first does not change in the fifth interval.
        let mut sites = vec![(key(1, 1), site(10 * n, n))];
        if n >= 4 {
            sites.push((key(1, 2), site(7, 1)));
        }
        if n == 5 {
            sites.clear();
        }
        writer.interval(&interval(n, sites)).unwrap();
    }
    writer.finish(START + 6 * SECOND).unwrap();
    let recording = Recording::open(&path).unwrap();
    let series = recording.site_series(3).unwrap();
    assert_eq!(series.times_ns, [2, 4, 6].map(|n| START + n * SECOND));
    let live = |stack| -> Vec<(usize, u64)> {
        let points = series.sites[&key(1, stack)].iter();
        points
            .map(|(index, point)| (*index, point.live_bytes))
            .collect()
    };
    assert_eq!(live(1), [(0, 20), (1, 40), (2, 60)]);
    assert_eq!(live(2), [(1, 7), (2, 7)]);
    let points = &series.sites[&key(1, 1)];
    assert_eq!(points[2].1.alloc_count, 12);
    assert!(recording.site_series(100).unwrap().times_ns.len() == 6);
}

#[test]
fn frames_of_an_allocator_that_was_named_are_known_as_its_own() {
    let (_directory, path) = temporary();
    let meta = Meta {
        allocator_prefixes: vec!["fb_".into()],
        ..meta()
    };
    let mut writer = Writer::create(&path, false, &meta).unwrap();
    for (id, function) in [(1, "main"), (2, "fb_calloc")] {
        let location = LocationId(id);
        writer.location(location, &[frame(function)]).unwrap();
    }
    writer.nodes(NodeId(1), &[node(0, 1), node(1, 2)]).unwrap();
    let stack = StackRow {
        id: StackId(1),
        node: NodeId(2),
        end: End::Complete,
        thread: None,
    };
    writer.stack(&stack).unwrap();
    writer.interval(&interval(1, vec![])).unwrap();
    writer.finish(START + SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.meta().allocator_prefixes, ["fb_"]);
    let stacks = recording.snapshot(At::End).unwrap().stacks;
    let stack = stacks.get(StackId(1));
    let names = |frames: Vec<&Frame>| -> Vec<_> {
        frames
            .into_iter()
            .filter_map(|frame| frame.function.clone())
            .collect()
    };
    assert_eq!(names(stack.frames().collect()), ["fb_calloc", "main"]);
    assert_eq!(names(stack.shown(Fold::ALL)), ["main"]);
}

#[test]
fn metadata_without_named_allocators_is_unchanged() {
    let text = serde_json::to_string(&meta()).unwrap();
    assert!(!text.contains("allocator_prefixes"), "{text}");
    assert_eq!(serde_json::from_str::<Meta>(&text).unwrap(), meta());
}

#[test]
fn files_below_folders_of_packages_are_marked() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let files = ["/opt/packages/orm/session.py", "/opt/packages/handler.py"];
    let frames = files.map(|file| python("f", file, 1));
    writer.location(LocationId(1), &frames).unwrap();
    writer.nodes(NodeId(1), &[node(0, 1)]).unwrap();
    let row = StackRow {
        id: StackId(1),
        node: NodeId(1),
        end: End::Complete,
        thread: None,
    };
    writer.stack(&row).unwrap();
    let folders = Fact {
        process: Some(ProcessId(1)),
        field: PACKAGE_FOLDERS.into(),
        value: "/srv/other:/opt/packages".into(),
    };
    writer.facts(&[folders]).unwrap();
    writer.finish(START + SECOND).unwrap();
    let overview = Recording::open(&path).unwrap().overview().unwrap();
    let frames = overview.stacks.get(StackId(1)).frames();
    let marked: Vec<bool> = frames.map(|frame| frame.is_packaged).collect();
    assert_eq!(marked, [true, false]);
}
