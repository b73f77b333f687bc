//! Blocks that stay: of each site those that were born in a window of time and are still live.

use super::{
    AddressSpace, Ledger, Process, SiteKey,
    lifetimes::{LIFETIME_BUCKETS, bucket_of},
    space::Space,
};
use crate::{
    event::Layer,
    hash::{FastMap, mix},
};
use std::ops::Range;

/// The live blocks of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survivors {
    pub(crate) site: SiteKey,
    pub(crate) bytes: u64,
    /// Blocks born in the first half of the window, and in the second.
    pub(crate) blocks: [u64; 2],
    /// Blocks that were freed, at any time, after living long enough to be among these.
    pub(crate) freed: u64,
    /// When the site had its most memory, CLOCK_MONOTONIC ns, if it still has half of that or more.
    pub(crate) most_ns: Option<u64>,
}

/// The address of a block and its bytes.
pub(crate) type Extent = (u64, u64);

/// A sample is taken from this many parts of the window, so that it has blocks of every age.
const PARTS: u64 = 16;

/// Most blocks that a sample has of each part.
const OF_A_PART: usize = 4;

impl Ledger {
    /// The live blocks of the sites of the process with this tgid that were born in `born`
    /// (CLOCK_MONOTONIC ns) and have lived for at least `least_age` ns. In the order of their keys.
    pub(crate) fn survivors(&self, tgid: u32, born: &Range<u64>, least_age: u64) -> Vec<Survivors> {
        let Some(space) = self.space_of(tgid) else {
            return Vec::new();
        };
        let middle = born.start.midpoint(born.end);
        let mut by_site: FastMap<u32, (u64, [u64; 2])> = FastMap::default();
        for_each(space, |site, birth_ns, (_, bytes)| {
            if born.contains(&birth_ns) {
                let of = by_site.entry(site).or_default();
                of.0 += bytes;
                of.1[usize::from(birth_ns >= middle)] += 1;
            }
        });
        let sites = by_site.into_iter().map(|(site, (bytes, blocks))| {
            let entry = &self.book.sites[site as usize];
            let tally = entry.tally.as_ref();
            let lifetimes = tally.and_then(|tally| tally.lifetimes.as_ref());
            // The bucket of the least age has younger ones, too.
            let old = (bucket_of(least_age) + 1).min(LIFETIME_BUCKETS);
            let most = tally.map(|tally| tally.totals);
            let most = most.filter(|totals| 2 * totals.live_bytes >= totals.peak_bytes);
            Survivors {
                most_ns: most.map(|totals| totals.peak_ns),
                site: entry.key,
                bytes,
                blocks,
                freed: lifetimes.map_or(0, |counts| counts[old..].iter().sum()),
            }
        });
        let own = sites.filter(|of| of.site.process == space.process());
        let mut survivors: Vec<Survivors> = own.collect();
        survivors.sort_unstable_by_key(|of| of.site);
        survivors
    }

    /// Blocks of each of these sites that were born in `born`, from every part of it, the oldest first.
    pub(crate) fn sample(
        &self,
        tgid: u32,
        born: &Range<u64>,
        sites: &[SiteKey],
    ) -> Vec<Vec<Extent>> {
        let mut samples = vec![Sample::default(); sites.len()];
        let Some(space) = self.space_of(tgid) else {
            return samples.into_iter().map(Sample::extents).collect();
        };
        let indices = sites.iter().map(|key| self.book.by_key.get(key).copied());
        let wanted: FastMap<u32, usize> = indices
            .enumerate()
            .filter_map(|(at, index)| Some((index?, at)))
            .collect();
        for_each(space, |site, birth_ns, extent| {
            if let (Some(at), true) = (wanted.get(&site), born.contains(&birth_ns)) {
                samples[*at].add(birth_ns, born, extent);
            }
        });
        samples.into_iter().map(Sample::extents).collect()
    }

    /// The live blocks that the malloc family gave to the process with this tgid, inherited ones included,
    /// in no order.
    pub(crate) fn heap_blocks(&self, tgid: u32) -> impl Iterator<Item = Extent> {
        let space = self.space_of(tgid);
        let blocks = space.map(|space| space.tables[Layer::Heap as usize].iter());
        blocks
            .into_iter()
            .flatten()
            .map(|block| (block.addr, block.size))
    }

