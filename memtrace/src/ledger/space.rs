//! One address space: the live blocks in it, and the calls in flight that
//! take something from it. Turns events into entries of the [`Book`].
//!
//! A block or a range that a realloc, munmap or mremap is about to release leaves the table at
//! once, because the address may be handed out again before the outcome is reported, but it stays
//! on the books until then. If the address is handed out again, the release must have happened. So
//! nothing pending ever overlaps a live block, and a failed call can put back the blocks it took.

use super::{
    ProcessId, SiteKey,
    cache::Cache,
    holes::{self, Hole},
    lineage::Lineage,
    physical::Physical,
    regions::{Cut, Piece, Region, Regions},
    table::{Block, Table},
    totals::{Book, Ended, block_site},
};
use crate::{
    event::{Layer, MapKind, StackId},
    hash::FastMap,
};
use std::sync::Arc;

/// mremap keeps the old range mapped (linux/mman.h).
const MREMAP_DONTUNMAP: u32 = 4;

/// Site and time of an allocation.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    pub(super) stack: StackId,
    /// CLOCK_MONOTONIC ns.
    pub(super) time_ns: u64,
}

/// Blocks taken out by a call in flight.
#[derive(Clone)]
enum Pending {
    Realloc(Taken),
    Unmap(Vec<Piece>),
    /// The kind is that of the mapping moved.
    Remap(Vec<Piece>, MapKind),
}

/// Block taken out by a realloc in flight.
#[derive(Clone, Copy)]
enum Taken {
    /// realloc of NULL.
    Nothing,
    /// Not live: from before attach.
    Unknown,
    Block(Block),
    /// Its address was handed out again: it is released already.
    Settled,
}

/// One process's memory.
pub(super) struct Space {
    process: ProcessId,
    lineage: Arc<Lineage>,
    page_size: u64,
    /// By layer; those of vm and python stay empty, their blocks are regions.
    pub(super) tables: [Table; Layer::ALL.len()],
    /// Requests of the caching allocator.
    pub(super) cache: Cache,
    pub(super) physical: Physical,
    pub(super) regions: Regions,
    /// Program break, rounded up to a page, once known.
    brk: Option<u64>,
    /// At most one call of each layer is in flight in a thread: nested calls within one layer are
    /// not reported. Calls on regions are vm's, whatever the regions count for.
    pending: FastMap<(u32, Layer), Pending>,
}

impl Space {
    pub(super) fn new(process: ProcessId, page_size: u64) -> Space {
        Space {
            process,
            lineage: Arc::default(),
            page_size,
            tables: Default::default(),
            cache: Cache::default(),
            physical: Physical::default(),
            regions: Regions::default(),
            brk: None,
            pending: FastMap::default(),
        }
    }

    pub(super) fn process(&self) -> ProcessId {
        self.process
    }

    pub(super) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// The memory of the same process after its exec.
    pub(super) fn executed(&self) -> Space {
        Space {
            lineage: self.lineage.executed(),
            ..Space::new(self.process, self.page_size)
        }
    }

    /// The memory of a forked child, which shares the tables until it writes. Calls in flight in
    /// the parent's other threads did not happen in the child, and its devices hold nothing for it.
    pub(super) fn fork(&self, child: ProcessId, book: &mut Book) -> Space {
        book.inherit(self.process, child);
        let mut space = Space {
            process: child,
            lineage: self.lineage.forked(),
            page_size: self.page_size,
            tables: self.tables.clone(),
            cache: Cache::default(),
            physical: Physical::default(),
            regions: self.regions.clone(),
            brk: self.brk,
            pending: FastMap::default(),
        };
        for layer in Layer::ALL.into_iter().filter(|layer| layer.of_device()) {
            space.tables[layer as usize] = Table::default();
        }
        for ((_, layer), pending) in &self.pending {
            match pending {
                Pending::Realloc(Taken::Block(block)) => {
                    space.tables[*layer as usize].insert(*block);
                }
                Pending::Realloc(_) => {}
                Pending::Unmap(pieces) | Pending::Remap(pieces, _) => {
                    space.put_back(pieces.clone(), book);
                }
            }
        }
        space
    }

