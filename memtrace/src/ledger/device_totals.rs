//! Memory of each process on each device, in total and by holder, and the allocations that failed
//! there.

use super::{ProcessId, SiteKey, cache::Request};
use crate::{
    event::{Device, Layer, Pool, StackId},
    hash::FastMap,
};

/// A caching allocator's own figures for a device, bytes. Peaks are since tracing began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTotals {
    pub allocated: u64,
    pub peak_allocated: u64,
    /// `None`: the driver's pool has it, and the program has not queried the total; or memory older
    /// than the recording was given back, and the allocator has not reported its totals since.
    pub reserved: Option<u64>,
    pub peak_reserved: Option<u64>,
    /// The largest block that it could provide from its reserve. `None`: its reserve is not fully
    /// known.
    pub largest_free: Option<u64>,
}

/// Live bytes of a caching allocator on a stream of a device, as it reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// After its rounding.
    pub allocated: u64,
    /// As requested.
    pub requested: u64,
}

/// A stream of a device of a process, by the number that its caching allocator gives it; 0 is the
/// default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    pub process: ProcessId,
    pub device: Device,
    pub stream: u64,
}

/// Memory of a process on a device, bytes: live allocations made since tracing began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// `None`: its caching allocator has not reported anything yet.
    pub cache: Option<CacheTotals>,
    /// The runtime's layer (CUDA or HIP), and the part of it that the caching allocator requested.
    pub runtime: u64,
    pub runtime_by_cache: u64,
    /// The driver's layer, and the part of it that the runtime or the caching allocator requested.
    pub driver: u64,
    pub driver_by_allocator: u64,
    /// Page-locked host memory, by the device that was current.
    pub pinned: u64,
}

impl DeviceTotals {
    /// Device memory that is accounted for, each byte once: memory held by the caching allocator,
    /// and other requests to the runtime or the driver.
    pub fn known(&self) -> u64 {
        self.held_by_cache() + self.other_runtime() + self.other_driver()
    }

    /// The same without memory that the caching allocator reserves in no block.
    pub fn outstanding(&self) -> u64 {
        let held = self.held_by_cache();
        let in_blocks = self.cache.map_or(held, |cache| cache.allocated);
        self.known() - held.saturating_sub(in_blocks)
    }

    /// Memory held by the caching allocator, by its own report if there is one; otherwise a lower
    /// bound.
    pub fn held_by_cache(&self) -> u64 {
        let reported = self
            .cache
            .map(|cache| cache.reserved.unwrap_or(cache.allocated));
        reported.unwrap_or(0).max(self.runtime_by_cache)
    }

    pub fn other_runtime(&self) -> u64 {
        self.runtime.saturating_sub(self.runtime_by_cache)
    }

    pub fn other_driver(&self) -> u64 {
        self.driver.saturating_sub(self.driver_by_allocator)
    }
}

/// The key of failed allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FailureKey {
    pub process: ProcessId,
    pub layer: Layer,
    pub device: Device,
    pub stack: StackId,
    /// The library's code; 2 is out of memory in CUDA and HIP.
    pub error: u32,
}

/// Failed allocations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    pub count: u64,
    /// CLOCK_MONOTONIC ns.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Bytes requested the last time, and the memory held then.
    pub size: u64,
    pub held: DeviceTotals,
}

/// A value, and the value last reported.
#[derive(Default)]
struct Figure<T> {
    now: T,
    reported: Option<T>,
}

impl<T: Copy + PartialEq> Figure<T> {
    fn news(&mut self) -> Option<T> {
        let news = self.reported != Some(self.now);
        self.reported = Some(self.now);
        news.then_some(self.now)
    }
}

/// Part of [`Book`].
#[derive(Default)]
pub(super) struct DeviceBook {
    totals: FastMap<(ProcessId, Device), Figure<DeviceTotals>>,
    streams: FastMap<StreamKey, Figure<StreamTotals>>,
    failures: FastMap<FailureKey, Figure<Failure>>,
}

impl DeviceBook {
    pub(super) fn touch(&mut self, process: ProcessId, device: Device) -> &mut DeviceTotals {
        &mut self.totals.entry((process, device)).or_default().now
    }

    pub(super) fn allocated(&mut self, key: &SiteKey, bytes: u64) {
        self.change(key, |figure| *figure += bytes);
    }

    pub(super) fn released(&mut self, key: &SiteKey, bytes: u64) {
        self.change(key, |figure| *figure -= bytes);
    }

    fn change(&mut self, key: &SiteKey, change: impl Fn(&mut u64)) {
        let totals = self.touch(key.process, key.device);
        let (all, part) = match key.layer {
            Layer::CudaRuntime | Layer::Hip => (&mut totals.runtime, &mut totals.runtime_by_cache),
            Layer::CudaDriver => (&mut totals.driver, &mut totals.driver_by_allocator),
            Layer::Pinned => return change(&mut totals.pinned),
            _ => return,
        };
        change(all);
        if key.by_allocator {
            change(part);
        }
    }