    /// The live blocks of devices, and of page-locked memory, that the process with this tgid requested, without those
    /// of an allocator. In no order.
    pub(crate) fn device_blocks(&self, tgid: u32) -> Vec<Extent> {
        let tables = self.space_of(tgid).map(|space| space.tables.iter());
        let blocks = tables.into_iter().flatten().flat_map(|table| table.iter());
        let of_device = blocks.filter(|block| {
            let key = self.book.key(block.site);
            key.layer.of_device() && !key.by_allocator
        });
        of_device.map(|block| (block.addr, block.size)).collect()
    }

    /// The site of the block that the malloc family gave at this address.
    pub(crate) fn heap_site(&self, tgid: u32, addr: u64) -> Option<SiteKey> {
        let block = self.space_of(tgid)?.tables[Layer::Heap as usize].get(addr)?;
        Some(self.book.key(block.site))
    }

    /// A copy of the live malloc blocks of the process with this tgid; `None` if there are more than `most`.
    pub(crate) fn copy_heap(&self, tgid: u32, most: usize) -> Option<HeapCopy> {
        let space = self.space_of(tgid)?;
        let table = &space.tables[Layer::Heap as usize];
        if table.iter().nth(most).is_some() {
            return None;
        }
        let blocks = table
            .iter()
            .map(|block| ((block.addr, block.size), block.site));
        Some(HeapCopy {
            blocks: blocks.collect(),
            keys: self.book.sites.iter().map(|entry| entry.key).collect(),
        })
    }

    fn space_of(&self, tgid: u32) -> Option<&Space> {
        match self.processes.get(&tgid)? {
            Process {
                memory: AddressSpace::Own(space),
                ..
            } => Some(space),
            _ => None,
        }
    }
}

/// The live malloc blocks of a process at one moment.
pub(crate) struct HeapCopy {
    /// With the indices of their sites.
    blocks: Vec<(Extent, u32)>,
    keys: Vec<SiteKey>,
}

impl HeapCopy {
    /// In the order of their addresses: [`HeapCopy::site`] needs that.
    pub(crate) fn sorted(mut self) -> Self {
        self.blocks
            .sort_unstable_by_key(|((address, _), _)| *address);
        self
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Extent> {
        self.blocks.iter().map(|(extent, _)| *extent)
    }

    /// The site of the block at this address.
    pub(crate) fn site(&self, address: u64) -> Option<SiteKey> {
        let at = self
            .blocks
            .binary_search_by_key(&address, |((start, _), _)| *start);
        let (_, site) = self.blocks.get(at.ok()?)?;
        self.keys.get(*site as usize).copied()
    }
}

/// Calls `f` with site, birth and place of each block that has an address, of each arena of Python's, and of each mapping
/// that is none of an allocator's.
fn for_each(space: &Space, mut f: impl FnMut(u32, u64, Extent)) {
    for block in space.tables.iter().flat_map(|table| table.iter()) {
        f(block.site, block.birth_ns, (block.addr, block.size));
    }
    for (start, region) in space.regions.iter() {
        let is_own = region.kind.layer() == Layer::Python || !region.kind.by_allocator;
        if let Some(site) = region.site.filter(|_| is_own) {
            f(site, region.birth_ns, (start, region.end - start));
        }
    }
}

/// Some blocks of a site: for each part of the window those whose addresses have the smallest
/// hashes.
#[derive(Clone, Default)]
struct Sample {
    /// Part, hash, birth and block.
    blocks: Vec<(u64, u64, u64, Extent)>,
}

impl Sample {
    fn add(&mut self, birth_ns: u64, born: &Range<u64>, extent: Extent) {
        let length = u128::from((born.end - born.start).max(1));
        let part = u128::from(birth_ns - born.start) * u128::from(PARTS) / length;
        let new = (part as u64, mix(extent.0), birth_ns, extent);
        let at = self.blocks.partition_point(|known| *known < new);
        let first = self.blocks.partition_point(|known| known.0 < new.0);
        if at - first >= OF_A_PART {
            return;
        }
        self.blocks.insert(at, new);
        let last = first + OF_A_PART;
        if self.blocks.get(last).is_some_and(|known| known.0 == new.0) {
            self.blocks.remove(last);
        }
    }

    fn extents(mut self) -> Vec<Extent> {
        self.blocks
            .sort_unstable_by_key(|(_, _, birth_ns, extent)| (*birth_ns, extent.0));
        self.blocks.into_iter().map(|(.., extent)| extent).collect()
    }
}
