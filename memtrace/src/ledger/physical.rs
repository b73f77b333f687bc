//! Physical device memory: known by a handle, given back once no reference and no mapping is left
//! (CUDA driver API, "Virtual Memory Management").

use std::collections::BTreeMap;

use super::table::Block;
use crate::event::Device;
use crate::hash::FastMap;

/// Physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PhysicalMemory {
    /// Its address is the handle by which it was given.
    pub(super) block: Block,
    pub(super) device: Device,
    /// The caching allocator requested it.
    pub(super) by_cache: bool,
    /// References by handle.
    references: u64,
    /// Bytes mapped, several mappings of a byte counting each.
    mapped: u64,
}

/// All physical memory of a process.
#[derive(Clone, Default)]
pub(super) struct Physical {
    memories: FastMap<u32, PhysicalMemory>,
    next: u32,
    handles: FastMap<u64, u32>,
    /// Start → end, memory. They do not overlap.
    ranges: BTreeMap<u64, (u64, u32)>,
}

/// The owner of an unknown handle: one of another process, or older than the recording.
const UNKNOWN: u32 = 0;

impl Physical {
    /// Whether a handle is one of ours.
    pub(super) fn knows(&self, handle: u64) -> bool {
        self.handles.contains_key(&handle)
    }

    /// Enters memory created under the handle `block.addr`.
    pub(super) fn create(&mut self, block: Block, device: Device, by_cache: bool) {
        self.next += 1;
        self.handles.insert(block.addr, self.next);
        let memory = PhysicalMemory {
            block,
            device,
            by_cache,
            references: 1,
            mapped: 0,
        };
        self.memories.insert(self.next, memory);
    }

    pub(super) fn retain(&mut self, handle: u64) {
        if let Some(id) = self.handles.get(&handle)
            && let Some(memory) = self.memories.get_mut(id)
        {
            memory.references += 1;
        }
    }

    /// Drops one reference; returns the memory that this gave back.
    pub(super) fn release(&mut self, handle: u64) -> Option<PhysicalMemory> {
        let id = *self.handles.get(&handle)?;
        let memory = self.memories.get_mut(&id)?;
        memory.references = memory.references.saturating_sub(1);
        if memory.references == 0 {
            // The handle may be reused while its memory is still mapped.
            self.handles.remove(&handle);
        }
        self.drop_unused(id)
    }

    /// Maps a handle's memory; returns the memory behind it, if known.
    pub(super) fn map(&mut self, start: u64, len: u64, handle: u64) -> Option<PhysicalMemory> {
        let id = self.handles.get(&handle).copied().unwrap_or(UNKNOWN);
        self.ranges.insert(start, (start.saturating_add(len), id));
        let memory = self.memories.get_mut(&id)?;
        memory.mapped += len;
        Some(*memory)
    }

    /// Unmaps a range: the bytes of each memory in it, and the memory that this gave back. `None`
    /// if no mapping was seen there.
    pub(super) fn unmap(
        &mut self,
        start: u64,
        len: u64,
    ) -> Option<Vec<(PhysicalMemory, u64, Option<PhysicalMemory>)>> {
        let end = start.saturating_add(len);
        let overlapping: Vec<(u64, u64, u32)> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(_, (range_end, _))| *range_end > start)
            .map(|(&at, &(range_end, id))| (at, range_end, id))
            .collect();
        if overlapping.is_empty() {
            return None;
        }
        let mut unmapped = Vec::new();
        for (at, range_end, id) in overlapping {
            self.ranges.remove(&at);
            if at < start {
                self.ranges.insert(at, (start, id));
            }
            if range_end > end {
                self.ranges.insert(end, (range_end, id));
            }
            let bytes = range_end.min(end) - at.max(start);
            if let Some(memory) = self.memories.get_mut(&id) {
                memory.mapped = memory.mapped.saturating_sub(bytes);
                let memory = *memory;
                unmapped.push((memory, bytes, self.drop_unused(id)));
            }
        }
        Some(unmapped)
    }

    /// Ranges of a device's memory that the caching allocator mapped, start and end; neighbours are one.
    pub(super) fn cached(&self, device: Device) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&start, &(end, id)) in &self.ranges {
            let memory = self.memories.get(&id);
            if memory.is_none_or(|memory| !memory.by_cache || memory.device != device) {
                continue;
            }
            match ranges.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => ranges.push((start, end)),
            }
        }
        ranges
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.memories.values().map(|memory| &memory.block)
    }

    fn drop_unused(&mut self, id: u32) -> Option<PhysicalMemory> {
        let memory = self.memories.get(&id)?;
        let unused = memory.references == 0 && memory.mapped == 0;
        if unused {
            self.memories.remove(&id)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: u64 = 7;

    fn one(size: u64) -> Physical {
        let mut physical = Physical::default();
        let block = Block {
            addr: HANDLE,
            size,
            birth_ns: 1,
            site: 2,
        };
        physical.create(block, Some(0), true);
        physical
    }

    #[test]
    fn the_last_reference_or_mapping_releases_it() {
        let mut physical = one(100);
        assert!(physical.map(1000, 100, HANDLE).is_some());
        assert_eq!(physical.release(HANDLE), None);
        assert!(!physical.knows(HANDLE));
        let unmapped = physical.unmap(1000, 50).unwrap();
        assert_eq!((unmapped[0].1, unmapped[0].2), (50, None));
        let unmapped = physical.unmap(1050, 50).unwrap();
        assert_eq!(unmapped[0].2.map(|memory| memory.block.size), Some(100));
        assert_eq!(physical.blocks().count(), 0);

        let mut physical = one(100);
        physical.retain(HANDLE);
        assert_eq!(physical.release(HANDLE), None);
        assert!(physical.release(HANDLE).is_some());
        assert_eq!(physical.release(HANDLE), None);
    }

    #[test]
    fn a_cut_in_the_middle_leaves_both_ends() {
        let mut physical = one(300);
        physical.map(1000, 300, HANDLE);
        assert!(physical.release(HANDLE).is_none());
        assert_eq!(physical.unmap(1100, 100).unwrap()[0].1, 100);
        assert_eq!(physical.unmap(1100, 100), None);
        let ends = physical.unmap(0, 10_000).unwrap();
        assert_eq!(ends.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), 200);
        assert_eq!(ends.iter().filter(|(.., gone)| gone.is_some()).count(), 1);
    }

    #[test]
    fn adjacent_mappings_are_one_range() {
        let mut physical = Physical::default();
        for (handle, start, by_cache) in [
            (1, 1000, true),
            (2, 1100, true),
            (3, 1300, true),
            (4, 1400, false),
        ] {
            let block = Block {
                addr: handle,
                size: 100,
                birth_ns: 0,
                site: 0,
            };
            physical.create(block, Some(0), by_cache);
            physical.map(start, 100, handle);
        }
        assert_eq!(physical.cached(Some(0)), [(1000, 1200), (1300, 1400)]);
        assert_eq!(physical.cached(Some(1)), []);
    }

    #[test]
    fn a_handle_that_comes_again_is_another_memory() {
        let mut physical = one(100);
        physical.map(1000, 100, HANDLE);
        physical.release(HANDLE);
        let block = Block {
            addr: HANDLE,
            size: 5,
            birth_ns: 1,
            site: 2,
        };
        physical.create(block, None, false);
        assert_eq!(
            physical.release(HANDLE).map(|gone| gone.block.size),
            Some(5)
        );
        let unmapped = physical.unmap(1000, 100).unwrap();
        assert_eq!(unmapped[0].2.map(|gone| gone.block.size), Some(100));
    }
}
