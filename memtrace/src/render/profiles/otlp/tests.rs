use super::*;
use crate::{
    event::Layer,
    render::sums::{Sums, add, reported},
    view::fixture,
};

fn written(snapshot: &Snapshot, filter: &Filter) -> ProfilesData {
    let mut out = Vec::new();
    otlp(&mut out, snapshot, filter).unwrap();
    ProfilesData::decode(&*out).unwrap()
}

impl ProfilesData {
    fn tables(&self) -> &ProfilesDictionary {
        self.dictionary.as_ref().unwrap()
    }

    fn text(&self, place: i32) -> &str {
        &self.tables().string_table[place as usize]
    }

    fn attribute(&self, places: &[i32], key: &str) -> Option<&str> {
        let table = &self.tables().attribute_table;
        let mut found = places.iter().map(|place| &table[*place as usize]);
        let found = found.find(|of| self.text(of.key) == key)?;
        match found.value.as_ref()?.value.as_ref()? {
            Value::Text(text) => Some(text),
            Value::Number(_) => None,
        }
    }

    fn profiles(&self) -> impl Iterator<Item = &Profile> {
        let scopes = self
            .resource_profiles
            .iter()
            .flat_map(|of| &of.scope_profiles);
        scopes.flat_map(|of| &of.profiles)
    }

    fn sums(&self) -> Sums {
        let names = [
            "alloc_space",
            "alloc_objects",
            "inuse_space",
            "inuse_objects",
        ];
        let mut sums = Sums::new();
        for profile in self.profiles() {
            let name = self.text(profile.sample_type.unwrap().r#type);
            for sample in &profile.samples {
                let layer = self
                    .attribute(&sample.attributes, "memtrace.layer")
                    .unwrap();
                let value = |of| {
                    if of == name {
                        sample.values[0] as u64
                    } else {
                        0
                    }
                };
                add(&mut sums, layer, names.map(value));
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
    for filter in [Filter::default(), heap] {
        let snapshot = fixture::snapshot();
        let sums = written(&snapshot, &filter).sums();
        assert_eq!(sums, reported(&snapshot, &filter));
    }
}

#[test]
fn first_entries_of_tables_are_empty() {
    let data = written(&fixture::snapshot(), &Filter::default());
    let tables = data.tables();
    assert_eq!(tables.mapping_table[0], Mapping::default());
    assert_eq!(tables.location_table[0], Location::default());
    assert_eq!(tables.function_table[0], Function::default());
    assert_eq!(tables.link_table, [Link::default()]);
    assert_eq!(tables.string_table[0], "");
    assert_eq!(tables.attribute_table[0], KeyValueAndUnit::default());
    assert_eq!(tables.stack_table[0], Stack::default());
}

#[test]
fn samples_have_stacks_and_processes_are_resources() {
    let mut snapshot = fixture::snapshot_of_python();
    let id = snapshot.sites[1].key.stack;
    snapshot.sites[1].key.device = Some(3);
    let mut frames = fixture::frames(&snapshot, &snapshot.sites[1]);
    frames[1].build_id = Some("abcd".into());
    let end = snapshot.stacks.get(id).end().unwrap();
    snapshot.stacks.put(id, end, Some("worker"), frames);
    let data = written(&snapshot, &Filter::default());
    let names: Vec<(&str, Option<i64>)> = data
        .resource_profiles
        .iter()
        .map(|of| {
            let attributes = &of.resource.as_ref().unwrap().attributes;
            let value = |key: &str| {
                let found = attributes.iter().find(|of| of.key == key)?;
                found.value.as_ref()?.value.as_ref()
            };
            let Some(Value::Text(name)) = value("service.name") else {
                panic!("{attributes:?}");
            };
            let pid = value("process.pid").map(|of| match of {
                Value::Number(pid) => *pid,
                Value::Text(text) => panic!("{text}"),
            });
            (name.as_str(), pid)
        })
        .collect();
    let expected = [("leaker", 4242), ("leaker", 4243)].map(|(name, pid)| (name, Some(pid)));
    assert_eq!(names, expected);

    let mut live = data.profiles().filter(|of| {
        let name = data.text(of.sample_type.unwrap().r#type);
        name == "inuse_space"
    });
    let live = live.next().unwrap();
    assert_eq!(live.time_unix_nano, 1_798_761_599_000_000_000);
    assert_eq!(live.duration_nano, 10_000_000_000);
    let sample = live
        .samples
        .iter()
        .find(|of| of.values == [1 << 20])
        .unwrap();
    for (key, value) in [
        ("memtrace.layer", "heap"),
        ("memtrace.device", "3"),
        ("thread.name", "worker"),
    ] {
        assert_eq!(data.attribute(&sample.attributes, key), Some(value));
    }
    let tables = data.tables();
    let stack = &tables.stack_table[sample.stack as usize].locations;
    let lines: Vec<String> = stack
        .iter()
        .map(|place| {
            let location = &tables.location_table[*place as usize];
            let function = &tables.function_table[location.lines[0].function as usize];
            format!("{} {}", data.text(function.name), location.lines[0].line)
        })
        .collect();
    assert_eq!(lines, ["list_resize 7", "Cache.fill 41", "<module> 7"]);
    let mapping = tables.location_table[stack[0] as usize].mapping;
    let mapping = &tables.mapping_table[mapping as usize];
    assert_eq!(data.text(mapping.filename), "/usr/bin/leaker");
    assert_eq!(data.attribute(&mapping.attributes, BUILD_ID), Some("abcd"));
}

#[test]
fn sites_that_look_the_same_are_one_sample() {
    let mut snapshot = fixture::snapshot();
    // A pid came back, and the new process allocates at the same place.
    snapshot.processes[1].row.tgid = fixture::PARENT;
    snapshot.sites[3].key.stack = snapshot.sites[1].key.stack;
    let data = written(&snapshot, &Filter::default());
    let live = data.profiles().nth(3).unwrap();
    let values: Vec<i64> = live.samples.iter().map(|of| of.values[0]).collect();
    assert!(values.contains(&((1 << 20) + 100)), "{values:?}");
    assert_eq!(data.sums(), reported(&snapshot, &Filter::default()));
}
