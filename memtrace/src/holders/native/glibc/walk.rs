//! From chunk to chunk through a heap.

use super::chunk::{FLAGS, HEADER, IS_MMAPPED, LEAST, NON_MAIN_ARENA, PAGE, PREV_INUSE};
use crate::holders::memory::Memory;
use std::ops::Range;

/// Bytes that are read at once.
const WINDOW: u64 = 64 << 10;

/// How often a part that was changed while it was read is read again.
const RETRIES: usize = 3;

/// Valid headers in a row that make a place the beginning of a chunk.
const CHAIN: usize = 8;

/// A heap of an arena.
pub(super) struct Region {
    /// All memory that the allocator manages.
    pub(super) whole: Range<u64>,
    /// From the first chunk to the end of the last.
    pub(super) chunks: Range<u64>,
    pub(super) is_main: bool,
}

/// The header read at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Chunk {
        size: u64,
        previous_in_use: bool,
    },
    /// The rest of the heap.
    Top,
    /// The mark of the end of a heap that has been continued elsewhere.
    Fence {
        previous_in_use: bool,
    },
    Nonsense,
}

/// Gives each chunk that is not free by its neighbours' words: address, size, and whether that is certain.
pub(super) fn walk(
    memory: &(impl Memory + ?Sized),
    region: &Region,
    mut found: impl FnMut(u64, u64, bool),
) {
    let mut reader = Reader::new(memory, region.chunks.end);
    // Programs may use the heap before the allocator does.
    let Some(mut at) = reader.chunk_from(region, region.chunks.start) else {
        return;
    };
    let mut state = State {
        checkpoint: at,
        retries: 0,
        pending: None,
        is_certain: true,
    };
    while at < region.chunks.end {
        if at - state.checkpoint >= WINDOW {
            state.checkpoint = at;
            state.retries = 0;
        }
        let header = reader.header(region, at);
        let previous_in_use = match header {
            Header::Chunk {
                previous_in_use, ..
            }
            | Header::Fence { previous_in_use } => previous_in_use,
            // The allocator merges a chunk freed below the top with the top.
            Header::Top => true,
            Header::Nonsense => {
                let Some(next) = state.recover(&mut reader, region, at, &mut found) else {
                    return;
                };
                at = next;
                continue;
            }
        };
        if !previous_in_use && !reader.is_footer_right(at, state.pending) && state.retries < RETRIES
        {
            at = state.again(&mut reader);
            continue;
        }
        if let Some((chunk, size)) = state.pending.take()
            && previous_in_use
        {
            found(chunk, size, state.is_certain);
        }
        match header {
            Header::Chunk { size, .. } => {
                state.pending = Some((at, size));
                at += size;
            }
            Header::Fence { .. } => at += HEADER,
            Header::Top | Header::Nonsense => return,
        }
    }
    // The last chunk, which ends where the heap does, is the top: free.
}

struct State {
    /// A chunk to read again from.
    checkpoint: u64,
    retries: usize,
    /// The chunk before: the next one's header says whether it is in use.
    pending: Option<(u64, u64)>,
    is_certain: bool,
}

impl State {
    fn again<M: Memory + ?Sized>(&mut self, reader: &mut Reader<'_, M>) -> u64 {
        self.retries += 1;
        self.pending = None;
        reader.forget();
        self.checkpoint
    }

    /// Where to continue after a header that makes no sense: the process changed the heap meanwhile, or overwrote it.
    fn recover<M: Memory + ?Sized>(
        &mut self,
        reader: &mut Reader<'_, M>,
        region: &Region,
        at: u64,
        found: &mut impl FnMut(u64, u64, bool),
    ) -> Option<u64> {
        if self.retries < RETRIES {
            return Some(self.again(reader));
        }
        if let Some((chunk, size)) = self.pending.take() {
            found(chunk, size, false);
        }
        self.is_certain = false;
        let next = reader.chunk_from(region, at.checked_add(HEADER)?)?;
        self.checkpoint = next;
        self.retries = 0;
        Some(next)
    }
}

/// Reads memory in order.
struct Reader<'a, M: ?Sized> {
    memory: &'a M,
    bytes: Vec<u8>,
    start: u64,
    end: u64,
}

impl<'a, M: Memory + ?Sized> Reader<'a, M> {
    fn new(memory: &'a M, end: u64) -> Self {
        Self {
            memory,
            bytes: Vec::new(),
            start: 0,
            end,
        }
    }

    fn forget(&mut self) {
        self.bytes.clear();
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        if self.kept(address).is_none() {
            let left = self.end.checked_sub(address)?;
            self.start = address;
            self.bytes.resize(WINDOW.min(left) as usize, 0);
            if !self.memory.read(address, &mut self.bytes) {
                // The end of the mapped part.
                let page = (PAGE - address % PAGE).min(left);
                self.bytes.truncate(page as usize);
                if !self.memory.read(address, &mut self.bytes) {
                    self.bytes.clear();
                }
            }
        }
        self.kept(address)
    }

    fn kept(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }

    fn header(&mut self, region: &Region, at: u64) -> Header {
        let left = region.chunks.end.saturating_sub(at);
        let Some(word) = at.checked_add(8).and_then(|at| self.word(at)) else {
            return Header::Nonsense;
        };
        let size = word & !FLAGS;
        let previous_in_use = word & PREV_INUSE != 0;
        if size <= HEADER && word & !PREV_INUSE & !NON_MAIN_ARENA == size {
            return match size {
                // Two marks, the second one of size 0 in heaps that are not the main one.
                0 if previous_in_use && !region.is_main => Header::Top,
                HEADER => Header::Fence { previous_in_use },
                _ => Header::Nonsense,
            };
        }
        let is_of_region =
            word & IS_MMAPPED == 0 && (word & NON_MAIN_ARENA == 0 || !region.is_main);
        if size < LEAST || !is_of_region || word & 8 != 0 {
            return Header::Nonsense;
        }
        if size >= left {
            // The heap has grown meanwhile, or this is its end.
            let ends_with_page = at
                .checked_add(size)
                .is_some_and(|end| end.is_multiple_of(PAGE));
            return match ends_with_page && previous_in_use {
                true => Header::Top,
                false => Header::Nonsense,
            };
        }
        Header::Chunk {
            size,
            previous_in_use,
        }
    }

    /// A chunk that is free has its size at its end, too.
    fn is_footer_right(&mut self, at: u64, previous: Option<(u64, u64)>) -> bool {
        let word = self.word(at);
        previous.is_none_or(|(_, size)| word == Some(size))
    }

    /// The first place from `at` on where chunks follow each other.
    fn chunk_from(&mut self, region: &Region, at: u64) -> Option<u64> {
        let first = at.checked_next_multiple_of(HEADER)?;
        let mut places = (first..region.chunks.end).step_by(HEADER as usize);
        places.find(|&place| self.is_chunk(region, place))
    }

    /// Whether chunks follow each other from `place` on, each consistent with the next one's header.
    fn is_chunk(&mut self, region: &Region, place: u64) -> bool {
        let mut at = place;
        let mut previous = None;
        for _ in 0..CHAIN {
            match self.header(region, at) {
                Header::Chunk {
                    size,
                    previous_in_use,
                } if previous_in_use
                    || previous.is_some() && self.is_footer_right(at, previous) =>
                {
                    previous = Some((at, size));
                    at += size;
                }
                Header::Top => return true,
                Header::Fence { .. } if at != place => {
                    previous = None;
                    at += HEADER;
                }
                _ => return false,
            }
        }
        true
    }
}
