//! Effects of device memory events on a process: its blocks, the segments of its caching
//! allocators, and its physical memory.
//!
//! A caching allocator may report its own totals with each block, and when it fails to provide one,
//! so they are correct even if tracing began late. Between two blocks it can still give memory
//! back; that is seen as releases of its own requests if they were made since tracing began:
//! otherwise its total is unknown until its next report. The blocks of one that does not report are
//! added up.
//!
//! If a process has several, the totals are those of the first; the requests of the others count as
//! other memory, and their blocks have layers of their own.

use super::{
    SiteKey,
    cache::{Request, largest_gap},
    device_totals::FailureKey,
    physical::PhysicalMemory,
    space::{Birth, Space},
    table::Block,
    totals::Book,
};
use crate::{
    event::{CacheReport, Device, Layer, Source},
    frames::caching,
    hash::FastMap,
};

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
            // A repeated handle, whose release was lost.
            while self.physical.knows(addr) {
                book.counts.address_reused += 1;
                let gone = self.physical.release(addr);
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
            let by_cache = source.by_cache.filter(|&layer| self.cache.is_of(layer));
            self.physical.create(block, device, by_cache.is_some());
            return;
        }
        self.put_block(key, addr, size, born, book);
        if caching::is_layer_of_blocks(layer) && self.cache.is_of(layer) {
            self.count_block(addr, size, device, book);
        }
        let Some(of_blocks) = source.by_cache.filter(|&layer| self.cache.is_of(layer)) else {
            return;
        };
        if source.stream_ordered {
            self.count_block(addr, size, device, book);
            let key = SiteKey {
                layer: of_blocks,
                by_allocator: false,
                ..key
            };
            self.put_block(key, addr, size, born, book);
        } else {
            self.cache.stale = true;
            self.cache.segments.insert(addr, (device, size));
            book.devices.reserve(process, device, |bytes| bytes + size);
        }
    }

    /// The caching allocator gave a block that it does not report.
    fn count_block(&mut self, addr: u64, size: u64, device: Device, book: &mut Book) {
        let process = self.process();
        let again = self.cache.counted.insert(addr, (device, size));
        // Its release was lost.
        if let Some((device, size)) = again {
            let less = |bytes: u64| bytes.saturating_sub(size);
            book.devices.cache_allocated(process, device, less);
        }
        book.devices
            .cache_allocated(process, device, |bytes| bytes + size);
    }

    /// It took one back; false if it had given none there.
    fn uncount_block(&mut self, addr: u64, book: &mut Book) -> bool {
        let Some((device, size)) = self.cache.counted.remove(&addr) else {
            return false;
        };
        let less = |bytes: u64| bytes.saturating_sub(size);
        book.devices.cache_allocated(self.process(), device, less);
        true
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
                if let Some((device, size)) = self.cache.segments.remove(&addr) {
                    self.cache.stale = true;
                    let less = |bytes: u64| bytes.saturating_sub(size);
                    book.devices.reserve(self.process(), device, less);
                }
                if self.uncount_block(addr, book)
                    && let Some(of_blocks) = self.cache.layer
                {
                    self.free(of_blocks, addr, time_ns, book);
                }
            }
            layer if self.cache.layer == Some(layer) => {
                self.uncount_block(addr, book);
            }
            _ => {}
        }
        if !self.physical.knows(addr) {
            return false;
        }
        let gone = self.physical.release(addr);
        self.physical_released(gone, time_ns, book);
        true
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "an event's fields, taken apart by the caller"
    )]
    pub(super) fn cached_block(
        &mut self,
        layer: Layer,
        addr: u64,
        size: u64,
        device: Device,
        report: CacheReport,
        born: Birth,
        book: &mut Book,
    ) {
        let process = self.process();
        // Also if the release of a block was lost.
        if let Some(request) = self.cache.requests.remove(&addr) {
            let stream = book.devices.stream(process, &request);
            stream.allocated -= request.size;
            stream.requested -= request.requested;
        }
        if size == 0 {
            if !self.free(layer, addr, born.time_ns, book) {
                book.counts.unknown_free += 1;
            }
        } else {
            if self.cache.is_of(layer) {
                self.place_segment(addr, device, book);
            }
            let key = SiteKey {
                process,
                layer,
                stack: born.stack,
                by_allocator: false,
                device,
            };
            self.put_block(key, addr, size, born, book);
        }
        self.cache_reported(layer, device, report, book);
    }

    fn cache_reported(
        &mut self,
        layer: Layer,
        device: Device,
        report: CacheReport,
        book: &mut Book,
    ) {
        if !self.cache.is_of(layer) {
            return;
        }
        self.cache.stale = true;
        self.cache.reports = true;
        let totals = book.devices.touch(self.process(), device);
        let cache = totals.cache.get_or_insert_default();
        cache.set_allocated(report.allocated);
        cache.set_reserved(report.reserved);
    }

    pub(super) fn device_failed(
        &mut self,
        key: FailureKey,
        size: u64,
        report: Option<CacheReport>,
        time_ns: u64,
        book: &mut Book,
    ) {
        if let Some(report) = report {
            self.cache_reported(key.layer, key.device, report, book);
        }
        self.find_free(book);
        book.devices.failed(key, size, time_ns);
    }

    /// A block at `addr` belongs to `device`, and so do the request to the runtime that the caching
    /// allocator made for it, and the runtime's request to the driver. For a thread that chose its
    /// device before tracing began, the device was unknown until now.
    fn place_segment(&mut self, addr: u64, device: Device, book: &mut Book) {
        let Some((start, known, size)) = self.cache.segment_of(addr) else {
            return;
        };
        let wrong = std::mem::replace(known, device);
        if wrong == device {
            return;
        }
        book.devices
            .reserve(self.process(), wrong, |bytes| bytes.saturating_sub(size));
        for layer in [Layer::CudaRuntime, Layer::CudaDriver, Layer::Hip] {
            let table = &mut self.tables[layer as usize];
            let block = table.get(start);
            if let Some(block) = block.filter(|block| book.key(block.site).device != device) {
                let site = book.place(&block, device);
                table.insert(Block { site, ..block });
            }
        }
    }

    /// Unknown device memory was given back: if it was the caching allocator's, its last reported
    /// total no longer holds.
    pub(super) fn unknown_freed(&mut self, book: &mut Book) {
        if self.cache.reports {
            for (_, cache) in book.devices.caches(self.process()) {
                cache.reserved = None;
                cache.largest_free = None;
            }
        }
    }

    /// The size requested for a block of the caching allocator, and its stream.
    pub(super) fn device_request(
        &mut self,
        layer: Layer,
        addr: u64,
        requested: u64,
        stream: u64,
        book: &mut Book,
    ) {
        let Some(block) = self.tables[layer as usize].get(addr) else {
            return;
        };
        let request = Request {
            device: book.key(block.site).device,
            stream,
            requested,
            size: block.size,
        };
        // The process's figures are not trusted, and not counted twice.
        if requested > block.size || self.cache.requests.contains_key(&addr) {
            return;
        }
        self.cache.requests.insert(addr, request);
        let stream = book.devices.stream(self.process(), &request);
        stream.allocated += request.size;
        stream.requested += request.requested;
    }

    /// Finds the largest free block on each device, if anything has changed.
    pub(super) fn find_free(&mut self, book: &mut Book) {
        if !std::mem::take(&mut self.cache.stale) {
            return;
        }
        let mut blocks: FastMap<Device, Vec<(u64, u64)>> = FastMap::default();
        let of_blocks = self.cache.layer.iter();
        for block in of_blocks.flat_map(|&layer| self.tables[layer as usize].iter()) {
            let device = book.key(block.site).device;
            let range = (block.addr, block.addr.saturating_add(block.size));
            blocks.entry(device).or_default().push(range);
        }
        let process = self.process();
        for (device, cache) in book.devices.caches(process) {
            let blocks = blocks.remove(&device).unwrap_or_default();
            let mut segments = self.cache.segments(device);
            segments.extend(self.physical.cached(device));
            cache.largest_free = cache
                .reserved
                .and_then(|reserved| largest_gap(segments, blocks, (cache.allocated, reserved)));
        }
    }

    pub(super) fn device_map(&mut self, addr: u64, len: u64, handle: u64, book: &mut Book) {
        if let Some(memory) = self.physical.map(addr, len, handle)
            && memory.by_cache
        {
            self.cache.stale = true;
            book.devices
                .reserve(self.process(), memory.device, |bytes| bytes + len);
        }
    }

    pub(super) fn device_unmap(&mut self, addr: u64, len: u64, time_ns: u64, book: &mut Book) {
        let Some(unmapped) = self.physical.unmap(addr, len) else {
            self.unknown_freed(book);
            return;
        };
        for (memory, bytes, gone) in unmapped {
            if memory.by_cache {
                self.cache.stale = true;
                let less = |reserved: u64| reserved.saturating_sub(bytes);
                book.devices.reserve(self.process(), memory.device, less);
            }
            self.physical_released(gone, time_ns, book);
        }
    }

    pub(super) fn device_retain(&mut self, handle: u64) {
        self.physical.retain(handle);
    }

    fn physical_released(&self, gone: Option<PhysicalMemory>, time_ns: u64, book: &mut Book) {
        if let Some(memory) = gone {
            self.release_block(&memory.block, time_ns, book);
        }
    }
}