    /// Exec or exit: no call in flight will report its outcome.
    pub(super) fn lose_outcomes(&mut self, book: &mut Book) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.lose(pending, book);
        }
    }

    /// Regions that existed before attach; known ones are left unchanged.
    pub(super) fn seed(
        &mut self,
        regions: &[(u64, u64)],
        brk: Option<(u64, u64)>,
        book: &mut Book,
    ) {
        let heap = brk.map(|(start, end)| (start, end.saturating_sub(start)));
        for (addr, len) in regions.iter().copied().chain(heap) {
            let (start, end) = self.pages(addr, len);
            for (start, end) in self.regions.gaps(start, end) {
                let region = Region {
                    end,
                    origin: start,
                    site: None,
                    birth_ns: 0,
                    kind: MapKind::default(),
                };
                self.regions.put(start, region);
                book.before_attach(self.process, end - start, 0);
            }
        }
        if let Some((_, end)) = brk {
            self.brk.get_or_insert(self.page_up(end));
        }
    }

    pub(super) fn alloc(
        &mut self,
        layer: Layer,
        addr: u64,
        size: u64,
        born: Birth,
        book: &mut Book,
    ) {
        if addr == 0 {
            return;
        }
        self.settle_block(layer, addr, born.time_ns, book);
        self.put_block(
            block_site(self.process, layer, born.stack),
            addr,
            size,
            born,
            book,
        );
    }

    /// Enters a block of the site `key`.
    pub(super) fn put_block(
        &mut self,
        key: SiteKey,
        addr: u64,
        size: u64,
        born: Birth,
        book: &mut Book,
    ) {
        let site = book.site(key);
        let block = Block {
            addr,
            size,
            birth_ns: born.time_ns,
            site,
        };
        if let Some(old) = self.tables[key.layer as usize].insert(block) {
            book.counts.address_reused += 1;
            book.release(self.process, old.site, old.size, Ended::Sometime);
        }
        book.allocate(site, size, born.time_ns);
    }

    /// False if the address is not live (0 never is, and need not be).
    pub(super) fn free(&mut self, layer: Layer, addr: u64, time_ns: u64, book: &mut Book) -> bool {
        if addr == 0 {
            return true;
        }
        if layer.of_device() && self.device_freed(layer, addr, time_ns, book) {
            return true;
        }
        let block = self.tables[layer as usize].remove(addr);
        if let Some(block) = &block {
            self.release_block(block, time_ns, book);
        }
        block.is_some()
    }

    pub(super) fn realloc_begin(&mut self, tid: u32, layer: Layer, addr: u64, book: &mut Book) {
        let taken = if addr == 0 {
            Taken::Nothing
        } else {
            self.tables[layer as usize]
                .remove(addr)
                .map_or(Taken::Unknown, Taken::Block)
        };
        self.begin(tid, layer, Pending::Realloc(taken), book);
    }

    pub(super) fn realloc_end(
        &mut self,
        tid: u32,
        layer: Layer,
        addr: u64,
        size: u64,
        born: Birth,
        book: &mut Book,
    ) {
        let failed = addr == 0 && size > 0;
        if let Some(Pending::Realloc(taken)) = self.pending.remove(&(tid, layer)) {
            match taken {
                Taken::Block(block) if failed => {
                    self.tables[layer as usize].insert(block);
                }
                Taken::Block(block) => self.release_block(&block, born.time_ns, book),
                Taken::Unknown if !failed => book.counts.unknown_free += 1,
                Taken::Unknown | Taken::Nothing | Taken::Settled => {}
            }
        }
        self.alloc(layer, addr, size, born, book);
    }

    pub(super) fn mmap(
        &mut self,
        addr: u64,
        len: u64,
        kind: MapKind,
        born: Birth,
        book: &mut Book,
    ) {
        let (start, end) = self.pages(addr, len);
        if start == end {
            return;
        }
        self.cut(start, end, born.time_ns, book);
        let site = book.site(SiteKey {
            process: self.process,
            layer: kind.layer(),
            stack: born.stack,
            by_allocator: kind.by_allocator,
            device: None,
        });
        let region = Region {
            end,
            origin: start,
            site: Some(site),
            birth_ns: born.time_ns,
            kind,
        };
        self.regions.put(start, region);
        book.allocate(site, end - start, born.time_ns);
    }

    pub(super) fn unmap_begin(&mut self, tid: u32, addr: u64, len: u64, book: &mut Book) {
        let pieces = if len == 0 {
            self.regions.take_mapping(addr)
        } else {
            let (start, end) = self.pages(addr, len);
            self.regions.take(start, end)
        };
        self.note_splits(&pieces, book);
        self.begin(tid, Layer::Vm, Pending::Unmap(pieces), book);
    }

    pub(super) fn unmap_end(&mut self, tid: u32, failed: bool, time_ns: u64, book: &mut Book) {
        match self.pending.remove(&(tid, Layer::Vm)) {
            Some(Pending::Unmap(pieces)) if failed => self.put_back(pieces, book),
            Some(Pending::Unmap(pieces)) => self.release_pieces(&pieces, time_ns, book),
            Some(other) => self.lose(other, book),
            None => {}
        }
    }

    /// `len` 0 duplicates a shared mapping and takes nothing.
    pub(super) fn remap_begin(&mut self, tid: u32, addr: u64, len: u64, book: &mut Book) {
        let kind = self.regions.at(addr).map(|r| r.kind).unwrap_or_default();
        let (start, end) = self.pages(addr, len);
        let pieces = self.regions.take(start, end);
        self.note_splits(&pieces, book);
        self.begin(tid, Layer::Vm, Pending::Remap(pieces, kind), book);
    }

    /// `mapped` is the new range, `None` when the call failed. A success counts
    /// as realloc does: the old range was released, the new
    /// one allocated at mremap's stack. That holds as well for a mapping from
    /// before attach, which thereby becomes known. An allocator's stays its own.
    pub(super) fn remap_end(
        &mut self,
        tid: u32,
        mapped: Option<(u64, u64)>,
        flags: u32,
        by_allocator: bool,
        born: Birth,
        book: &mut Book,
    ) {
        let mut kind = match self.pending.remove(&(tid, Layer::Vm)) {
            Some(Pending::Remap(pieces, kind)) => {
                if mapped.is_none() || flags & MREMAP_DONTUNMAP != 0 {
                    self.put_back(pieces, book);
                } else {
                    self.release_pieces(&pieces, born.time_ns, book);
                }
                kind
            }
            Some(other) => {
                self.lose(other, book);
                MapKind::default()
            }
            None => MapKind::default(),
        };
        kind.by_allocator |= by_allocator;
        if let Some((addr, len)) = mapped {
            self.mmap(addr, len, kind, born, book);
        }
    }

    /// The break is at `now`; the first one known is the baseline.
    pub(super) fn brk(&mut self, now: u64, by_allocator: bool, born: Birth, book: &mut Book) {
        let now = self.page_up(now);
        let Some(before) = self.brk.replace(now) else {
            return;
        };
        if now > before {
            let kind = MapKind {
                by_allocator,
                ..MapKind::default()
            };
            self.mmap(before, now - before, kind, born, book);
        } else {
            self.cut(now, before, born.time_ns, book);
        }
    }

    /// Calls `f` with site, birth, bytes and count of each block on the books,
    /// inherited ones included, mappings from before attach not.
    pub(super) fn for_each_block(&self, mut f: impl FnMut(u32, u64, u64, u64)) {
        for block in self.tables.iter().flat_map(Table::iter) {
            f(block.site, block.birth_ns, block.size, 1);
        }
        for block in self.physical.blocks() {
            f(block.site, block.birth_ns, block.size, 1);
        }
        for (start, region) in self.regions.iter() {
            if let Some(site) = region.site {
                f(site, region.birth_ns, region.end - start, 1);
            }
        }
        for pending in self.pending.values() {
            match pending {
                Pending::Realloc(Taken::Block(block)) => {
                    f(block.site, block.birth_ns, block.size, 1);
                }
                Pending::Realloc(_) => {}
                Pending::Unmap(pieces) | Pending::Remap(pieces, _) => {
                    for piece in pieces {
                        if let Some(site) = piece.region.site {
                            let count = u64::from(piece.cut == Cut::Whole);
                            f(site, piece.region.birth_ns, piece.bytes(), count);
                        }
                    }
                }
            }
        }
    }

    /// Calls `f` with each hole of the heap.
    pub(super) fn for_each_hole(&self, book: &Book, f: impl FnMut(Hole)) {
        let pending = self.pending.values().filter_map(|pending| match pending {
            Pending::Realloc(Taken::Block(block)) => Some(*block),
            _ => None,
        });
        let blocks = self.tables[Layer::Heap as usize].iter().copied();
        holes::for_each(&self.regions, blocks.chain(pending).collect(), book, f);
    }

    /// Blocks in the tables.
    pub(super) fn blocks(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// Bytes of the tables.
    pub(super) fn table_bytes(&self) -> usize {
        self.tables.iter().map(Table::bytes).sum()
    }

    fn begin(&mut self, tid: u32, layer: Layer, pending: Pending, book: &mut Book) {
        if let Some(lost) = self.pending.insert((tid, layer), pending) {
            self.lose(lost, book);
        }
    }

    /// Its outcome will never be known: the blocks it took count as released, at an unknown time.
    fn lose(&self, pending: Pending, book: &mut Book) {
        book.counts.outcome_lost += 1;
        match pending {
            Pending::Realloc(Taken::Block(block)) => {
                book.release(self.process, block.site, block.size, Ended::Sometime);
            }
            Pending::Realloc(_) => {}
            Pending::Unmap(pieces) | Pending::Remap(pieces, _) => {
                for piece in pieces {
                    self.release_piece(&piece, Ended::Sometime, book);
                }
            }
        }
    }

    pub(super) fn release_block(&self, block: &Block, time_ns: u64, book: &mut Book) {
        let lifetime = Ended::After(time_ns.saturating_sub(block.birth_ns));
        book.release(self.process, block.site, block.size, lifetime);
    }

    fn release_pieces(&self, pieces: &[Piece], time_ns: u64, book: &mut Book) {
        for piece in pieces {
            let lifetime = Ended::After(time_ns.saturating_sub(piece.region.birth_ns));
            self.release_piece(piece, lifetime, book);
        }
    }

    /// `ended` is the region's end time, if this was the whole of it.
    fn release_piece(&self, piece: &Piece, ended: Ended, book: &mut Book) {
        let ended = if piece.cut == Cut::Whole {
            ended
        } else {
            Ended::No
        };
        match piece.region.site {
            Some(site) => book.release(self.process, site, piece.bytes(), ended),
            None => book.before_attach(self.process, 0, piece.bytes()),
        }
    }

    /// A cut in the middle turned one piece into two at once; a whole region that is pending still
    /// counts as one, an edge as part of the remainder.
    fn note_splits(&self, pieces: &[Piece], book: &mut Book) {
        for piece in pieces {
            if let (Cut::Middle, Some(site)) = (piece.cut, piece.region.site) {
                book.repiece(self.process, site, 1, 2);
            }
        }
    }

    /// Undoes a take.
    fn put_back(&mut self, pieces: Vec<Piece>, book: &mut Book) {
        for piece in pieces {
            let joined = self.regions.put(piece.start, piece.region);
            if let Some(site) = piece.region.site {
                let counted = u64::from(piece.cut == Cut::Whole);
                book.repiece(self.process, site, counted + joined, 1);
            }
        }
    }

    /// [start, end) is released or mapped anew: earlier regions there are gone.
    fn cut(&mut self, start: u64, end: u64, time_ns: u64, book: &mut Book) {
        let mut pieces = self.regions.take(start, end);
        self.note_splits(&pieces, book);
        for pending in self.pending.values_mut() {
            if let Pending::Unmap(taken) | Pending::Remap(taken, _) = pending {
                settle_pieces(taken, start, end, &mut pieces);
            }
        }
        self.release_pieces(&pieces, time_ns, book);
    }

    /// `addr` is handed out: a realloc in flight in another thread has released it.
    fn settle_block(&mut self, layer: Layer, addr: u64, time_ns: u64, book: &mut Book) {
        if self.pending.is_empty() {
            return;
        }
        let settled = self.pending.iter_mut().find_map(|(key, pending)| {
            let Pending::Realloc(taken) = pending else {
                return None;
            };
            match *taken {
                Taken::Block(block) if key.1 == layer && block.addr == addr => {
                    *taken = Taken::Settled;
                    Some(block)
                }
                _ => None,
            }
        });
        if let Some(block) = settled {
            self.release_block(&block, time_ns, book);
        }
    }

    fn pages(&self, addr: u64, len: u64) -> (u64, u64) {
        let start = addr & !(self.page_size - 1);
        if len == 0 {
            return (start, start);
        }
        (start, self.page_up(addr.saturating_add(len)))
    }

    fn page_up(&self, addr: u64) -> u64 {
        addr.checked_next_multiple_of(self.page_size)
            .unwrap_or(!(self.page_size - 1))
    }
}

/// Moves the parts of `taken` in [start, end) to `settled`. If a whole region is broken up, one of
/// the parts continues to count as the whole.
fn settle_pieces(taken: &mut Vec<Piece>, start: u64, end: u64, settled: &mut Vec<Piece>) {
    for piece in std::mem::take(taken) {
        let piece_end = piece.region.end;
        let part = |from: u64, to: u64, cut: Cut| Piece {
            start: from,
            region: Region {
                end: to,
                ..piece.region
            },
            cut,
        };
        if piece_end <= start || end <= piece.start {
            taken.push(piece);
            continue;
        }
        let mut cut = piece.cut;
        if piece.start < start {
            taken.push(part(piece.start, start, cut));
            cut = Cut::Edge;
        }
        if end < piece_end {
            taken.push(part(end, piece_end, cut));
            cut = Cut::Edge;
        }
        settled.push(part(piece.start.max(start), piece_end.min(end), cut));
    }
}