    /// The process runs another program now.
    pub(super) fn cleared(&mut self, process: ProcessId) {
        for ((of, _), totals) in &mut self.totals {
            if *of == process {
                totals.now = DeviceTotals::default();
            }
        }
        for (key, totals) in &mut self.streams {
            if key.process == process {
                totals.now = StreamTotals::default();
            }
        }
    }

    /// The caching allocators' figures of a process, by device.
    pub(super) fn caches(
        &mut self,
        process: ProcessId,
    ) -> impl Iterator<Item = (Device, &mut CacheTotals)> {
        self.totals
            .iter_mut()
            .filter(move |((of, _), _)| *of == process)
            .filter_map(|((_, device), totals)| Some((*device, totals.now.cache.as_mut()?)))
    }

    pub(super) fn stream(&mut self, process: ProcessId, request: &Request) -> &mut StreamTotals {
        let key = StreamKey {
            process,
            device: request.device,
            stream: request.stream,
        };
        &mut self.streams.entry(key).or_default().now
    }

    /// Whether the process has used a device.
    pub(super) fn knows(&self, process: ProcessId) -> bool {
        self.totals.keys().any(|(of, _)| *of == process)
            || self.failures.keys().any(|key| key.process == process)
    }

    /// The process has ended and its last figures were taken.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.totals.retain(|(of, _), _| *of != process);
        self.streams.retain(|key, _| key.process != process);
        self.failures.retain(|key, _| key.process != process);
    }

    /// An allocation has failed.
    pub(super) fn failed(&mut self, key: FailureKey, size: u64, time_ns: u64) {
        let held = *self.touch(key.process, key.device);
        let failure = &mut self.failures.entry(key).or_default().now;
        if failure.count == 0 {
            failure.first_ns = time_ns;
        }
        *failure = Failure {
            count: failure.count + 1,
            last_ns: time_ns,
            size,
            held,
            ..*failure
        };
    }

    /// A report of the driver's pool of a device. Only of interest if a caching allocator takes
    /// memory from it, whose figures are then the pool's.
    pub(super) fn pool(&mut self, process: ProcessId, device: Device, bytes: u64, figure: Pool) {
        let Some(cache) = &mut self.touch(process, device).cache else {
            return;
        };
        match figure {
            Pool::Reserved => cache.set_reserved(bytes),
            Pool::PeakReserved => cache.peak_reserved = cache.peak_reserved.max(Some(bytes)),
            Pool::Used => cache.set_allocated(bytes),
            Pool::PeakUsed => cache.peak_allocated = cache.peak_allocated.max(bytes),
        }
    }

    /// The caching allocator requested more, or gave memory back.
    pub(super) fn reserve(
        &mut self,
        process: ProcessId,
        device: Device,
        change: impl Fn(u64) -> u64,
    ) {
        if let Some(cache) = &mut self.touch(process, device).cache
            && let Some(reserved) = cache.reserved
        {
            cache.set_reserved(change(reserved));
        }
    }

    /// Blocks were handed out, or taken back.
    pub(super) fn cache_allocated(
        &mut self,
        process: ProcessId,
        device: Device,
        change: impl Fn(u64) -> u64,
    ) {
        let totals = self.touch(process, device);
        let cache = totals.cache.get_or_insert_default();
        cache.set_allocated(change(cache.allocated));
    }

    /// Totals that changed since the last call, by process and device.
    pub(super) fn take_totals(&mut self) -> Vec<((ProcessId, Device), DeviceTotals)> {
        // Memory attributed to an unknown device that turned out to belong to another.
        self.totals.retain(|(_, device), totals| {
            device.is_some() || totals.reported.is_some() || totals.now != DeviceTotals::default()
        });
        news(&mut self.totals)
    }

    /// The same for streams.
    pub(super) fn take_streams(&mut self) -> Vec<(StreamKey, StreamTotals)> {
        news(&mut self.streams)
    }

    /// The same for failed allocations.
    pub(super) fn take_failures(&mut self) -> Vec<(FailureKey, Failure)> {
        news(&mut self.failures)
    }
}

/// Figures that changed since the last call, by key.
fn news<K: Copy + Ord, T: Copy + PartialEq>(figures: &mut FastMap<K, Figure<T>>) -> Vec<(K, T)> {
    let figures = figures.iter_mut();
    let news = figures.filter_map(|(key, figure)| Some((*key, figure.news()?)));
    let mut news: Vec<(K, T)> = news.collect();
    news.sort_unstable_by_key(|(key, _)| *key);
    news
}

impl CacheTotals {
    pub(super) fn set_allocated(&mut self, bytes: u64) {
        self.allocated = bytes;
        self.peak_allocated = self.peak_allocated.max(bytes);
    }

    pub(super) fn set_reserved(&mut self, bytes: u64) {
        self.reserved = Some(bytes);
        self.peak_reserved = self.peak_reserved.max(Some(bytes));
    }
}
