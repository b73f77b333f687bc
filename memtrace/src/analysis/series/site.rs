//! A site of a process over time, and the known facts about its code and its blocks.

use crate::{
    frames::{
        containers::{self, Container},
        is_import,
        known_caches::{self, KnownCache},
        mappings::{self, Use},
        runtime_heaps::{Executable, RuntimeHeap},
    },
    ledger::SiteKey,
    recording::{SiteFigures, Stack},
};

/// If at most this share of the blocks that a site allocated is live, it frees them.
const MOST_LIVE: f64 = 0.1;

/// A site whose blocks were nearly all freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Churning {
    pub(crate) site: SiteKey,
    /// Allocated in the whole recording.
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl Churning {
    /// `None`: the site keeps more of its blocks.
    pub(super) fn of(site: &SiteFigures) -> Option<Churning> {
        let totals = &site.totals;
        let is_churning = totals.live_count as f64 <= MOST_LIVE * totals.alloc_count as f64;
        (totals.alloc_count > 0 && is_churning).then_some(Churning {
            site: site.key,
            blocks: totals.alloc_count,
            bytes: totals.alloc_bytes,
        })
    }
}

/// A site that never held this much is not judged on its own.
pub(super) const SITE_FLOOR: u64 = 16 << 10;

/// A site over time.
#[derive(Clone, Debug)]
pub(crate) struct SiteSeries {
    pub key: SiteKey,
    /// Purpose of a mapping; `None` in other layers.
    pub mapping: Option<Use>,
    pub live_bytes: Vec<f64>,
    pub live_count: Vec<f64>,
    /// So far.
    pub alloc_count: Vec<f64>,
    /// When its blocks were last looked through while the process ran.
    pub ages: Option<Ages>,
    /// Free space that its blocks held open when the heap was last looked through, bytes.
    pub holes: f64,
    pub(crate) code: Code,
}

impl SiteSeries {
    /// The size of its block at each reading; two are live while one replaces the other. `None`: from the reading `from` on,
    /// there were more.
    pub(crate) fn sizes(&self, from: usize) -> Option<Vec<f64>> {
        sizes(&self.live_bytes, &self.live_count, from)
    }
}

fn sizes(live: &[f64], blocks: &[f64], from: usize) -> Option<Vec<f64>> {
    let mut last = 0.0;
    let sizes = live
        .iter()
        .zip(blocks)
        .enumerate()
        .map(|(at, (bytes, count))| {
            if *count > 0.0 {
                last = bytes / count;
            }
            (*count <= 2.0 || at < from).then_some(last)
        });
    sizes.collect()
}

/// Facts derived from the stack of a site.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Code {
    /// The container for which it allocates.
    pub(crate) container: Option<Container>,
    /// Whether it enlarges a block when it is full.
    pub(crate) enlarges: bool,
    /// The cache that it fills.
    pub(crate) cache: Option<&'static KnownCache>,
    pub(crate) is_import: bool,
    /// The runtime whose own code requested the memory.
    pub(crate) runtime: Option<&'static RuntimeHeap>,
}

impl Code {
    pub(super) fn of(stack: Stack, container: Option<Container>, executable: &Executable) -> Code {
        Code {
            container,
            enlarges: containers::enlarges(stack.of_caller()),
            cache: known_caches::filled(stack.frames()),
            is_import: is_import(stack.frames()),
            runtime: executable.runtime_of(stack.of_caller()),
        }
    }
}

/// The purpose of a mapping of a process with this executable.
pub(super) fn made_for(key: SiteKey, stack: Stack, executable: &Executable) -> Use {
    match mappings::of(key.by_allocator, stack.frames()) {
        Use::Program if executable.runtime_of(stack.of_caller()).is_some() => Use::Runtime,
        other => other,
    }
}

/// Ages of a site's blocks, in the buckets of [`crate::ledger::SiteTotals::lifetimes`].
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    /// Seconds since the start of the recording.
    pub time: f64,
    /// Ages of live blocks.
    pub live: Box<[u64]>,
    /// Lifetimes of the blocks freed until then.
    pub freed: Box<[u64]>,
}

impl Ages {
    /// These, and those of another site.
    pub(crate) fn with(mut self, other: Ages) -> Ages {
        self.time = self.time.max(other.time);
        let both = [(&mut self.live, other.live), (&mut self.freed, other.freed)];
        for (own, other) in both {
            own.iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own += other);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn a_block_and_the_one_that_replaces_it_have_a_size() {
        let (live, blocks) = ([8.0, 18.0, 0.0, 12.0], [1.0, 2.0, 0.0, 1.0]);
        assert_eq!(sizes(&live, &blocks, 0), Some(vec![8.0, 9.0, 9.0, 12.0]));
        assert_eq!(sizes(&[8.0, 30.0], &[1.0, 3.0], 0), None);
        assert_eq!(sizes(&[30.0, 8.0], &[3.0, 1.0], 1), Some(vec![10.0, 8.0]));
    }
}
