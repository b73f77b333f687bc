//! Perfetto's format: a heap profile of each layer of each process at the chosen moment, and tracks of memory over time.

mod message;
mod tables;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Write,
};

use prost::Message;

use self::{
    message::{
        BOOTTIME, BYTES, CLEARED, COUNTER, Clock, ClockSnapshot, CounterDescriptor, HeapSample,
        MONOTONIC, MONOTONIC_COARSE, NEEDS_EARLIER, ProcessDescriptor, ProcessHeapSamples,
        ProfilePacket, REALTIME, Trace, TracePacket, TrackDescriptor, TrackEvent,
    },
    tables::Tables,
};
use super::pprof::{self, message as pb};
use crate::{
    analysis::courses::Courses,
    escape::clean,
    ledger::ProcessId,
    recording::{self, MemorySample, ProcessRow, Recording, Snapshot},
    render::{Error, collapsed, group_name, until_closed},
    view::Filter,
};

/// Groups of processes have no pid: they get numbers above those that Linux gives (its PID_MAX_LIMIT).
const GROUPS: i64 = 1 << 22;

/// Memory over the recording's time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    pub(crate) live: Courses,
    /// By process, in order of time.
    pub(crate) memory: HashMap<ProcessId, Vec<(u64, MemorySample)>>,
}

impl Course {
    /// Reads it.
    pub(crate) fn read(
        recording: &Recording,
        snapshot: &Snapshot,
    ) -> Result<Course, recording::Error> {
        let ids = snapshot.processes.iter().map(|process| process.row.id);
        let memory = ids.map(|id| Ok((id, recording.memory(id)?)));
        Ok(Course {
            memory: memory.collect::<Result<_, recording::Error>>()?,
            live: Courses::read(recording, snapshot, &HashSet::new())?,
        })
    }
}

/// Writes the heap profiles of the sites that pass `filter`, and the tracks of their layers and processes, and returns
/// how many sites these are.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn perfetto(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    course: &Course,
) -> Result<usize, Error> {
    let profile = pprof::profile(snapshot, filter)?;
    let mut packets = vec![clocks(snapshot)];
    packets.extend(tracks(snapshot, filter, course));
    packets.push(heaps(&profile, snapshot));
    let trace = Trace { packet: packets };
    let written = out
        .write_all(&trace.encode_to_vec())
        .and_then(|()| out.flush());
    until_closed(written)?;
    Ok(profile.sample.len())
}

/// The first packet. The recording does not have the clock of most traces, which runs during suspend too; without it
/// readers could not place the other times.
fn clocks(snapshot: &Snapshot) -> TracePacket {
    let started_ns = snapshot.meta.started_ns;
    let clock = |clock_id, timestamp| Clock {
        clock_id,
        timestamp,
    };
    TracePacket {
        clock_snapshot: Some(ClockSnapshot {
            clocks: vec![
                clock(MONOTONIC, started_ns),
                clock(MONOTONIC_COARSE, started_ns),
                clock(BOOTTIME, started_ns),
                clock(REALTIME, snapshot.meta.started_unix_ns),
            ],
            primary_trace_clock: MONOTONIC,
        }),
        sequence_flags: CLEARED,
        ..at(started_ns)
    }
}

/// A packet of this time, CLOCK_MONOTONIC ns.
fn at(time_ns: u64) -> TracePacket {
    TracePacket {
        timestamp: Some(time_ns),
        timestamp_clock_id: Some(MONOTONIC),
        trusted_packet_sequence_id: 1,
        ..TracePacket::default()
    }
}

/// The heap profiles, with everything that they refer to.
fn heaps(profile: &pb::Profile, snapshot: &Snapshot) -> TracePacket {
    let mut tables = Tables::new(profile);
    let groups = snapshot.processes.iter().map(|process| &process.row);
    let groups: HashMap<String, i64> = groups
        .filter(|row| row.is_group())
        .map(|row| (group_name(row), pid(row)))
        .collect();
    // Readers expect a stack once in each profile.
    let mut heaps: BTreeMap<(i64, &str), BTreeMap<u64, HeapSample>> = BTreeMap::new();
    for sample in &profile.sample {
        let of_group = || {
            let name = profile.label(sample, "process")?;
            groups.get(name).copied()
        };
        let pid = profile.pid(sample).or_else(of_group).unwrap_or(GROUPS);
        let layer = profile.label(sample, "layer").unwrap_or_default();
        let callstack_id = tables.callstack(&sample.location_id);
        let heap = heaps.entry((pid, layer)).or_default();
        let sum = heap.entry(callstack_id).or_default();
        let value = |at: usize| sample.value.get(at).copied().map_or(0, i64::cast_unsigned);
        let [allocations, allocated, blocks, live] = [0, 1, 2, 3].map(value);
        // A mapping that was unmapped in the middle is two blocks of one allocation, which this format cannot say.
        let allocations = allocations.max(blocks);
        sum.callstack_id = callstack_id;
        sum.self_allocated += allocated;
        sum.self_freed += allocated.saturating_sub(live);
        sum.alloc_count += allocations;
        sum.free_count += allocations - blocks;
    }
    let reaches_ns = snapshot.time_ns.or(snapshot.finished_ns);
    let time_ns = reaches_ns.unwrap_or(snapshot.meta.started_ns);
    let dumps = heaps
        .into_iter()
        .map(|((pid, layer), samples)| ProcessHeapSamples {
            pid: pid.cast_unsigned(),
            samples: samples.into_values().collect(),
            timestamp: time_ns,
            heap_name: layer.into(),
            sampling_interval_bytes: 1,
        });
    TracePacket {
        profile_packet: Some(ProfilePacket {
            process_dumps: dumps.collect(),
        }),
        interned_data: Some(tables.into_data()),
        sequence_flags: NEEDS_EARLIER,
        ..at(time_ns)
    }
}

