//! Device memory: parallel layers, the reserve of a caching allocator, physical memory.

use super::*;
use crate::event::{CacheReport, Pool, Source};

const SEGMENT: u64 = 2 << 20;
/// Layer of a caching allocator's blocks.
const BLOCKS: Layer = Layer::TorchCuda;

const BY_CACHE: Source = Source {
    below: false,
    by_cache: Some(BLOCKS),
    stream_ordered: false,
    physical: false,
};

struct Devices {
    bench: Bench,
    totals: HashMap<(ProcessId, Device), DeviceTotals>,
    streams: HashMap<StreamKey, StreamTotals>,
    failures: Vec<(FailureKey, Failure)>,
}

impl Devices {
    fn new() -> Devices {
        Devices {
            bench: Bench::new(),
            totals: HashMap::new(),
            streams: HashMap::new(),
            failures: Vec::new(),
        }
    }

    fn alloc(&mut self, layer: Layer, addr: u64, size: u64, source: Source) {
        self.alloc_on(Some(0), layer, addr, size, source);
    }

    fn alloc_on(&mut self, device: Device, layer: Layer, addr: u64, size: u64, source: Source) {
        let action = Action::DeviceAlloc {
            layer,
            addr,
            size,
            stack: StackId(1),
            device,
            source,
        };
        self.bench.does(1, 1, action);
    }

    fn free(&mut self, layer: Layer, addr: u64) {
        let action = Action::Free {
            layer,
            addr,
            repeated: false,
        };
        self.bench.does(1, 1, action);
    }

    /// `size` 0: released.
    fn report(&mut self, addr: u64, size: u64, allocated: u64, reserved: u64) {
        let action = Action::CachedBlock {
            layer: BLOCKS,
            addr,
            size,
            stack: StackId(2),
            device: Some(0),
            report: CacheReport {
                allocated,
                reserved,
            },
        };
        self.bench.does(1, 1, action);
    }

    fn device(&mut self, tgid: u32) -> DeviceTotals {
        let changes = self.bench.ledger.take_changes();
        self.totals.extend(changes.devices);
        self.streams.extend(changes.streams);
        self.failures.extend(changes.failures);
        self.bench.layers.extend(changes.layers);
        let id = self.bench.id(tgid);
        self.totals.get(&(id, Some(0))).copied().unwrap_or_default()
    }

    /// Allocated, reserved and their peaks.
    fn cache(&mut self) -> (u64, Option<u64>, u64, Option<u64>) {
        let cache = self.device(1).cache.expect("it has said something");
        (
            cache.allocated,
            cache.reserved,
            cache.peak_allocated,
            cache.peak_reserved,
        )
    }
}

#[test]
fn a_block_counts_once_in_each_layer_and_once_in_all() {
    let mut devices = Devices::new();
    let below = Source {
        below: true,
        ..Source::default()
    };
    devices.alloc(Layer::CudaDriver, 0x100, 1000, below);
    devices.alloc(Layer::CudaRuntime, 0x100, 1000, Source::default());
    devices.alloc(Layer::CudaDriver, 0x200, 50, Source::default());
    devices.alloc(Layer::Pinned, 0x300, 7, Source::default());
    let totals = devices.device(1);
    assert_eq!(
        (totals.runtime, totals.driver, totals.pinned),
        (1000, 1050, 7)
    );
    assert_eq!(totals.known(), 1050);
    devices.free(Layer::CudaRuntime, 0x100);
    devices.free(Layer::CudaDriver, 0x100);
    assert_eq!(devices.device(1).known(), 50);
    assert_eq!(devices.bench.live(1, Layer::CudaDriver), (50, 1));
    assert_eq!(devices.bench.counts(), (0, 0, 0));
}

#[test]
fn blocks_of_a_cache_that_does_not_report_are_added_up() {
    let mut devices = Devices::new();
    devices.alloc(Layer::CudaRuntime, 0x1000, SEGMENT, BY_CACHE);
    devices.alloc(BLOCKS, 0x1000, 300, Source::default());
    devices.alloc(BLOCKS, 0x1200, 200, Source::default());
    assert_eq!(devices.cache(), (500, None, 500, None));
    let totals = devices.device(1);
    assert_eq!((totals.held_by_cache(), totals.known()), (SEGMENT, SEGMENT));
    assert_eq!(totals.outstanding(), 500);
    devices.free(BLOCKS, 0x1000);
    assert_eq!(devices.cache(), (200, None, 500, None));
    assert_eq!(devices.bench.live(1, BLOCKS), (200, 1));
    // A block whose release was lost, with another one at its address.
    devices.alloc(BLOCKS, 0x1200, 50, Source::default());
    assert_eq!(devices.cache().0, 50);
    devices.free(BLOCKS, 0x1200);
    devices.free(Layer::CudaRuntime, 0x1000);
    assert_eq!(devices.cache().0, 0);
    assert_eq!(devices.device(1).known(), 0);
}

