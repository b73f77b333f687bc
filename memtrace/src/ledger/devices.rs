//! What each process holds on each device, in all and by who holds it, and the
//! allocations that failed there.
//!
//! PyTorch's caching allocator tells its own totals with each block, and when it cannot
//! give one, so they are right also where tracing began late. Between two blocks it can still give
//! memory back (empty_cache); that is seen as releases of what it had asked for, if that was
//! since tracing began: what it holds is not known else, until it tells again.

use super::{
    ProcessId, SiteKey,
    cache::{Cache, Request, largest_gap},
    physical::{Memory, Physical},
    space::{Birth, Space},
    table::Block,
    totals::Book,
};
use crate::{
    event::{Device, Layer, Pool, Source, StackId, Told},
    hash::FastMap,
};

/// What PyTorch's caching allocator has of a device, bytes, as torch.cuda.memory_allocated() and
/// its relatives say it. Peaks are since tracing began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorchTotals {
    pub allocated: u64,
    pub peak_allocated: u64,
    /// `None`: the driver's pool has it, and the program has not asked how much; or memory that is older
    /// than the recording was given back, and the allocator has not told its totals since.
    pub reserved: Option<u64>,
    pub peak_reserved: Option<u64>,
    /// The largest block that it could give of what it holds. `None`: not all of that is known.
    pub largest_free: Option<u64>,
}

/// What of a device PyTorch's caching allocator has given on a stream, bytes, as far as it told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// As it rounds them.
    pub allocated: u64,
    /// As they were asked for.
    pub requested: u64,
}

/// A stream of a device of a process, by the number that PyTorch gives it
/// (`torch.cuda.Stream.stream_id`); 0 is the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    pub process: ProcessId,
    pub device: Device,
    pub stream: u64,
}

/// What a process has of a device, bytes; outstanding, of what was allocated since tracing began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// `None`: its caching allocator has not been heard of.
    pub torch: Option<TorchTotals>,
    /// The runtime's layer (CUDA or HIP), and how much of it PyTorch's allocator asked for.
    pub runtime: u64,
    pub runtime_by_torch: u64,
    /// The driver's layer, and how much of it the runtime or PyTorch's allocator asked for.
    pub driver: u64,
    pub driver_by_allocator: u64,
    /// Page-locked host memory, by the device that was current.
    pub pinned: u64,
}

impl DeviceTotals {
    /// Device memory that is accounted for, each byte once: what PyTorch holds, and what others
    /// asked the runtime or the driver for.
    pub fn known(&self) -> u64 {
        self.held_by_torch() + self.other_runtime() + self.other_driver()
    }

    /// The same without what PyTorch's allocator holds and has no block in.
    pub fn outstanding(&self) -> u64 {
        let of_torch = self.held_by_torch();
        let in_blocks = self.torch.map_or(of_torch, |torch| torch.allocated);
        self.known() - of_torch.saturating_sub(in_blocks)
    }

    /// What PyTorch holds, by its own word where it gave it; else at least.
    pub fn held_by_torch(&self) -> u64 {
        let told = self
            .torch
            .map(|torch| torch.reserved.unwrap_or(torch.allocated));
        told.unwrap_or(0).max(self.runtime_by_torch)
    }

    pub fn other_runtime(&self) -> u64 {
        self.runtime.saturating_sub(self.runtime_by_torch)
    }

    pub fn other_driver(&self) -> u64 {
        self.driver.saturating_sub(self.driver_by_allocator)
    }
}

/// What tells failed allocations apart.
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
    /// Bytes asked for the last time, and what was held then.
    pub size: u64,
    pub held: DeviceTotals,
}

/// A figure, and as it was told last.
#[derive(Default)]
struct Figure<T> {
    now: T,
    told: Option<T>,
}

