//! A caching allocator's requests, and the known facts about its blocks besides their size: from
//! these, the largest block that it could provide without another request.

use std::collections::BTreeMap;

use crate::{
    event::{Device, Layer},
    hash::FastMap,
};

/// The request for a block.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) device: Device,
    pub(super) stream: u64,
    /// Bytes requested, and after the allocator's rounding.
    pub(super) requested: u64,
    pub(super) size: u64,
}

#[derive(Default)]
pub(super) struct Cache {
    /// The layer of its blocks, after their first report.
    pub(super) layer: Option<Layer>,
    /// It reports its blocks, and with each its totals; the driver's pool is queried.
    pub(super) reports: bool,
    /// Its segments from the runtime, by address: device, bytes.
    pub(super) segments: BTreeMap<u64, (Device, u64)>,
    /// Blocks that it does not report, by address: device, bytes. Those that it takes from a stream's pool are in
    /// two layers.
    pub(super) counted: FastMap<u64, (Device, u64)>,
    /// By a block's address.
    pub(super) requests: FastMap<u64, Request>,
    /// A block or a segment came or went since the last search for the largest free block.
    pub(super) stale: bool,
}

impl Cache {
    /// Whether it is the caching allocator whose blocks have this layer: the first one reported is.
    pub(super) fn is_of(&mut self, layer: Layer) -> bool {
        *self.layer.get_or_insert(layer) == layer
    }

    /// The segment from the runtime that contains `addr`, with its address.
    pub(super) fn segment_of(&mut self, addr: u64) -> Option<(u64, &mut Device, u64)> {
        let (&start, (device, size)) = self.segments.range_mut(..=addr).next_back()?;
        (addr - start < *size).then_some((start, device, *size))
    }

    /// Its segments from the runtime on a device, start and end. Neighbours stay separate: no block
    /// spans both.
    pub(super) fn segments(&self, device: Device) -> Vec<(u64, u64)> {
        self.segments
            .iter()
            .filter(|(_, (of, _))| *of == device)
            .map(|(&start, &(_, size))| (start, start.saturating_add(size)))
            .collect()
    }
}

/// The largest gap between `blocks` within one of `segments`, bytes; both are starts and ends.
/// `None` if they do not add up to the allocator's own figures `allocated` and `reserved`, or a
/// block is in no segment: then some are unknown. In the order of blocks and segments.
pub(super) fn largest_gap(
    mut segments: Vec<(u64, u64)>,
    mut blocks: Vec<(u64, u64)>,
    (allocated, reserved): (u64, u64),
) -> Option<u64> {
    let sum = |ranges: &[(u64, u64)]| -> u64 {
        let sizes = ranges.iter().map(|(start, end)| end - start);
        sizes.sum()
    };
    if sum(&segments) != reserved || sum(&blocks) != allocated {
        return None;
    }
    segments.sort_unstable();
    blocks.sort_unstable();
    let mut blocks = blocks.into_iter().peekable();
    let mut largest = 0;
    for (start, end) in segments {
        let mut free_from = start;
        while let Some((block, block_end)) = blocks.next_if(|(block, _)| *block < end) {
            largest = largest.max(block.checked_sub(free_from)?);
            free_from = block_end;
        }
        largest = largest.max(end.checked_sub(free_from)?);
    }
    blocks.peek().is_none().then_some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From addresses and sizes, all known.
    fn largest(segments: &[(u64, u64)], blocks: &[(u64, u64)]) -> Option<u64> {
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, size)| size).sum();
        let figures = (sum(blocks), sum(segments));
        let ranges = |of: &[(u64, u64)]| of.iter().map(|&(at, size)| (at, at + size)).collect();
        largest_gap(ranges(segments), ranges(blocks), figures)
    }

    #[test]
    fn the_largest_gap_is_between_two_blocks_or_at_an_end() {
        assert_eq!(largest(&[], &[]), Some(0));
        assert_eq!(largest(&[(1000, 100)], &[]), Some(100));
        let two = [(1100, 100), (1000, 100)];
        // Neighbours that were requested separately stay separate.
        assert_eq!(largest(&two, &[]), Some(100));
        assert_eq!(largest(&two, &[(1150, 10), (1000, 10)]), Some(90));
        assert_eq!(largest(&two, &[(1060, 40), (1130, 70)]), Some(60));
        assert_eq!(largest(&two, &[(1000, 100), (1100, 100)]), Some(0));
    }

    #[test]
    fn an_incomplete_reserve_has_no_largest_gap() {
        let gap = |block: u64, figures| {
            let (segments, blocks) = (vec![(1000, 1100)], vec![(block, block + 10)]);
            largest_gap(segments, blocks, figures)
        };
        assert_eq!(gap(1000, (10, 100)), Some(90));
        assert_eq!(gap(1000, (20, 100)), None);
        assert_eq!(gap(1000, (10, 200)), None);
        // In no segment, or reaching out of one.
        for block in [900, 995, 1095, 2000] {
            assert_eq!(gap(block, (10, 100)), None);
        }
        // Two at the same place.
        assert_eq!(largest(&[(1000, 100)], &[(1000, 10), (1005, 10)]), None);
    }

    #[test]
    fn segments_are_of_one_device() {
        let cache = Cache {
            segments: [(1, (Some(0), 10)), (20, (Some(1), 10))].into(),
            ..Cache::default()
        };
        assert_eq!(cache.segments(Some(1)), [(20, 30)]);
        assert_eq!(cache.segments(None), []);
    }
}