#[test]
fn the_first_of_two_caches_has_the_totals_and_each_its_memory() {
    let second = Layer::TorchCpu;
    let mut devices = Devices::new();
    devices.alloc(Layer::CudaRuntime, 0x1000, SEGMENT, BY_CACHE);
    devices.report(0x1000, 512, 512, SEGMENT);
    let by_second = Source {
        by_cache: Some(second),
        ..Source::default()
    };
    devices.alloc(Layer::CudaRuntime, 0x9000_0000, SEGMENT, by_second);
    let block = Action::CachedBlock {
        layer: second,
        addr: 0x9000_0000,
        size: 100,
        stack: StackId(2),
        device: Some(0),
        report: CacheReport {
            allocated: 100,
            reserved: SEGMENT,
        },
    };
    devices.bench.does(1, 1, block);
    let expected = (512, Some(SEGMENT), 512, Some(SEGMENT));
    assert_eq!(devices.cache(), expected);
    assert_eq!(devices.bench.live(1, second), (100, 1));
    assert_eq!(devices.device(1).known(), 2 * SEGMENT);
    devices.free(Layer::CudaRuntime, 0x9000_0000);
    assert_eq!(devices.cache(), expected);
    assert_eq!(devices.device(1).known(), SEGMENT);
}

#[test]
fn emptying_the_cache_is_seen_though_nothing_is_reported() {
    let mut devices = Devices::new();
    devices.alloc(Layer::CudaRuntime, 0x1000, SEGMENT, BY_CACHE);
    assert_eq!(devices.device(1).cache, None);
    devices.report(1, 512, 512, SEGMENT);
    devices.alloc(Layer::CudaRuntime, 0x2000, SEGMENT, BY_CACHE);
    assert_eq!(devices.cache().1, Some(2 * SEGMENT));
    devices.report(1, 0, 0, 2 * SEGMENT);
    assert_eq!(devices.bench.live(1, BLOCKS), (0, 0));
    devices.free(Layer::CudaRuntime, 0x1000);
    devices.free(Layer::CudaRuntime, 0x2000);
    let expected = (0, Some(0), 512, Some(2 * SEGMENT));
    assert_eq!(devices.cache(), expected);
    assert_eq!(devices.device(1).held_by_cache(), 0);
}

#[test]
fn a_segment_has_the_device_of_its_blocks() {
    let layer = Layer::CudaRuntime;
    for interval_between in [false, true] {
        let mut devices = Devices::new();
        devices.alloc_on(None, layer, 0x1000, SEGMENT, BY_CACHE);
        let mut sites = HashMap::new();
        if interval_between {
            let changes = devices.bench.ledger.take_changes();
            devices.totals.extend(changes.devices);
            sites.extend(changes.sites);
        }
        devices.report(0x1200, 512, 512, SEGMENT);
        let changes = devices.bench.ledger.take_changes();
        devices.totals.extend(changes.devices);
        sites.extend(changes.sites);
        let totals = devices.device(1);
        assert_eq!(
            (totals.runtime, totals.runtime_by_cache),
            (SEGMENT, SEGMENT)
        );
        assert_eq!(totals.known(), SEGMENT);
        let id = devices.bench.id(1);
        let unknown = devices.totals.get(&(id, None)).copied();
        let nothing = interval_between.then(DeviceTotals::default);
        assert_eq!(unknown, nothing, "reported only if it was reported before");
        let mut of_layer = sites.iter().filter(|(key, _)| key.layer == layer);
        let at: u64 = of_layer
            .clone()
            .map(|(_, site)| site.at_peak_bytes.max(site.totals.live_bytes))
            .sum();
        let all: u64 = of_layer
            .clone()
            .map(|(_, site)| site.totals.alloc_count)
            .sum();
        assert_eq!((at, all), (SEGMENT, 1));
        let right = of_layer.find(|(key, _)| key.device == Some(0)).unwrap().1;
        assert_eq!(right.totals.live_bytes, SEGMENT);
        assert_eq!(right.totals.peak_bytes, SEGMENT);
        assert_eq!(sites.len(), if interval_between { 3 } else { 2 });
        // Given back, it is the right device's.
        devices.report(0x1200, 0, 0, SEGMENT);
        devices.free(layer, 0x1000);
        let expected = (0, Some(0), 512, Some(SEGMENT));
        assert_eq!(devices.cache(), expected);
        assert_eq!(devices.bench.counts(), (0, 0, 0));
    }
}