impl<T: Copy + PartialEq> Figure<T> {
    fn news(&mut self) -> Option<T> {
        let news = self.told != Some(self.now);
        self.told = Some(self.now);
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
    fn touch(&mut self, process: ProcessId, device: Device) -> &mut DeviceTotals {
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
            Layer::CudaRuntime | Layer::Hip => (&mut totals.runtime, &mut totals.runtime_by_torch),
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

    /// PyTorch's caching allocators of a process, by device.
    fn caches(&mut self, process: ProcessId) -> impl Iterator<Item = (Device, &mut TorchTotals)> {
        self.totals
            .iter_mut()
            .filter(move |((of, _), _)| *of == process)
            .filter_map(|((_, device), totals)| Some((*device, totals.now.torch.as_mut()?)))
    }

    fn stream(&mut self, process: ProcessId, request: &Request) -> &mut StreamTotals {
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

    pub(super) fn take_changes(&mut self, changes: &mut super::Changes) {
        fn news<K: Copy, T: Copy + PartialEq>(
            figures: &mut FastMap<K, Figure<T>>,
        ) -> impl Iterator<Item = (K, T)> {
            let figures = figures.iter_mut();
            figures.filter_map(|(key, figure)| Some((*key, figure.news()?)))
        }
        // What was thought to be of a device that is not known, and turned out to be of another.
        self.totals.retain(|(_, device), totals| {
            device.is_some() || totals.told.is_some() || totals.now != DeviceTotals::default()
        });
        changes.devices.extend(news(&mut self.totals));
        changes.failures.extend(news(&mut self.failures));
        changes.streams.extend(news(&mut self.streams));
        changes.devices.sort_unstable_by_key(|(key, _)| *key);
        changes.streams.sort_unstable_by_key(|(key, _)| *key);
        changes.failures.sort_unstable_by_key(|(key, _)| *key);
    }
}

impl Book {
    fn device_failed(&mut self, key: FailureKey, size: u64, time_ns: u64) {
        let held = *self.devices.touch(key.process, key.device);
        let failure = &mut self.devices.failures.entry(key).or_default().now;
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

    /// What the driver's pool of a device says. Only of interest where PyTorch takes from it, whose
    /// figures are then the pool's.
    pub(super) fn pool(&mut self, process: ProcessId, device: Device, bytes: u64, figure: Pool) {
        let Some(torch) = &mut self.devices.touch(process, device).torch else {
            return;
        };
        match figure {
            Pool::Reserved => torch.set_reserved(bytes),
            Pool::PeakReserved => torch.peak_reserved = torch.peak_reserved.max(Some(bytes)),
            Pool::Used => torch.set_allocated(bytes),
            Pool::PeakUsed => torch.peak_allocated = torch.peak_allocated.max(bytes),
        }
    }

    /// The caching allocator asked for more, or gave back.
    fn reserve(&mut self, process: ProcessId, device: Device, change: impl Fn(u64) -> u64) {
        if let Some(torch) = &mut self.devices.touch(process, device).torch
            && let Some(reserved) = torch.reserved
        {
            torch.set_reserved(change(reserved));
        }
    }

    fn torch_allocated(&mut self, process: ProcessId, device: Device, change: impl Fn(u64) -> u64) {
        let totals = self.devices.touch(process, device);
        let torch = totals.torch.get_or_insert_default();
        torch.set_allocated(change(torch.allocated));
    }
}

impl TorchTotals {
    fn set_allocated(&mut self, bytes: u64) {
        self.allocated = bytes;
        self.peak_allocated = self.peak_allocated.max(bytes);
    }

    fn set_reserved(&mut self, bytes: u64) {
        self.reserved = Some(bytes);
        self.peak_reserved = self.peak_reserved.max(Some(bytes));
    }
}

/// What a process holds on devices beside the blocks in its tables.
#[derive(Default)]
pub(super) struct Devices {
    pub(super) cache: Cache,
    pub(super) physical: Physical,
}

impl Space {
    #[expect(
        clippy::too_many_arguments,
        reason = "an event's fields, taken apart by the caller"
    )]
    pub(super) fn device_alloc(
        &mut self,
        layer: Layer,
        addr: u64,
        size: u64,
        device: Device,
        source: Source,
        born: Birth,
        book: &mut Book,
    ) {
        let process = self.process();
        let key = SiteKey {
            process,
            layer,
            stack: born.stack,
            by_allocator: source.by_allocator(),
            device,
        };
        if source.physical {
            // A handle that comes again, whose release was lost.
            while self.devices.physical.knows(addr) {
                book.counts.address_reused += 1;
                let gone = self.devices.physical.release(addr);
                self.physical_released(gone, born.time_ns, book);
            }
            let site = book.site(key);
            book.allocate(site, size, born.time_ns);
            let block = Block {
                addr,
                size,
                birth_ns: born.time_ns,
                site,
            };
            let by_cache = source.by_cache;
            self.devices.physical.create(block, device, by_cache);
            return;
        }
        self.put_block(key, addr, size, born, book);
        if !source.by_cache {
            return;
        }
        if source.stream_ordered {
            self.devices.cache.pooled.insert(addr, (device, size));
            book.torch_allocated(process, device, |bytes| bytes + size);
            let key = SiteKey {
                layer: Layer::TorchCuda,
                by_allocator: false,
                ..key
            };
            self.put_block(key, addr, size, born, book);
        } else {
            self.devices.cache.stale = true;
            self.devices.cache.segments.insert(addr, (device, size));
            book.reserve(process, device, |bytes| bytes + size);
        }
    }

    /// Before a block of a device's layer is taken from its table; true if it was none.
    pub(super) fn device_freed(
        &mut self,
        layer: Layer,
        addr: u64,
        time_ns: u64,
        book: &mut Book,
    ) -> bool {
        match layer {
            Layer::CudaRuntime | Layer::Hip => {
                if let Some((device, size)) = self.devices.cache.segments.remove(&addr) {
                    self.devices.cache.stale = true;
                    let less = |bytes: u64| bytes.saturating_sub(size);
                    book.reserve(self.process(), device, less);
                }
                if let Some((device, size)) = self.devices.cache.pooled.remove(&addr) {
                    let less = |bytes: u64| bytes.saturating_sub(size);
                    book.torch_allocated(self.process(), device, less);
                    self.free(Layer::TorchCuda, addr, time_ns, book);
                }
            }
            _ => {}
        }
        if !self.devices.physical.knows(addr) {
            return false;
        }
        let gone = self.devices.physical.release(addr);
        self.physical_released(gone, time_ns, book);
        true
    }

    pub(super) fn cached_block(
        &mut self,
        addr: u64,
        size: u64,
        device: Device,
        told: Told,
        born: Birth,
        book: &mut Book,
    ) {
        let process = self.process();
        // Also of a block whose release was lost.
        if let Some(request) = self.devices.cache.requests.remove(&addr) {
            let stream = book.devices.stream(process, &request);
            stream.allocated -= request.size;
            stream.requested -= request.requested;
        }
        if size == 0 {
            if !self.free(Layer::TorchCuda, addr, born.time_ns, book) {
                book.counts.unknown_free += 1;
            }
        } else {
            self.place_segment(addr, device, book);
            let key = SiteKey {
                process,
                layer: Layer::TorchCuda,
                stack: born.stack,
                by_allocator: false,
                device,
            };
            self.put_block(key, addr, size, born, book);
        }
        self.cache_tells(device, told, book);
    }

    fn cache_tells(&mut self, device: Device, told: Told, book: &mut Book) {
        self.devices.cache.stale = true;
        self.devices.cache.tells = true;
        let totals = book.devices.touch(self.process(), device);
        let torch = totals.torch.get_or_insert_default();
        torch.set_allocated(told.allocated);
        torch.set_reserved(told.reserved);
    }

    pub(super) fn device_failed(
        &mut self,
        key: FailureKey,
        size: u64,
        told: Option<Told>,
        time_ns: u64,
        book: &mut Book,
    ) {
        if let Some(told) = told {
            self.cache_tells(key.device, told, book);
        }
        self.find_free(book);
        book.device_failed(key, size, time_ns);
    }

    /// A block at `addr` is of `device`, and so is what the caching allocator asked the runtime for to
    /// give it, and the runtime the driver. Of a thread that chose its device before tracing began that was not known.
    fn place_segment(&mut self, addr: u64, device: Device, book: &mut Book) {
        let Some((start, known, size)) = self.devices.cache.segment_of(addr) else {
            return;
        };
        let wrong = std::mem::replace(known, device);
        if wrong == device {
            return;
        }
        book.reserve(self.process(), wrong, |bytes| bytes.saturating_sub(size));
        for layer in [Layer::CudaRuntime, Layer::CudaDriver, Layer::Hip] {
            let table = &mut self.tables[layer as usize];
            let block = table.get(start);
            if let Some(block) = block.filter(|block| book.key(block.site).device != device) {
                let site = book.place(&block, device);
                table.insert(Block { site, ..block });
            }
        }
    }

    /// Memory of a device was given back of which nothing is known: where that was PyTorch's, its allocator
    /// does not hold what it told last.
    pub(super) fn unknown_freed(&mut self, book: &mut Book) {
        if self.devices.cache.tells {
            for (_, torch) in book.devices.caches(self.process()) {
                torch.reserved = None;
                torch.largest_free = None;
            }
        }
    }

    /// What was asked for of a block of the caching allocator's, and on which stream.
    pub(super) fn device_request(
        &mut self,
        addr: u64,
        requested: u64,
        stream: u64,
        book: &mut Book,
    ) {
        let Some(block) = self.tables[Layer::TorchCuda as usize].get(addr) else {
            return;
        };
        let request = Request {
            device: book.key(block.site).device,
            stream,
            requested,
            size: block.size,
        };
        // What the process says is not to be trusted; nor to be counted twice.
        if requested > block.size || self.devices.cache.requests.contains_key(&addr) {
            return;
        }
        self.devices.cache.requests.insert(addr, request);
        let stream = book.devices.stream(self.process(), &request);
        stream.allocated += request.size;
        stream.requested += request.requested;
    }

    /// Looks for the largest free block on each device, if anything has changed.
    pub(super) fn find_free(&mut self, book: &mut Book) {
        if !std::mem::take(&mut self.devices.cache.stale) {
            return;
        }
        let mut blocks: FastMap<Device, Vec<(u64, u64)>> = FastMap::default();
        for block in self.tables[Layer::TorchCuda as usize].iter() {
            let device = book.key(block.site).device;
            let range = (block.addr, block.addr.saturating_add(block.size));
            blocks.entry(device).or_default().push(range);
        }
        let process = self.process();
        for (device, torch) in book.devices.caches(process) {
            let blocks = blocks.remove(&device).unwrap_or_default();
            let mut segments = self.devices.cache.segments(device);
            segments.extend(self.devices.physical.cached(device));
            torch.largest_free = torch
                .reserved
                .and_then(|reserved| largest_gap(segments, blocks, (torch.allocated, reserved)));
        }
    }

    pub(super) fn device_map(&mut self, addr: u64, len: u64, handle: u64, book: &mut Book) {
        if let Some(memory) = self.devices.physical.map(addr, len, handle)
            && memory.by_cache
        {
            self.devices.cache.stale = true;
            book.reserve(self.process(), memory.device, |bytes| bytes + len);
        }
    }

    pub(super) fn device_unmap(&mut self, addr: u64, len: u64, time_ns: u64, book: &mut Book) {
        let Some(unmapped) = self.devices.physical.unmap(addr, len) else {
            self.unknown_freed(book);
            return;
        };
        for (memory, bytes, gone) in unmapped {
            if memory.by_cache {
                self.devices.cache.stale = true;
                let less = |reserved: u64| reserved.saturating_sub(bytes);
                book.reserve(self.process(), memory.device, less);
            }
            self.physical_released(gone, time_ns, book);
        }
    }

    pub(super) fn device_retain(&mut self, handle: u64) {
        self.devices.physical.retain(handle);
    }

    fn physical_released(&self, gone: Option<Memory>, time_ns: u64, book: &mut Book) {
        if let Some(memory) = gone {
            self.release_block(&memory.block, time_ns, book);
        }
    }
}
