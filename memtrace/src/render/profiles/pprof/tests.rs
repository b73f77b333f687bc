use std::io::Read;

use flate2::read::GzDecoder;

use super::{
    message::{Function, Location, Mapping},
    *,
};
use crate::{
    event::Layer,
    render::sums::{Sums, add, reported},
    view::fixture,
};

fn written(snapshot: &Snapshot, filter: &Filter) -> Profile {
    let mut out = Vec::new();
    let sites = pprof(&mut out, snapshot, filter).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&*out).read_to_end(&mut bytes).unwrap();
    let profile = Profile::decode(&*bytes).unwrap();
    assert_eq!(profile.sample.len(), sites);
    profile
}

impl Profile {
    fn location(&self, id: u64) -> &Location {
        self.location.iter().find(|of| of.id == id).unwrap()
    }

    fn function(&self, id: u64) -> &Function {
        self.function.iter().find(|of| of.id == id).unwrap()
    }

    fn mapping(&self, id: u64) -> &Mapping {
        self.mapping.iter().find(|of| of.id == id).unwrap()
    }

    /// `function file:line` of each line of each location.
    fn stack(&self, sample: &Sample) -> Vec<Vec<String>> {
        let line = |line: &message::Line| {
            let function = self.function(line.function_id);
            let [name, file] = [function.name, function.filename].map(|of| self.text(of));
            format!("{name} {file}:{}", line.line)
        };
        let locations = sample.location_id.iter().map(|id| self.location(*id));
        locations
            .map(|of| of.line.iter().map(line).collect())
            .collect()
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for sample in &self.sample {
            let value = |name: &str| {
                let mut types = self.sample_type.iter();
                let at = types.position(|of| self.text(of.r#type) == name).unwrap();
                sample.value[at] as u64
            };
            let names = [
                "alloc_space",
                "alloc_objects",
                "inuse_space",
                "inuse_objects",
            ];
            add(
                &mut sums,
                self.label(sample, "layer").unwrap(),
                names.map(value),
            );
        }
        sums
    }
}

#[test]
fn totals_are_those_of_the_report() {
    for filter in [
        Filter::default(),
        Filter {
            layer: Some(Layer::Heap),
            ..Filter::default()
        },
        Filter {
            pid: Some(fixture::CHILD),
            ..Filter::default()
        },
    ] {
        let snapshot = fixture::snapshot();
        let profile = written(&snapshot, &filter);
        assert_eq!(profile.sums(), reported(&snapshot, &filter));
    }
}

#[test]
fn viewers_find_the_types_and_the_time() {
    let profile = written(&fixture::snapshot(), &Filter::default());
    let types = profile.sample_type.iter();
    let types = types.map(|of| (profile.text(of.r#type), profile.text(of.unit)));
    let expected = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    assert_eq!(types.collect::<Vec<_>>(), expected);
    assert_eq!(profile.text(profile.default_sample_type), "inuse_space");
    assert_eq!(profile.time_nanos, 1_798_761_599_000_000_000);
    assert_eq!(profile.duration_nanos, 10_000_000_000);
    assert_eq!(profile.text(0), "");
}

#[test]
fn inlined_frames_are_lines_of_one_location() {
    let profile = written(&fixture::snapshot(), &Filter::default());
    let truncated = profile.sample.iter().find(|of| of.value[3] == 1 << 20);
    let stack = profile.stack(truncated.unwrap());
    let expected = [
        &["grow;it /src/leaker.c:7", "fill /src/leaker.c:7"][..],
        &["leaker+0x1234 :0"],
        &["main /src/leaker.c:7"],
        &["[incomplete: truncated] :0"],
    ];
    assert_eq!(stack, expected);
    let first = profile.location(truncated.unwrap().location_id[0]);
    let mapping = profile.mapping(first.mapping_id);
    assert_eq!(profile.text(mapping.filename), "/usr/bin/leaker");
    assert_eq!(first.address - mapping.memory_start, 0x1234);
    assert!(first.address < mapping.memory_limit);
    assert!(mapping.has_functions && mapping.has_line_numbers && mapping.has_inline_frames);
}

#[test]
fn files_have_mappings_of_their_own() {
    let mut snapshot = fixture::snapshot();
    let mut frames = fixture::frames(&snapshot, &snapshot.sites[1]);
    frames[3].build_id = Some("abcd".into());
    frames[0].module = Some("/lib/libc.so.6".into());
    frames[2].module = Some("/lib/libc.so.6".into());
    frames[2].file_offset = Some(u64::MAX);
    let stacks = &mut snapshot.stacks;
    stacks.put(
        snapshot.sites[1].key.stack,
        memtrace_common::unwind::End::Complete,
        None,
        frames,
    );
    let profile = written(&snapshot, &Filter::default());
    let mappings = profile.mapping.iter();
    let names = mappings.map(|of| (profile.text(of.filename), profile.text(of.build_id)));
    // Viewers take the first one for the program.
    let expected = [
        ("/usr/bin/leaker", ""),
        ("/usr/bin/leaker", "abcd"),
        ("/lib/libc.so.6", ""),
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

#[test]
fn python_frames_are_functions_and_sites_have_labels() {
    let mut snapshot = fixture::snapshot_of_python();
    snapshot.sites[1].key.device = Some(3);
    let profile = written(&snapshot, &Filter::default());
    let sample = profile
        .sample
        .iter()
        .find(|of| of.value[3] == 1 << 20)
        .unwrap();
    let expected = [
        ["list_resize /src/leaker.c:7"],
        ["Cache.fill /src/cache;1.py:41"],
        ["<module> /src/main.py:7"],
    ];
    assert_eq!(profile.stack(sample), expected);
    for (key, text) in [
        ("process", "leaker"),
        ("thread", "worker"),
        ("layer", "heap"),
        ("device", "3"),
    ] {
        assert_eq!(profile.label(sample, key), Some(text));
    }
    let pid = sample.label.iter().find(|of| profile.text(of.key) == "pid");
    assert_eq!(pid.unwrap().num, i64::from(fixture::PARENT));
    let by_allocator = profile
        .sample
        .iter()
        .find(|of| of.value[3] == 8192)
        .unwrap();
    assert_eq!(
        profile.label(by_allocator, "layer"),
        Some("vm (by allocator)")
    );
    assert_eq!(profile.label(by_allocator, "device"), None);
}
