//! What the collector knows of one traced process.

use super::location::ModuleIndex;
use crate::{bpf::Link, host::python::Launch, process::memory::Sampler, recording::ProcessRow};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

/// A traced process.
pub(super) struct Process {
    pub(super) row: ProcessRow,
    pub(super) sampler: Sampler,
    pub(super) fingerprint: Fingerprint,
    /// Number of its memory control group, once read and if visible.
    pub(super) cgroup: Option<u32>,
    /// Probes on allocation functions.
    pub(super) links: Vec<Link>,
    /// Probes by which exceptions pass those, so they are removed later.
    pub(super) unwinding_links: Vec<Link>,
    /// It has the probes of every allocator known so far, and gets those of new ones.
    pub(super) probed: bool,
    /// Its threads can be stopped.
    pub(super) pausable: bool,
    /// Another tracer wanted it, and was let have it.
    pub(super) given_up: bool,
    /// How many of the files in which unwinding begins have their probe; `None` if no function is
    /// probed that an exception may leave.
    pub(super) unwinders: Option<usize>,
    /// The interpreter's file in which the end of code objects has its probe.
    pub(super) code_ends: Option<ModuleIndex>,
    /// It executes a 32-bit program.
    pub(super) is_32_bit: bool,
}

impl Process {
    /// Its costly figures are read at the distance `least_rest` at least.
    pub(super) fn new(row: ProcessRow, least_rest: Duration) -> Self {
        Self {
            sampler: Sampler::new(row.tgid, least_rest),
            fingerprint: Fingerprint::default(),
            cgroup: None,
            links: Vec::new(),
            unwinding_links: Vec::new(),
            probed: false,
            pausable: false,
            given_up: false,
            unwinders: None,
            code_ends: None,
            is_32_bit: false,
            row,
        }
    }
}

/// Facts about one process.
#[derive(Debug, Default)]
pub(super) struct Fingerprint {
    pub(super) libraries: BTreeSet<ModuleIndex>,
    /// Libraries were added since the last report.
    pub(super) changed: bool,
    /// Its launch; `None` until its exec.
    pub(super) launch: Option<Arc<Launch>>,
    /// Clock ticks after boot, which distinguish it from a later process with the same number.
    pub(super) start_time: u64,
}

/// Facts about a process other than its blocks.
#[derive(Debug, Default)]
pub(super) struct OnDevices {
    /// Devices that its caching allocator spoke of.
    pub(super) cached: HashSet<u8>,
    /// The process can have one device only.
    pub(super) one: bool,
    /// Functions of the driver that it was given: address, number among
    /// [`device_libraries::entry_points`].
    pub(super) entry_points: Vec<(u64, u64)>,
}

impl OnDevices {
    /// `one`: the process can have one device only.
    pub(super) fn new(one: bool) -> Self {
        Self {
            one,
            ..Self::default()
        }
    }
}
