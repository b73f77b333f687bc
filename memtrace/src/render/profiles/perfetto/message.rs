//! Messages of Perfetto's `trace.proto`. Texts, mappings, frames and stacks are sent once, and known by ids other than 0
//! afterwards. Lists of numbers are not packed: its own decoder skips those that are (protozero).

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// The writer of the packet.
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(uint32, tag = "13")]
    pub sequence_flags: u32,
    #[prost(message, optional, tag = "37")]
    pub profile_packet: Option<ProfilePacket>,
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: nothing was sent before.
pub(crate) const CLEARED: u32 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: the packet refers to earlier ones.
pub(crate) const NEEDS_EARLIER: u32 = 2;

/// The same moment on several clocks.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    #[prost(uint32, tag = "2")]
    pub primary_trace_clock: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Clock {
    #[prost(uint32, tag = "1")]
    pub clock_id: u32,
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// Ids of clocks (`BUILTIN_CLOCK_*`).
pub(crate) const REALTIME: u32 = 1;
pub(crate) const MONOTONIC: u32 = 3;
pub(crate) const MONOTONIC_COARSE: u32 = 4;
pub(crate) const BOOTTIME: u32 = 6;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(string, tag = "6")]
    pub process_name: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct CounterDescriptor {
    #[prost(uint32, tag = "3")]
    pub unit: u32,
}

/// `CounterDescriptor.UNIT_SIZE_BYTES`.
pub(crate) const BYTES: u32 = 3;

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct TrackEvent {
    #[prost(uint32, tag = "9")]
    pub r#type: u32,
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
}

/// `TrackEvent.TYPE_COUNTER`.
pub(crate) const COUNTER: u32 = 4;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "5")]
    pub function_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "6")]
    pub frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "16")]
    pub build_ids: Vec<InternedString>,
    #[prost(message, repeated, tag = "17")]
    pub mapping_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "18")]
    pub source_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "19")]
    pub mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InternedString {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub str: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(uint64, tag = "2")]
    pub build_id: u64,
    #[prost(uint64, tag = "4")]
    pub start: u64,
    #[prost(uint64, tag = "5")]
    pub end: u64,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub path_string_ids: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Frame {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(uint64, tag = "2")]
    pub function_name_id: u64,
    /// Every frame needs one: readers drop the stack otherwise.
    #[prost(uint64, tag = "3")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "4")]
    pub rel_pc: u64,
    #[prost(uint64, tag = "5")]
    pub source_path_iid: u64,
    #[prost(uint32, tag = "6")]
    pub line_number: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Callstack {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// The root first.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub frame_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProfilePacket {
    #[prost(message, repeated, tag = "5")]
    pub process_dumps: Vec<ProcessHeapSamples>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessHeapSamples {
    #[prost(uint64, tag = "1")]
    pub pid: u64,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<HeapSample>,
    /// On the clock `MONOTONIC_COARSE`.
    #[prost(uint64, tag = "9")]
    pub timestamp: u64,
    #[prost(string, tag = "11")]
    pub heap_name: String,
    /// 1: every allocation is counted.
    #[prost(uint64, tag = "12")]
    pub sampling_interval_bytes: u64,
}

/// Since the start; live is the difference of allocated and freed.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct HeapSample {
    #[prost(uint64, tag = "1")]
    pub callstack_id: u64,
    #[prost(uint64, tag = "2")]
    pub self_allocated: u64,
    #[prost(uint64, tag = "3")]
    pub self_freed: u64,
    #[prost(uint64, tag = "5")]
    pub alloc_count: u64,
    #[prost(uint64, tag = "6")]
    pub free_count: u64,
}
