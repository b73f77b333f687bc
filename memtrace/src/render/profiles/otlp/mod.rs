//! OpenTelemetry's format: a resource for each process, with a profile for each type of samples. The tables are those of
//! pprof's format.

pub(crate) mod message;

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
};

use prost::Message;

use self::message::{
    AnyValue, Function, KeyValue, KeyValueAndUnit, Line, Link, Location, Mapping, Profile,
    ProfilesData, ProfilesDictionary, Resource, ResourceProfiles, Sample, Scope, ScopeProfiles,
    Stack, Value, ValueType,
};
use super::{
    pprof::{self, message as pb},
    strings::Strings,
};
use crate::{
    recording::Snapshot,
    render::{Error, until_closed},
    view::Filter,
};

/// Attributes of samples, and the labels in pprof's format.
const ATTRIBUTES: [(&str, &str); 3] = [
    ("thread.name", "thread"),
    ("memtrace.layer", "layer"),
    ("memtrace.device", "device"),
];
const BUILD_ID: &str = "process.executable.build_id.gnu";

/// Writes a profile of each type for each process of the sites that pass `filter`, and returns how many sites these
/// are.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn otlp(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<usize, Error> {
    let profile = pprof::profile(snapshot, filter)?;
    let sites = profile.sample.len();
    let data = data(profile, snapshot);
    let written = out
        .write_all(&data.encode_to_vec())
        .and_then(|()| out.flush());
    until_closed(written)?;
    Ok(sites)
}

fn data(profile: pb::Profile, snapshot: &Snapshot) -> ProfilesData {
    let mut tables = Tables {
        attributes: vec![KeyValueAndUnit::default()],
        attribute_places: HashMap::new(),
        stacks: vec![Stack::default()],
        stack_places: HashMap::new(),
        strings: Strings::from(profile.string_table.clone()),
    };
    let mut processes: BTreeMap<(Option<i64>, &str), Vec<&pb::Sample>> = BTreeMap::new();
    for sample in &profile.sample {
        let process = profile.label(sample, "process").unwrap_or_default();
        let key = (profile.pid(sample), process);
        processes.entry(key).or_default().push(sample);
    }
    let resource_profiles = processes
        .into_iter()
        .map(|((pid, name), samples)| ResourceProfiles {
            resource: Some(resource(pid, name, &snapshot.meta.host)),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(Scope {
                    name: "memtrace".into(),
                    version: snapshot.meta.version.clone(),
                }),
                profiles: tables.profiles(&profile, &samples),
            }],
        })
        .collect();
    ProfilesData {
        resource_profiles,
        dictionary: Some(tables.dictionary(&profile)),
    }
}

fn resource(pid: Option<i64>, process: &str, host: &str) -> Resource {
    let of = |key: &str, value: Value| KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
    };
    let mut attributes = vec![
        of("service.name", Value::Text(process.into())),
        of("process.executable.name", Value::Text(process.into())),
        of("host.name", Value::Text(host.into())),
    ];
    attributes.extend(pid.map(|pid| of("process.pid", Value::Number(pid))));
    Resource { attributes }
}

struct Tables {
    attributes: Vec<KeyValueAndUnit>,
    attribute_places: HashMap<(i64, String), i32>,
    stacks: Vec<Stack>,
    stack_places: HashMap<Vec<u64>, i32>,
    strings: Strings,
}

impl Tables {
    /// A profile for each type of samples.
    fn profiles(&mut self, profile: &pb::Profile, samples: &[&pb::Sample]) -> Vec<Profile> {
        let identities: Vec<(i32, Vec<i32>)> = samples
            .iter()
            .map(|sample| (self.stack(sample), self.attributes_of(profile, sample)))
            .collect();
        let types = profile.sample_type.iter().enumerate();
        let profiles = types.map(|(at, of)| {
            // Sites that differ in nothing that the format has are one sample.
            let mut values: BTreeMap<&(i32, Vec<i32>), i64> = BTreeMap::new();
            for (sample, identity) in samples.iter().zip(&identities) {
                let value = sample.value.get(at).copied().unwrap_or_default();
                if value > 0 {
                    let sum = values.entry(identity).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
            let samples = values.into_iter();
            let samples = samples.map(|((stack, attributes), value)| Sample {
                stack: *stack,
                attributes: attributes.clone(),
                values: vec![value],
            });
            Profile {
                sample_type: Some(value_type(*of)),
                samples: samples.collect(),
                time_unix_nano: profile.time_nanos.cast_unsigned(),
                duration_nano: profile.duration_nanos.cast_unsigned(),
                period_type: profile.period_type.map(value_type),
                period: profile.period,
            }
        });
        profiles.collect()
    }

    fn stack(&mut self, sample: &pb::Sample) -> i32 {
        let next = place(self.stacks.len());
        let at = *self
            .stack_places
            .entry(sample.location_id.clone())
            .or_insert(next);
        if at == next {
            let locations = sample.location_id.iter();
            self.stacks.push(Stack {
                locations: locations.map(|id| place(*id)).collect(),
            });
        }
        at
    }

    fn attributes_of(&mut self, profile: &pb::Profile, sample: &pb::Sample) -> Vec<i32> {
        let known = ATTRIBUTES.iter();
        let known = known.filter_map(|(key, label)| Some((key, profile.label(sample, label)?)));
        known
            .map(|(key, value)| self.attribute(key, value))
            .collect()
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let key = self.strings.place(key);
        let next = place(self.attributes.len());
        let at = *self
            .attribute_places
            .entry((key, value.to_owned()))
            .or_insert(next);
        if at == next {
            self.attributes.push(KeyValueAndUnit {
                key: place(key),
                value: Some(AnyValue {
                    value: Some(Value::Text(value.to_owned())),
                }),
            });
        }
        at
    }

    /// Ids of pprof's format count from 1, so they are the places behind the empty first entry.
    fn dictionary(mut self, profile: &pb::Profile) -> ProfilesDictionary {
        let mut mappings = profile.mapping.clone();
        mappings.sort_unstable_by_key(|mapping| mapping.id);
        let mappings = mappings.iter().map(|of| {
            let build_id = profile.text(of.build_id);
            let build_id = (!build_id.is_empty()).then(|| self.attribute(BUILD_ID, build_id));
            Mapping {
                memory_start: of.memory_start,
                memory_limit: of.memory_limit,
                filename: place(of.filename),
                attributes: build_id.into_iter().collect(),
            }
        });
        let mapping_table = after_empty(mappings);
        let locations = profile.location.iter().map(|of| Location {
            mapping: place(of.mapping_id),
            address: of.address,
            lines: of.line.iter().map(line).collect(),
        });
        let functions = profile.function.iter().map(|of| Function {
            name: place(of.name),
            system_name: place(of.system_name),
            filename: place(of.filename),
        });
        ProfilesDictionary {
            mapping_table,
            location_table: after_empty(locations),
            function_table: after_empty(functions),
            link_table: vec![Link::default()],
            string_table: self.strings.into_list(),
            attribute_table: self.attributes,
            stack_table: self.stacks,
        }
    }
}

fn after_empty<T: Default>(entries: impl Iterator<Item = T>) -> Vec<T> {
    std::iter::once(T::default()).chain(entries).collect()
}

fn line(of: &pb::Line) -> Line {
    Line {
        function: place(of.function_id),
        line: of.line,
    }
}

fn value_type(of: pb::ValueType) -> ValueType {
    ValueType {
        r#type: place(of.r#type),
        unit: place(of.unit),
    }
}

/// Tables are far smaller than the limit: a recording of two billion frames could not be read.
fn place(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests;
