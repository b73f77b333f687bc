//! OpenTelemetry's `profiles.proto`, v1development.

use prost::{Message, Oneof};

use super::{METRICS, Totals, add};

/// # Panics
/// Unless it is such a message.
#[track_caller]
pub fn read(bytes: &[u8]) -> ProfilesData {
    ProfilesData::decode(bytes).expect("profiles")
}

#[derive(Clone, PartialEq, Message)]
pub struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    dictionary: Option<Dictionary>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dictionary {
    #[prost(string, repeated, tag = "5")]
    strings: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValueAndUnit>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeProfiles {
    #[prost(message, repeated, tag = "2")]
    profiles: Vec<Profile>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, optional, tag = "1")]
    of: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int32, tag = "1")]
    name: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(int32, repeated, tag = "2")]
    attributes: Vec<i32>,
    #[prost(int64, repeated, tag = "4")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValueAndUnit {
    #[prost(int32, tag = "1")]
    key: i32,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl ResourceProfiles {
    fn pid(&self) -> u32 {
        let attributes = self.resource.iter().flat_map(|of| &of.attributes);
        let mut pids = attributes.filter(|of| of.key == "process.pid");
        let value = pids.next().and_then(|of| of.value.as_ref()?.value.clone());
        match value {
            Some(Value::Number(pid)) => pid as u32,
            other => panic!("no pid: {other:?}"),
        }
    }
}

impl ProfilesData {
    #[must_use]
    pub fn totals(&self) -> Totals {
        let dictionary = self.dictionary.as_ref().expect("a dictionary");
        let text = |place: i32| dictionary.strings[place as usize].as_str();
        let names = [
            "inuse_space",
            "alloc_space",
            "inuse_objects",
            "alloc_objects",
        ];
        let mut totals = Totals::new();
        for resource in &self.resources {
            let pid = resource.pid();
            for profile in resource.scopes.iter().flat_map(|of| &of.profiles) {
                let name = text(profile.of.as_ref().expect("a type").name);
                let at = names.iter().position(|of| *of == name).expect(name);
                for sample in &profile.samples {
                    let attributes = sample.attributes.iter();
                    let mut attributes =
                        attributes.map(|place| &dictionary.attributes[*place as usize]);
                    let layer = attributes.find(|of| text(of.key) == "memtrace.layer");
                    let value = layer.and_then(|of| of.value.as_ref()?.value.as_ref());
                    let Some(Value::Text(layer)) = value else {
                        panic!("no layer: {sample:?}");
                    };
                    let mut figures = [0; METRICS.len()];
                    figures[at] = sample.values[0] as u64;
                    add(&mut totals, pid, layer, figures);
                }
            }
        }
        totals
    }
}
