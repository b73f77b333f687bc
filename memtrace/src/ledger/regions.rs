//! Mappings of one address space as disjoint intervals: the parts cut out by a munmap, an mremap or
//! a MAP_FIXED, and their restoration when the call fails. Knows addresses, not the figures they
//! count for.

use crate::event::MapKind;
use std::collections::BTreeMap;

/// A contiguous piece of a mapping. Its start is its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// First address after it.
    pub(super) end: u64,
    /// Start of the mapping that it is a piece of.
    pub(super) origin: u64,
    /// Index of the site that mapped it; `None`: mapped before attach.
    pub(super) site: Option<u32>,
    /// CLOCK_MONOTONIC ns.
    pub(super) birth_ns: u64,
    pub(super) kind: MapKind,
}

impl Region {
    /// Whether both are pieces of one mapping.
    fn same_mapping(&self, other: &Region) -> bool {
        (self.origin, self.site, self.birth_ns) == (other.origin, other.site, other.birth_ns)
    }
}

/// The part cut out of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    /// The region it was, with the piece's own end.
    pub(super) region: Region,
    pub(super) cut: Cut,
}

impl Piece {
    pub(super) fn bytes(&self) -> u64 {
        self.region.end - self.start
    }
}

/// The rest of the region after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing.
    Whole,
    /// One side.
    Edge,
    /// Both sides: one region became two.
    Middle,
}

/// The mappings of one address space.
#[derive(Clone, Default)]
pub(super) struct Regions {
    by_start: BTreeMap<u64, Region>,
}

impl Regions {
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.by_start.iter().map(|(start, region)| (*start, region))
    }

    /// The region that holds `addr`.
    pub(super) fn at(&self, addr: u64) -> Option<&Region> {
        let (_, region) = self.by_start.range(..=addr).next_back()?;
        (region.end > addr).then_some(region)
    }

    /// Takes [start, end) out, piece by piece.
    pub(super) fn take(&mut self, start: u64, end: u64) -> Vec<Piece> {
        self.overlapping(start, end)
            .into_iter()
            .map(|(from, region)| {
                self.by_start.remove(&from);
                let (piece_start, piece_end) = (from.max(start), region.end.min(end));
                if from < piece_start {
                    let left = Region {
                        end: piece_start,
                        ..region
                    };
                    self.by_start.insert(from, left);
                }
                if piece_end < region.end {
                    self.by_start.insert(piece_end, region);
                }
                Piece {
                    start: piece_start,
                    region: Region {
                        end: piece_end,
                        ..region
                    },
                    cut: match (from < piece_start, piece_end < region.end) {
                        (false, false) => Cut::Whole,
                        (true, true) => Cut::Middle,
                        _ => Cut::Edge,
                    },
                }
            })
            .collect()
    }

    /// Takes out every piece of the mapping that started at `origin`. Visits all regions above it:
    /// shmdt, the only caller, is rare.
    pub(super) fn take_mapping(&mut self, origin: u64) -> Vec<Piece> {
        let pieces: Vec<(u64, u64)> = self
            .by_start
            .range(origin..)
            .filter(|(_, region)| region.origin == origin)
            .map(|(start, region)| (*start, region.end))
            .collect();
        pieces
            .into_iter()
            .flat_map(|(start, end)| self.take(start, end))
            .collect()
    }

    /// The parts of [start, end) that no region holds.
    pub(super) fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut free = start;
        for (from, region) in self.overlapping(start, end) {
            if free < from {
                gaps.push((free, from));
            }
            free = region.end;
        }
        if free < end {
            gaps.push((free, end));
        }
        gaps
    }

    /// Adds a region where none exists; joins it with neighbours that are pieces of the same
    /// mapping. Returns how many (0 to 2) it was joined with.
    pub(super) fn put(&mut self, start: u64, mut region: Region) -> u64 {
        let mut joined = 0;
        if let Some(next) = self.by_start.get(&region.end)
            && next.same_mapping(&region)
        {
            let next_end = next.end;
            self.by_start.remove(&region.end);
            region.end = next_end;
            joined += 1;
        }
        if let Some((_, previous)) = self.by_start.range_mut(..start).next_back()
            && previous.end == start
            && previous.same_mapping(&region)
        {
            previous.end = region.end;
            return joined + 1;
        }
        self.by_start.insert(start, region);
        joined
    }

    fn overlapping(&self, start: u64, end: u64) -> Vec<(u64, Region)> {
        if start >= end {
            return Vec::new();
        }
        let before = self.by_start.range(..start).next_back();
        before
            .filter(|(_, region)| region.end > start)
            .into_iter()
            .chain(self.by_start.range(start..end))
            .map(|(from, region)| (*from, *region))
            .collect()
    }
}
