use super::{
    message::{Callstack, Frame, InternedData, Mapping},
    *,
};
use crate::{
    event::Layer,
    render::sums::{Sums, add, reported},
    view::fixture,
};

const SECOND: u64 = 1_000_000_000;

fn written(snapshot: &Snapshot, filter: &Filter, course: &Course) -> Trace {
    let mut out = Vec::new();
    let sites = perfetto(&mut out, snapshot, filter, course).unwrap();
    assert!(sites > 0);
    Trace::decode(&*out).unwrap()
}

fn without_course(snapshot: &Snapshot, filter: &Filter) -> Trace {
    written(snapshot, filter, &Course::default())
}

/// Name of the process and of the track, and the points of a track.
type Counter = (String, String, Vec<(u64, i64)>);

impl Trace {
    fn heaps(&self) -> &[ProcessHeapSamples] {
        let mut packets = self.packet.iter();
        let profile = packets.find_map(|of| of.profile_packet.as_ref());
        &profile.unwrap().process_dumps
    }

    fn data(&self) -> &InternedData {
        let mut packets = self.packet.iter();
        packets.find_map(|of| of.interned_data.as_ref()).unwrap()
    }

    fn callstack(&self, iid: u64) -> Vec<&Frame> {
        let data = self.data();
        let stack: &Callstack = data.callstacks.iter().find(|of| of.iid == iid).unwrap();
        let frame = |id: &u64| data.frames.iter().find(|of| of.iid == *id).unwrap();
        stack.frame_ids.iter().map(frame).collect()
    }

    fn mapping(&self, iid: u64) -> &Mapping {
        let mut mappings = self.data().mappings.iter();
        mappings.find(|of| of.iid == iid).unwrap()
    }

    fn name(&self, frame: &Frame) -> String {
        let mut names = self.data().function_names.iter();
        let name = names.find(|of| of.iid == frame.function_name_id).unwrap();
        String::from_utf8(name.str.clone()).unwrap()
    }

    fn counters(&self) -> Vec<Counter> {
        let tracks = self
            .packet
            .iter()
            .filter_map(|of| of.track_descriptor.as_ref());
        let process = |uuid: u64| {
            let mut tracks = tracks.clone();
            let parent = tracks.find(|of| of.uuid == uuid).unwrap();
            parent.process.clone().unwrap().process_name
        };
        let counters = tracks.clone().filter(|of| of.counter.is_some());
        let counters = counters.map(|track| {
            let events = self.packet.iter().filter_map(|of| {
                let event = of
                    .track_event
                    .filter(|event| event.track_uuid == track.uuid)?;
                assert_eq!(event.r#type, COUNTER);
                Some((of.timestamp.unwrap(), event.counter_value.unwrap()))
            });
            let parent = process(track.parent_uuid.unwrap());
            (parent, track.name.clone(), events.collect())
        });
        counters.collect()
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for heap in self.heaps() {
            for of in &heap.samples {
                let live = of.self_allocated - of.self_freed;
                let blocks = of.alloc_count - of.free_count;
                let figures = [of.self_allocated, of.alloc_count, live, blocks];
                add(&mut sums, &heap.heap_name, figures);
            }
        }
        sums
    }
}

#[test]
fn totals_are_those_of_the_report() {
    let heap = Filter {
        layer: Some(Layer::Heap),
        ..Filter::default()
    };
    let child = Filter {
        pid: Some(fixture::CHILD),
        ..Filter::default()
    };
    for filter in [Filter::default(), heap, child] {
        let snapshot = fixture::snapshot();
        let trace = without_course(&snapshot, &filter);
        assert_eq!(trace.sums(), reported(&snapshot, &filter));
    }
}

#[test]
fn blocks_are_right_where_a_mapping_became_two() {
    let mut snapshot = fixture::snapshot();
    let site = &mut snapshot.sites[0];
    (site.totals.alloc_count, site.totals.live_count) = (1, 2);
    let (layer, live) = (site.key.layer, snapshot.sites.iter());
    let live = live.filter(|of| of.key.layer == layer);
    let live: u64 = live.map(|of| of.totals.live_count).sum();
    let only = Filter {
        layer: Some(layer),
        ..Filter::default()
    };
    let trace = without_course(&snapshot, &only);
    let samples = trace.heaps().iter().flat_map(|heap| &heap.samples);
    let blocks: u64 = samples.map(|of| of.alloc_count - of.free_count).sum();
    assert_eq!(blocks, live);
}

#[test]
fn every_frame_has_a_mapping_and_stacks_begin_at_the_root() {
    let mut snapshot = fixture::snapshot_of_python();
    let id = snapshot.sites[1].key.stack;
    let mut frames = fixture::frames(&snapshot, &snapshot.sites[1]);
    frames[1].build_id = Some("00abcd".into());
    let end = snapshot.stacks.get(id).end().unwrap();
    snapshot.stacks.put(id, end, Some("worker"), frames);
    let trace = without_course(&snapshot, &Filter::default());
    for frame in &trace.data().frames {
        trace.mapping(frame.mapping_id);
        assert!(!trace.name(frame).is_empty());
    }
    let heap = trace.heaps().iter();
    let mut heap = heap.filter(|of| of.heap_name == "heap" && of.pid == u64::from(fixture::PARENT));
    let samples = &heap.next().unwrap().samples;
    let mut samples = samples.iter();
    let largest = samples.find(|of| of.self_allocated - of.self_freed == 1 << 20);
    let stack = trace.callstack(largest.unwrap().callstack_id);
    let names: Vec<_> = stack.iter().map(|frame| trace.name(frame)).collect();
    assert_eq!(names, ["<module>", "Cache.fill", "list_resize"]);
    let leaf = stack[2];
    assert_eq!((leaf.rel_pc, leaf.line_number), (0x1234, 7));
    let mapping = trace.mapping(leaf.mapping_id);
    let build_ids = &trace.data().build_ids;
    let build_id = build_ids.iter().find(|of| of.iid == mapping.build_id);
    assert_eq!(build_id.unwrap().str, [0, 0xab, 0xcd]);
    let paths = &trace.data().mapping_paths;
    let path = paths.iter().find(|of| of.iid == mapping.path_string_ids[0]);
    assert_eq!(path.unwrap().str, b"/usr/bin/leaker");
    assert!(
        trace
            .mapping(stack[1].mapping_id)
            .path_string_ids
            .is_empty()
    );
}

#[test]
fn a_stack_is_in_a_profile_once() {
    let mut snapshot = fixture::snapshot();
    // A pid came back, and the new process allocates at the same place.
    snapshot.processes[1].row.tgid = fixture::PARENT;
    snapshot.sites[3].key.stack = snapshot.sites[1].key.stack;
    let trace = without_course(&snapshot, &Filter::default());
    for heap in trace.heaps() {
        let mut ids: Vec<_> = heap.samples.iter().map(|of| of.callstack_id).collect();
        let before = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), before);
    }
    assert_eq!(trace.sums(), reported(&snapshot, &Filter::default()));
}

