//! Perfetto's `trace.proto`, with the rules by which its trace processor drops what it cannot place.

use std::collections::BTreeMap;

use prost::Message;

use super::{Totals, add};

/// # Panics
/// Unless it is a trace.
#[track_caller]
pub fn read(bytes: &[u8]) -> Trace {
    Trace::decode(bytes).expect("a trace")
}

#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
    #[prost(message, optional, tag = "37")]
    profile: Option<ProfilePacket>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(uint64, tag = "11")]
    track: u64,
    #[prost(int64, tag = "30")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Track {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Interned {
    #[prost(message, repeated, tag = "6")]
    frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    stacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "19")]
    mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, tag = "3")]
    mapping: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Callstack {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, repeated, tag = "2")]
    frames: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    iid: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProfilePacket {
    #[prost(message, repeated, tag = "5")]
    heaps: Vec<Heap>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Heap {
    #[prost(uint64, tag = "1")]
    pid: u64,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<HeapSample>,
    #[prost(string, tag = "11")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeapSample {
    #[prost(uint64, tag = "1")]
    stack: u64,
    #[prost(uint64, tag = "2")]
    allocated: u64,
    #[prost(uint64, tag = "3")]
    freed: u64,
    #[prost(uint64, tag = "5")]
    allocations: u64,
    #[prost(uint64, tag = "6")]
    frees: u64,
}

impl Interned {
    /// Whether every reference leads to something.
    fn knows(&self, stack: u64) -> bool {
        let known = |id: &u64| {
            let frame = self.frames.iter().find(|of| of.iid == *id);
            frame.is_some_and(|frame| self.mappings.iter().any(|of| of.iid == frame.mapping))
        };
        let stack = self.stacks.iter().find(|of| of.iid == stack);
        stack.is_some_and(|stack| !stack.frames.is_empty() && stack.frames.iter().all(known))
    }
}

impl Trace {
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::new();
        for packet in &self.packets {
            let Some(profile) = &packet.profile else {
                continue;
            };
            let interned = packet.interned.as_ref().expect("stacks");
            for heap in &profile.heaps {
                for of in heap.samples.iter().filter(|of| interned.knows(of.stack)) {
                    let live = of.allocated - of.freed;
                    let blocks = of.allocations - of.frees;
                    let figures = [live, of.allocated, blocks, of.allocations];
                    add(&mut totals, heap.pid as u32, &heap.name, figures);
                }
            }
        }
        totals
    }

    /// The largest value of the tracks of each name.
    #[must_use]
    pub fn largest(&self) -> BTreeMap<&str, i64> {
        let mut largest = BTreeMap::new();
        for event in self.packets.iter().filter_map(|of| of.event.as_ref()) {
            let mut tracks = self.packets.iter().filter_map(|of| of.track.as_ref());
            let track = tracks.find(|of| of.uuid == event.track).expect("a track");
            let known = largest.entry(track.name.as_str()).or_insert(0);
            *known = event.value.max(*known);
        }
        largest
    }
}
