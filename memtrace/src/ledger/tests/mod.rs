//! Tests of the ledger by its rules, and against models that do everything
//! the slow and obvious way.

mod blocks;
mod device_blocks;
mod fold;
mod holes;
mod processes;
mod properties;
mod survivors;
mod vm;

use super::*;
use crate::event::{Device, MapKind, StackId};
use std::collections::HashMap;

const PAGE: u64 = 4096;

/// A ledger with a clock that ticks once an event, and the figures as a reader
/// of its changes would have them.
pub(super) struct Bench {
    pub(super) ledger: Ledger,
    pub(super) now: u64,
    pub(super) sites: HashMap<SiteKey, SiteTotals>,
    pub(super) layers: HashMap<(ProcessId, Layer), LayerTotals>,
    /// By tgid, also of those that ended.
    ids: HashMap<u32, ProcessId>,
}

impl Bench {
    /// With process 1 as tgid 1.
    pub(super) fn new() -> Bench {
        let mut ledger = Ledger::new(PAGE);
        ledger.start_process(1);
        Bench {
            ledger,
            now: 1000,
            sites: HashMap::new(),
            layers: HashMap::new(),
            ids: HashMap::new(),
        }
    }

    pub(super) fn does(&mut self, tgid: u32, tid: u32, action: Action) {
        self.now += 1;
        self.ledger.apply(&Event {
            time_ns: self.now,
            tgid,
            tid,
            action,
        });
        let child = match action {
            Action::Fork { child, .. } => child,
            _ => tgid,
        };
        if let Some(id) = self.ledger.process_of(child) {
            self.ids.insert(child, id);
        }
    }

    pub(super) fn alloc(&mut self, tgid: u32, addr: u64, size: u64, stack: u32) {
        let action = Action::Alloc {
            layer: Layer::Heap,
            addr,
            size,
            stack: StackId(stack),
        };
        self.does(tgid, tgid, action);
    }

    pub(super) fn free(&mut self, tgid: u32, addr: u64) {
        let action = Action::Free {
            layer: Layer::Heap,
            addr,
            repeated: false,
        };
        self.does(tgid, tgid, action);
    }

    pub(super) fn realloc_begin(&mut self, tid: u32, addr: u64) {
        let action = Action::ReallocBegin {
            layer: Layer::Heap,
            addr,
        };
        self.does(1, tid, action);
    }

    pub(super) fn realloc_end(&mut self, tid: u32, addr: u64, size: u64, stack: u32) {
        let action = Action::ReallocEnd {
            layer: Layer::Heap,
            addr,
            size,
            stack: StackId(stack),
        };
        self.does(1, tid, action);
    }

    /// Addresses and lengths in pages.
    pub(super) fn mmap(&mut self, tgid: u32, addr: u64, len: u64, stack: u32) {
        self.mmap_as(MapKind::default(), tgid, (addr, len), stack);
    }

    /// Maps an arena of Python's object allocator.
    pub(super) fn mmap_arena(&mut self, tgid: u32, addr: u64, len: u64, stack: u32) {
        let kind = MapKind {
            arena: true,
            ..MapKind::default()
        };
        self.mmap_as(kind, tgid, (addr, len), stack);
    }

    pub(super) fn mmap_as(
        &mut self,
        kind: MapKind,
        tgid: u32,
        (addr, len): (u64, u64),
        stack: u32,
    ) {
        let action = Action::Mmap {
            addr: addr * PAGE,
            len: len * PAGE,
            stack: StackId(stack),
            kind,
        };
        self.does(tgid, tgid, action);
    }

    pub(super) fn unmap_begin(&mut self, tid: u32, addr: u64, len: u64) {
        let action = Action::UnmapBegin {
            addr: addr * PAGE,
            len: len * PAGE,
        };
        self.does(1, tid, action);
    }

    pub(super) fn unmap_end(&mut self, tid: u32, failed: bool) {
        self.does(1, tid, Action::UnmapEnd { failed });
    }

    pub(super) fn munmap(&mut self, tgid: u32, addr: u64, len: u64) {
        let action = Action::UnmapBegin {
            addr: addr * PAGE,
            len: len * PAGE,
        };
        self.does(tgid, tgid, action);
        self.does(tgid, tgid, Action::UnmapEnd { failed: false });
    }

    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        let action = Action::Fork {
            child,
            shared_vm: false,
        };
        self.does(parent, parent, action);
    }

    pub(super) fn id(&self, tgid: u32) -> ProcessId {
        let known = self.ids.get(&tgid).copied();
        self.ledger.process_of(tgid).or(known).unwrap()
    }

    pub(super) fn read_changes(&mut self) {
        let changes = self.ledger.take_changes();
        self.sites.extend(changes.sites);
        self.layers.extend(changes.layers);
    }

    pub(super) fn layer(&mut self, tgid: u32, layer: Layer) -> LayerTotals {
        self.read_changes();
        let id = self.id(tgid);
        self.layers.get(&(id, layer)).copied().unwrap_or_default()
    }

    pub(super) fn heap(&mut self, tgid: u32) -> Totals {
        self.layer(tgid, Layer::Heap).totals
    }

    pub(super) fn vm(&mut self, tgid: u32) -> Totals {
        self.layer(tgid, Layer::Vm).totals
    }

    /// Bytes and count that are live in a layer.
    pub(super) fn live(&mut self, tgid: u32, layer: Layer) -> (u64, u64) {
        let totals = self.layer(tgid, layer).totals;
        (totals.live_bytes, totals.live_count)
    }

    pub(super) fn inherited(&mut self, tgid: u32, layer: Layer) -> (u64, u64) {
        let totals = self.layer(tgid, layer).totals;
        (totals.inherited_bytes, totals.inherited_count)
    }

    pub(super) fn site(&mut self, tgid: u32, layer: Layer, stack: u32) -> Option<SiteTotals> {
        self.read_changes();
        let key = SiteKey {
            process: self.id(tgid),
            layer,
            stack: StackId(stack),
            by_allocator: false,
            device: None,
        };
        self.sites.get(&key).cloned()
    }

    /// Bytes and count of the site when its layer was at its peak, as a reader works it out.
    pub(super) fn at_peak(&mut self, tgid: u32, layer: Layer, stack: u32) -> (u64, u64) {
        let epoch = self.layer(tgid, layer).peak_epoch;
        let Some(site) = self.site(tgid, layer, stack) else {
            return (0, 0);
        };
        if site.peak_epoch == epoch {
            (site.at_peak_bytes, site.at_peak_count)
        } else {
            (site.totals.live_bytes, site.totals.live_count)
        }
    }

    /// Unknown frees, addresses reused, outcomes lost.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let counts = self.ledger.counts();
        (
            counts.unknown_free,
            counts.address_reused,
            counts.outcome_lost,
        )
    }
}

/// xorshift64*: the same numbers in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}