#[test]
fn memory_has_a_track_with_the_times_of_the_recording() {
    let snapshot = fixture::snapshot();
    let started = snapshot.meta.started_ns;
    let times = [1, 4, 8].map(|seconds| started + seconds * SECOND);
    let sample = |rss| MemorySample {
        rss_anon: Some(rss),
        rss_file: Some(5),
        ..MemorySample::default()
    };
    let course = Course {
        live: Courses {
            times_ns: times.to_vec(),
            layers: [
                ((ProcessId(1), Layer::Heap, false), vec![10, 20, 30]),
                ((ProcessId(1), Layer::Vm, true), vec![7, 7, 7]),
                ((ProcessId(2), Layer::Heap, false), vec![1, 2, 0]),
            ]
            .into(),
            ..Courses::default()
        },
        memory: [(
            ProcessId(1),
            vec![(times[0], sample(100)), (times[1], sample(200))],
        )]
        .into(),
    };
    let trace = written(&snapshot, &Filter::default(), &course);
    let track = |process: &str, name: &str, points: &[(usize, i64)]| {
        let points = points.iter().map(|(at, value)| (times[*at], *value));
        (
            process.to_owned(),
            name.to_owned(),
            points.collect::<Vec<_>>(),
        )
    };
    // The child ended after 5 s.
    let mut child = track("leaker", "live bytes: heap", &[(0, 1), (1, 2)]);
    child.2.push((started + 5 * SECOND, 0));
    let expected = [
        track("leaker", "resident memory", &[(0, 105), (1, 205)]),
        track(
            "leaker",
            "live bytes: vm (by allocator)",
            &[(0, 7), (1, 7), (2, 7)],
        ),
        track("leaker", "live bytes: heap", &[(0, 10), (1, 20), (2, 30)]),
        child,
    ];
    assert_eq!(trace.counters(), expected);
    let clocks = trace.packet[0].clock_snapshot.clone().unwrap();
    let clock = |id| clocks.clocks.iter().find(|of| of.clock_id == id).unwrap();
    assert_eq!(clock(MONOTONIC).timestamp, started);
    assert_eq!(clock(REALTIME).timestamp, snapshot.meta.started_unix_ns);
    let heap = Filter {
        layer: Some(Layer::Heap),
        pid: Some(fixture::CHILD),
        ..Filter::default()
    };
    let trace = written(&snapshot, &heap, &course);
    assert_eq!(trace.counters(), expected[3..]);
}

#[test]
fn lists_of_numbers_are_not_packed() {
    let stack = Callstack {
        iid: 1,
        frame_ids: vec![3, 4],
    };
    assert_eq!(stack.encode_to_vec(), [0x08, 1, 0x10, 3, 0x10, 4]);
}