#[test]
fn a_placed_segment_counts_at_its_peak() {
    let layer = Layer::CudaRuntime;
    let mut devices = Devices::new();
    devices.alloc(layer, 0x9000, 3 * SEGMENT, Source::default());
    devices.free(layer, 0x9000);
    let at_peak = |devices: &mut Devices| {
        let changes = devices.bench.ledger.take_changes();
        let mut sites = changes
            .sites
            .iter()
            .filter(|(key, _)| key.layer == layer && key.by_allocator);
        let (_, site) = sites.find(|(key, _)| key.device == Some(0))?;
        let (_, totals) = changes.layers.iter().find(|((_, of), _)| *of == layer)?;
        Some(if site.peak_epoch == totals.peak_epoch {
            site.at_peak_bytes
        } else {
            site.totals.live_bytes
        })
    };
    // Not in the peak of three; two at once.
    devices.alloc_on(None, layer, 0x1000, SEGMENT / 2, BY_CACHE);
    devices.alloc_on(None, layer, 0x1000_0000, SEGMENT / 2, BY_CACHE);
    devices.report(0x1200, 512, 512, SEGMENT / 2);
    devices.report(0x1000_0000, 512, 512, SEGMENT);
    assert_eq!(at_peak(&mut devices), Some(0));
    // A new peak that includes all of them.
    devices.alloc_on(None, layer, 0x2000_0000, 4 * SEGMENT, BY_CACHE);
    devices.report(0x2000_0000, 512, 1024, 5 * SEGMENT);
    assert_eq!(at_peak(&mut devices), Some(5 * SEGMENT));
}

#[test]
fn two_segments_that_wait_for_their_device_are_placed_at_one_peak() {
    let layer = Layer::CudaRuntime;
    let mut devices = Devices::new();
    devices.alloc_on(None, layer, 0x1000, SEGMENT, BY_CACHE);
    devices.alloc_on(None, layer, 0x1000_0000, SEGMENT, BY_CACHE);
    devices.report(0x1200, 512, 512, SEGMENT);
    devices.report(0x1000_0000, 512, 1024, 2 * SEGMENT);
    let changes = devices.bench.ledger.take_changes();
    let sites = changes.sites.iter().filter(|(key, _)| key.layer == layer);
    let sites: Vec<_> = sites.collect();
    let [(key, site)] = sites[..] else {
        panic!("{sites:?}");
    };
    assert_eq!(key.device, Some(0));
    assert_eq!(site.totals.peak_bytes, 2 * SEGMENT);
    assert_eq!((site.at_peak_bytes, site.at_peak_count), (2 * SEGMENT, 2));
}

#[test]
fn a_device_without_memory_is_reported() {
    let mut devices = Devices::new();
    devices.alloc(Layer::CudaRuntime, 0x1000, SEGMENT, Source::default());
    devices.free(Layer::CudaRuntime, 0x1000);
    devices.device(1);
    assert_eq!(devices.totals.len(), 1);
}

