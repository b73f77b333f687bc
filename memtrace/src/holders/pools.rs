//! The memory of CPython's small objects (Objects/obmalloc.c): pools of blocks of one size, recognised by their
//! headers. The objects in a pool are found through the interpreter's references alone.

use super::memory::{Circle, Live, Memory};
use crate::process::{maps::Mapping, pagemap::ResidentPages};
use std::ops::Range;

/// `struct pool_header` (Include/internal/pycore_obmalloc.h) and bytes of a block of the smallest size.
pub(super) const HEADER: u64 = 48;
const ALIGNMENT: u64 = 16;
/// Where the header has the size of its blocks: `szidx`.
const CLASS: usize = 36;
/// Where it has the offset of the first block never handed out, and of the last one: `nextoffset`, `maxnextoffset`.
const OFFSETS: usize = 40;
/// Where it has the address of the first free block, which begins with that of the next one: `freeblock`.
const FIRST_FREE: u64 = 8;
/// Sizes of blocks.
const SIZES: u64 = 32;

/// Bytes of address space that are looked at between two checks of whether the search is over.
const STRETCH: u64 = 256 << 20;

/// Bytes of a pool: POOL_SIZE.
fn size(minor: u32) -> u64 {
    if minor >= 10 { 16 << 10 } else { 4 << 10 }
}

/// All pools, by address, as far as they are found before `is_over`; those that are next to each other are one range.
/// Pages that the process has not touched are left alone: programs reserve address space by the terabyte.
pub(super) fn find(
    minor: u32,
    mappings: &[Mapping],
    memory: &Live,
    is_over: &dyn Fn() -> bool,
) -> Vec<Range<u64>> {
    let size = size(minor);
    let mut pools: Vec<Range<u64>> = Vec::new();
    let writable = mappings.iter().filter(|mapping| {
        let permissions = mapping.permissions;
        mapping.path.is_none() && permissions.read && permissions.write && !permissions.shared
    });
    let stretches = writable.flat_map(|mapping| {
        let starts = (mapping.start..mapping.end).step_by(STRETCH as usize);
        starts.map(|start| start..mapping.end.min(start + STRETCH))
    });
    let mut pages = ResidentPages::open(memory.pid()).ok();
    for stretch in stretches.take_while(|_| !is_over()) {
        // Without it, everything is read.
        let taken = pages.as_mut().map(|pages| pages.taken(stretch.clone()));
        let taken = taken.and_then(Result::ok).unwrap_or_else(|| vec![stretch]);
        let places = taken
            .into_iter()
            .flat_map(|part| (part.start.next_multiple_of(size)..part.end).step_by(size as usize));
        let places: Vec<u64> = places.collect();
        for pool in candidates(&places, size, memory) {
            if !is_pool(memory, pool, size) {
                continue;
            }
            match pools.last_mut() {
                Some(last) if last.end == pool => last.end += size,
                _ => pools.push(pool..pool + size),
            }
        }
    }
    pools
}

/// The sizes of pools and of their pieces, bytes.
#[derive(Default)]
pub(super) struct Sizes {
    /// Of every pool.
    pub(super) pool: u64,
    /// By pool: of its pieces, at least 16.
    pub(super) pieces: Vec<u16>,
}

impl Sizes {
    /// Pieces of all pools.
    pub(super) fn number_of_pieces(&self) -> u64 {
        self.pieces
            .iter()
            .map(|&piece| self.pool / u64::from(piece))
            .sum()
    }

    /// Those of pools as [`find`] gives them. One that cannot be read any more may have pieces of any size.
    pub(super) fn of(minor: u32, pools: &[Range<u64>], memory: &Live) -> Self {
        let pool = size(minor);
        let places = pools
            .iter()
            .flat_map(|range| range.clone().step_by(pool as usize));
        let places: Vec<u64> = places.map(|pool| pool + CLASS as u64).collect();
        let mut classes = vec![None; places.len()];
        memory.words(&places, &mut classes);
        let piece = |class: Option<u64>| {
            let class = class.map_or(0, |word| word as u32 as u64).min(SIZES - 1);
            ((class + 1) * ALIGNMENT) as u16
        };
        let pieces = classes.into_iter().map(piece).collect();
        Self { pool, pieces }
    }
}

/// A piece of a pool: what the allocator gives for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pool: u64,
    /// Absolute.
    pub(super) start: u64,
    /// Bytes.
    pub(super) size: u64,
}

