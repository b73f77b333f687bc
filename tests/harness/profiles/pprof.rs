//! pprof's `profile.proto`.

use std::{collections::BTreeMap, io::Read};

use flate2::read::GzDecoder;
use prost::Message;

use super::{Totals, add};

/// # Panics
/// Unless it is a compressed profile.
#[track_caller]
pub fn read(packed: &[u8]) -> Profile {
    let mut bytes = Vec::new();
    let mut unpacked = GzDecoder::new(packed);
    unpacked.read_to_end(&mut bytes).expect("gzip");
    Profile::decode(&*bytes).expect("a profile")
}

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    name: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
    #[prost(int64, tag = "3")]
    number: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    file: i64,
}

impl Profile {
    fn text(&self, place: i64) -> &str {
        &self.strings[place as usize]
    }

    pub fn totals(&self) -> Totals {
        let types = [
            "inuse_space",
            "alloc_space",
            "inuse_objects",
            "alloc_objects",
        ];
        let mut totals = Totals::new();
        for sample in &self.samples {
            let label = |key: &str| {
                let mut labels = sample.labels.iter();
                labels.find(|of| self.text(of.key) == key).expect(key)
            };
            let figures = types.map(|name| {
                let mut types = self.types.iter();
                let at = types.position(|of| self.text(of.name) == name);
                sample.values[at.expect(name)] as u64
            });
            let pid = label("pid").number as u32;
            add(&mut totals, pid, self.text(label("layer").text), figures);
        }
        totals
    }

    /// The live bytes below a function, and the files and lines of its frames.
    pub fn below(&self, name: &str) -> (i64, Vec<(&str, i64)>) {
        let functions = self.functions.iter();
        let of_name = functions.filter(|of| self.text(of.name) == name);
        let of_name: BTreeMap<u64, &Function> = of_name.map(|of| (of.id, of)).collect();
        let (mut live, mut places) = (0, Vec::new());
        for sample in &self.samples {
            let locations = sample.locations.iter();
            let locations =
                locations.filter_map(|id| self.locations.iter().find(|of| of.id == *id));
            let lines = locations.flat_map(|of| &of.lines);
            let found = lines.filter_map(|line| Some((of_name.get(&line.function)?, line.line)));
            let found: Vec<_> = found.map(|(of, line)| (self.text(of.file), line)).collect();
            if !found.is_empty() {
                live += sample.values.last().expect("four values");
                places.extend(found);
            }
        }
        (live, places)
    }
}