#[test]
fn the_reserve_is_unknown_after_a_release_of_older_memory() {
    let mut devices = Devices::new();
    devices.report(0x200, 512, 4096, 3 * SEGMENT);
    devices.free(Layer::CudaRuntime, 0x7000_0000);
    assert_eq!(devices.cache(), (4096, None, 4096, Some(3 * SEGMENT)));
    assert_eq!(devices.device(1).held_by_cache(), 4096, "at least");
    // Its new request replaces memory that it gave back: no new peak.
    devices.alloc(Layer::CudaRuntime, 0x1000, SEGMENT, BY_CACHE);
    devices.report(0x1000, 512, 4608, 2 * SEGMENT);
    let expected = (4608, Some(2 * SEGMENT), 4608, Some(3 * SEGMENT));
    assert_eq!(devices.cache(), expected);
    let range = Action::DeviceUnmap { addr: 1, len: 2 };
    devices.bench.does(1, 1, range);
    assert_eq!(devices.cache().1, None);
    // Another process's memory was mapped by an unknown handle, but the mapping was seen.
    devices.report(0x1400, 512, 5120, 2 * SEGMENT);
    let (addr, len, handle) = (0x9000, 0x1000, 77);
    devices
        .bench
        .does(1, 1, Action::DeviceMap { addr, len, handle });
    devices.bench.does(1, 1, Action::DeviceUnmap { addr, len });
    assert_eq!(devices.cache().1, Some(2 * SEGMENT));
    // The driver's memory, and a known mapping: no doubt.
    devices.report(0x1400, 512, 5120, 2 * SEGMENT);
    devices.free(Layer::CudaDriver, 0x5000);
    devices.free(Layer::CudaRuntime, 0x1000);
    assert_eq!(devices.cache().1, Some(SEGMENT));
}

#[test]
fn blocks_of_the_drivers_pool_are_in_both_layers() {
    let mut devices = Devices::new();
    let pooled = Source {
        stream_ordered: true,
        ..BY_CACHE
    };
    devices.alloc(Layer::CudaRuntime, 0x100, 5000, pooled);
    devices.alloc(Layer::CudaRuntime, 0x200, 700, pooled);
    assert_eq!(devices.cache(), (5700, None, 5700, None));
    let pool = |bytes, figure| Action::DevicePool {
        device: Some(0),
        bytes,
        figure,
    };
    devices.bench.does(1, 1, pool(SEGMENT, Pool::Reserved));
    devices
        .bench
        .does(1, 1, pool(3 * SEGMENT, Pool::PeakReserved));
    // The pool rounds up.
    devices.bench.does(1, 1, pool(6000, Pool::Used));
    devices.bench.does(1, 1, pool(6100, Pool::PeakUsed));
    devices.free(Layer::CudaRuntime, 0x100);
    let expected = (1000, Some(SEGMENT), 6100, Some(3 * SEGMENT));
    assert_eq!(devices.cache(), expected);
    assert_eq!(devices.bench.live(1, BLOCKS), (700, 1));
    assert_eq!(devices.bench.live(1, Layer::CudaRuntime), (700, 1));
    // Taken from the pool, which holds it already.
    assert_eq!(devices.device(1).known(), SEGMENT);
}

#[test]
fn physical_memory_lives_while_it_is_mapped() {
    let mut devices = Devices::new();
    let physical = Source {
        physical: true,
        ..BY_CACHE
    };
    devices.report(1, 512, 512, 0);
    devices.alloc(Layer::CudaDriver, 1, SEGMENT, physical);
    let map = Action::DeviceMap {
        addr: 0x10_0000,
        len: SEGMENT,
        handle: 1,
    };
    devices.bench.does(1, 1, map);
    assert_eq!(devices.cache().1, Some(SEGMENT));
    devices.free(Layer::CudaDriver, 1);
    assert_eq!(devices.bench.live(1, Layer::CudaDriver), (SEGMENT, 1));
    assert_eq!(devices.bench.ledger.births(0).len(), 2);
    let unmap = |len| Action::DeviceUnmap {
        addr: 0x10_0000,
        len,
    };
    devices.bench.does(1, 1, unmap(SEGMENT / 2));
    assert_eq!(devices.cache().1, Some(SEGMENT / 2));
    devices.bench.does(1, 1, unmap(SEGMENT));
    assert_eq!(devices.cache().1, Some(0));
    assert_eq!(devices.bench.live(1, Layer::CudaDriver), (0, 0));
    assert_eq!(devices.bench.counts(), (0, 0, 0));
}