fn pid(row: &ProcessRow) -> i64 {
    match row.is_group() {
        true => GROUPS + i64::from(row.id.0),
        false => row.tgid.into(),
    }
}

/// Tracks of the processes, with resident memory and the live bytes of each layer.
fn tracks(snapshot: &Snapshot, filter: &Filter, course: &Course) -> Vec<TracePacket> {
    let mut tracks = Tracks {
        packets: Vec::new(),
        started_ns: snapshot.meta.started_ns,
        last: 0,
    };
    let mut layers: Vec<_> = course.live.layers.iter().collect();
    layers.sort_unstable_by_key(|(key, _)| **key);
    for process in &snapshot.processes {
        let row = &process.row;
        if filter.pid.is_some_and(|wanted| wanted != row.tgid) {
            continue;
        }
        let name = match row.is_group() {
            true => group_name(row),
            false => clean(&row.comm),
        };
        let parent = tracks.process(pid(row), name);
        let samples = course.memory.get(&row.id).into_iter().flatten();
        let resident = samples.filter_map(|(time, sample)| Some((*time, sample.resident()?)));
        // Viewers draw the last value to the end of the trace.
        let ended = row.ended_ns.map(|time| (time, 0));
        tracks.counter(parent, "resident memory", resident, ended);
        let first = layers.partition_point(|((id, ..), _)| *id < row.id);
        let own = layers[first..]
            .iter()
            .take_while(|((id, ..), _)| *id == row.id);
        for ((_, layer, by_allocator), live) in own {
            if filter.covers(Some(process), *layer) {
                let name = format!(
                    "live bytes: {}",
                    collapsed::layer_name(*layer, *by_allocator)
                );
                let times = course.live.times_ns.iter().copied();
                let lives = row.ended_ns.unwrap_or(u64::MAX);
                let points = times.zip(live.iter().copied());
                let points = points.filter(|(time, _)| *time >= row.started_ns && *time <= lives);
                tracks.counter(parent, &name, points, ended);
            }
        }
    }
    tracks.packets
}

struct Tracks {
    packets: Vec<TracePacket>,
    started_ns: u64,
    last: u64,
}

impl Tracks {
    fn process(&mut self, pid: i64, name: String) -> u64 {
        self.add(TrackDescriptor {
            process: Some(ProcessDescriptor {
                pid: i32::try_from(pid).unwrap_or(i32::MAX),
                process_name: name,
            }),
            ..TrackDescriptor::default()
        })
    }

    /// Bytes over time, and at last; no track without any.
    fn counter(
        &mut self,
        parent: u64,
        name: &str,
        points: impl Iterator<Item = (u64, u64)>,
        last: Option<(u64, u64)>,
    ) {
        let mut points = points.peekable();
        if points.peek().is_none() {
            return;
        }
        let track_uuid = self.add(TrackDescriptor {
            name: name.into(),
            parent_uuid: Some(parent),
            counter: Some(CounterDescriptor { unit: BYTES }),
            ..TrackDescriptor::default()
        });
        let points = points.chain(last);
        self.packets.extend(points.map(|(time, bytes)| TracePacket {
            track_event: Some(TrackEvent {
                r#type: COUNTER,
                track_uuid,
                counter_value: i64::try_from(bytes).ok(),
            }),
            sequence_flags: NEEDS_EARLIER,
            ..at(time)
        }));
    }

    fn add(&mut self, track: TrackDescriptor) -> u64 {
        self.last += 1;
        self.packets.push(TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: self.last,
                ..track
            }),
            ..at(self.started_ns)
        });
        self.last
    }
}

#[cfg(test)]
mod tests;