impl Piece {
    /// The one around an address in a pool; `None` in the pool's header.
    pub(super) fn at(minor: u32, memory: &dyn Memory, address: u64) -> Option<Self> {
        let pool = address & !(size(minor) - 1);
        let class = memory.half(pool + CLASS as u64).map(u64::from)?;
        let size = (class < SIZES).then(|| (class + 1) * ALIGNMENT)?;
        let offset = (address - pool).checked_sub(HEADER)?;
        let start = pool + HEADER + offset / size * size;
        Some(Self { pool, start, size })
    }

    /// Whether it is in the pool's list of free pieces, or was never handed out.
    pub(super) fn is_free(&self, memory: &dyn Memory) -> bool {
        let next = memory.half(self.pool + OFFSETS as u64);
        if next.is_none_or(|next| self.start >= self.pool + u64::from(next)) {
            return true;
        }
        let mut free = memory.word(self.pool + FIRST_FREE).unwrap_or(0);
        let mut circle = Circle::default();
        while free != 0 && !circle.closes(free) {
            if free == self.start {
                return true;
            }
            free = memory.word(free).unwrap_or(0);
        }
        false
    }
}

/// Bytes of pools that are read at once.
const READ: u64 = 1 << 20;

/// Visits each piece in these pools that is handed out, as it was when its pool was read; whether `is_over` has not ended
/// that.
pub(super) fn pieces(
    minor: u32,
    pools: &[Range<u64>],
    memory: &Live,
    is_over: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(u64, &[u8]),
) -> bool {
    let size = size(minor);
    let mut buffer = vec![0; READ as usize];
    for pools in pools {
        for start in pools.clone().step_by(READ as usize) {
            if is_over() {
                return false;
            }
            let bytes = &mut buffer[..READ.min(pools.end - start) as usize];
            if memory.read(start, bytes) {
                let each = (start..).step_by(size as usize);
                for (pool, bytes) in each.zip(bytes.chunks_exact(size as usize)) {
                    handed_out(pool, bytes, visit);
                }
            }
        }
    }
    true
}

/// Visits the pieces of one pool that are neither in its list of free ones nor were never handed out.
fn handed_out(pool: u64, bytes: &[u8], visit: &mut dyn FnMut(u64, &[u8])) {
    let half = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |it| u32::from_le_bytes(*it))
    };
    let word = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|it| u64::from_le_bytes(*it))
    };
    let (count, class) = (half(0), u64::from(half(CLASS)));
    if count == 0 || class >= SIZES || !is_header(bytes, bytes.len() as u64) {
        return;
    }
    let piece = ((class + 1) * ALIGNMENT) as usize;
    let mut is_free = vec![false; bytes.len() / piece];
    let mut next = word(FIRST_FREE as usize);
    while let Some(free) = next.and_then(|it| it.checked_sub(pool + HEADER)) {
        let place = free as usize / piece;
        match is_free.get_mut(place) {
            Some(known) if !*known => *known = true,
            _ => break,
        }
        next = word((free + HEADER) as usize);
    }
    let used = HEADER as usize..half(OFFSETS) as usize;
    let starts = used.step_by(piece).zip(&is_free);
    for (start, _) in starts.filter(|(_, is_free)| !**is_free) {
        if let Some(piece) = bytes.get(start..start + piece) {
            visit(pool + start as u64, piece);
        }
    }
}

/// The addresses at which a pool may begin. One word rules out most others, and many are read at once.
fn candidates(addresses: &[u64], size: u64, memory: &Live) -> impl Iterator<Item = u64> {
    let places: Vec<u64> = addresses.iter().map(|at| at + OFFSETS as u64).collect();
    let mut offsets = vec![None; places.len()];
    memory.words(&places, &mut offsets);
    let last = move |offsets: u64| offsets >> 32;
    let may_be = move |word: &Option<u64>| {
        word.is_some_and(|word| last(word) < size && last(word) >= size - SIZES * ALIGNMENT)
    };
    let found = addresses.iter().zip(offsets);
    found.filter_map(move |(&pool, word)| may_be(&word).then_some(pool))
}

/// Whether there is the header of a pool: its size class and the offsets that follow from it.
fn is_pool(memory: &dyn Memory, pool: u64, size: u64) -> bool {
    let mut header = [0; HEADER as usize];
    memory.read(pool, &mut header) && is_header(&header, size)
}

fn is_header(header: &[u8], size: u64) -> bool {
    let half = |at: usize| {
        let half = header[at..].first_chunk().copied();
        u64::from(half.map_or(0, u32::from_le_bytes))
    };
    let [count, class, next, last] = [half(0), half(CLASS), half(OFFSETS), half(OFFSETS + 4)];
    let block = (class + 1) * ALIGNMENT;
    class < SIZES
        && last == size - block
        && (HEADER + block..=size).contains(&next)
        && count <= (size - HEADER) / block
}