#[test]
fn requests_are_known_by_stream_until_the_release() {
    let mut devices = Devices::new();
    let request = |addr, size, stream| Action::DeviceRequest {
        layer: BLOCKS,
        addr,
        size,
        stream,
    };
    devices.alloc(Layer::CudaRuntime, 0x1000, SEGMENT, BY_CACHE);
    for (at, stream) in [(0, 0), (1, 7), (2, 7)] {
        let addr = 0x1000 + at * 512;
        devices.report(addr, 512, (at + 1) * 512, SEGMENT);
        devices.bench.does(1, 1, request(addr, 500 + at, stream));
    }
    // A repeated request, one for an unknown block, and one larger than its block.
    devices.bench.does(1, 1, request(0x1000, 1, 9));
    devices.bench.does(1, 1, request(0x9000, 1, 9));
    devices.report(0x1600, 512, 4 * 512, SEGMENT);
    devices.bench.does(1, 1, request(0x1600, u64::MAX, 9));
    devices.report(0x1600, 0, 3 * 512, SEGMENT);
    let free = |devices: &mut Devices| devices.device(1).cache.unwrap().largest_free;
    assert_eq!(free(&mut devices), Some(SEGMENT - 3 * 512));
    let stream = |devices: &Devices, stream| {
        let key = StreamKey {
            process: ProcessId(1),
            device: Some(0),
            stream,
        };
        let totals = devices.streams.get(&key);
        totals.map(|totals| (totals.allocated, totals.requested))
    };
    assert_eq!(stream(&devices, 0), Some((512, 500)));
    assert_eq!(stream(&devices, 7), Some((1024, 1003)));
    assert_eq!(stream(&devices, 9), None);
    devices.report(0x1200, 0, 1024, SEGMENT);
    devices.device(1);
    assert_eq!(stream(&devices, 7), Some((512, 502)));
    // Handed out again though its release was lost.
    devices.report(0x1400, 1024, 1536, SEGMENT);
    devices.device(1);
    assert_eq!(stream(&devices, 7), Some((0, 0)));
    assert_eq!(free(&mut devices), Some(SEGMENT - 0x800));
    devices.bench.does(1, 1, Action::Exec);
    devices.device(1);
    assert_eq!(stream(&devices, 0), Some((0, 0)));
}

#[test]
fn a_failure_keeps_the_figures_of_its_moment() {
    let mut devices = Devices::new();
    let failed = |size| Action::DeviceFailed {
        layer: Layer::CudaRuntime,
        size,
        stack: StackId(9),
        device: Some(0),
        error: 2,
        report: None,
    };
    devices.bench.does(1, 1, failed(100));
    devices.alloc(Layer::CudaRuntime, 0x100, 64, Source::default());
    devices.bench.does(1, 1, failed(200));
    devices.device(1);
    let [(key, failure)] = devices.failures[..] else {
        panic!("{:?}", devices.failures);
    };
    assert_eq!((key.error, failure.count, failure.size), (2, 2, 200));
    assert_eq!(failure.held.runtime, 64);
    assert!(failure.first_ns < failure.last_ns);
    assert_eq!(devices.bench.live(1, Layer::CudaRuntime), (64, 1));
}

#[test]
fn out_of_memory_brings_the_allocators_own_totals() {
    let mut devices = Devices::new();
    devices.report(0x200, 512, 512, 3 * SEGMENT);
    devices.free(Layer::CudaRuntime, 0x7000_0000);
    let failed = Action::DeviceFailed {
        layer: BLOCKS,
        size: SEGMENT,
        stack: StackId(9),
        device: Some(0),
        error: 2,
        report: Some(CacheReport {
            allocated: 512,
            reserved: 2 * SEGMENT,
        }),
    };
    devices.bench.does(1, 1, failed);
    let expected = (512, Some(2 * SEGMENT), 512, Some(3 * SEGMENT));
    assert_eq!(devices.cache(), expected);
    let [(_, failure)] = devices.failures[..] else {
        panic!("{:?}", devices.failures);
    };
    assert_eq!(failure.held.held_by_cache(), 2 * SEGMENT);
}

#[test]
fn a_child_inherits_nothing_of_a_device_and_exec_clears_it() {
    let mut devices = Devices::new();
    devices.alloc(Layer::CudaRuntime, 0x100, 64, Source::default());
    devices.bench.alloc(1, 0x100, 10, 3);
    devices.bench.fork(1, 2);
    assert_eq!(devices.device(2), DeviceTotals::default());
    assert_eq!(devices.bench.inherited(2, Layer::CudaRuntime), (0, 0));
    assert_eq!(devices.bench.inherited(2, Layer::Heap), (10, 1));
    devices.bench.does(1, 1, Action::Exec);
    assert_eq!(devices.device(1), DeviceTotals::default());
    assert_eq!(devices.bench.live(1, Layer::CudaRuntime), (0, 0));
}
