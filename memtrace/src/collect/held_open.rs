//! Free space that blocks of a site hold open: at a few moments the heaps are looked through, because
//! it costs a look at every live block and at the pages between them.

use std::collections::BTreeMap;

use super::Collector;
use crate::{
    ledger::{HeldOpen, Hole, ProcessId, SiteKey},
    process::pagemap::ResidentPages,
};

/// Most holes of a process whose pages are looked at, the largest: some microseconds each.
const HOLES_AT_MOST: usize = 50_000;

impl Collector {
    /// What the blocks of each site hold open, of the processes that run.
    pub(super) fn held_open(&self) -> Vec<(ProcessId, Vec<(SiteKey, HeldOpen)>)> {
        let running = self.processes.iter();
        running
            .filter_map(|(tgid, process)| {
                let mut held = self.held_open_of(tgid)?;
                // What it inherited at its fork is its parent's.
                held.retain(|(site, _)| site.process == process.row.id);
                Some((process.row.id, held))
            })
            .collect()
    }

    /// `None`: the process is gone.
    fn held_open_of(&self, tgid: u32) -> Option<Vec<(SiteKey, HeldOpen)>> {
        let mut holes = Vec::new();
        self.ledger.for_each_hole(tgid, |hole| holes.push(hole));
        let mut pages = ResidentPages::open(tgid).ok()?;
        let mut by_site: BTreeMap<SiteKey, HeldOpen> = BTreeMap::new();
        for hole in largest(holes) {
            let bytes = pages.bytes(hole.start..hole.end).ok()?;
            let held = by_site.entry(hole.site).or_default();
            held.bytes += bytes;
            held.holes += 1;
        }
        Some(by_site.into_iter().collect())
    }
}

/// In the order of addresses.
fn largest(mut holes: Vec<Hole>) -> Vec<Hole> {
    if holes.len() > HOLES_AT_MOST {
        holes.select_nth_unstable_by_key(HOLES_AT_MOST, |hole| {
            std::cmp::Reverse(hole.end - hole.start)
        });
        holes.truncate(HOLES_AT_MOST);
        holes.sort_unstable_by_key(|hole| hole.start);
    }
    holes
}
