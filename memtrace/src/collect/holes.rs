//! Free space that blocks of a site hold open: the heaps are scanned at a few moments only, because
//! a scan visits every live block and the pages between them.

use std::collections::BTreeMap;

use super::processes::Processes;
use crate::{
    ledger::{Hole, Holes, Ledger, ProcessId, SiteKey},
    process::{page_size, pagemap::ResidentPages},
};

/// Most live blocks, of all processes, that are sorted: a tenth of a second or so.
pub(super) const BLOCKS_AT_MOST: u64 = 1_000_000;

/// Most holes whose pages are read, the largest of each process: a few microseconds each.
const HOLES_AT_MOST: usize = 50_000;

/// Most pages read over all holes, about 0.1 µs each. An allocator may have reserved far more
/// address space than it uses.
const PAGES_AT_MOST: u64 = 1 << 20;

/// The budget of one scan.
struct Allowance {
    holes: usize,
    pages: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            holes: HOLES_AT_MOST,
            pages: PAGES_AT_MOST,
        }
    }
}

/// Memory that the blocks of each site hold open, for the running processes within the budget.
pub(super) fn of(
    ledger: &Ledger,
    processes: &Processes,
) -> Vec<(ProcessId, Vec<(SiteKey, Holes)>)> {
    let is_too_much = ledger.outstanding() > BLOCKS_AT_MOST;
    let mut allowance = Allowance::default();
    let running = processes.iter();
    running
        .filter_map(|(tgid, process)| {
            let mut held = match is_too_much {
                // Earlier observations are no longer true.
                true => Vec::new(),
                false => of_process(ledger, tgid, &mut allowance)?,
            };
            // Memory inherited at its fork is its parent's.
            held.retain(|(site, _)| site.process == process.row.id);
            Some((process.row.id, held))
        })
        .collect()
}

/// Empty if its holes exceed the budget; `None`: the process is gone.
fn of_process(
    ledger: &Ledger,
    tgid: u32,
    allowance: &mut Allowance,
) -> Option<Vec<(SiteKey, Holes)>> {
    let mut holes = Vec::new();
    ledger.for_each_hole(tgid, |hole| holes.push(hole));
    let mut pages = ResidentPages::open(tgid).ok()?;
    let mut by_site: BTreeMap<SiteKey, Holes> = BTreeMap::new();
    let holes = largest(holes, allowance.holes);
    allowance.holes -= holes.len();
    for hole in holes {
        let in_hole = (hole.end - hole.start) / page_size();
        let Some(left) = allowance.pages.checked_sub(in_hole) else {
            return Some(Vec::new());
        };
        allowance.pages = left;
        let bytes = pages.bytes(hole.start..hole.end).ok()?;
        let held = by_site.entry(hole.site).or_default();
        held.bytes += bytes;
        held.holes += 1;
    }
    Some(by_site.into_iter().collect())
}

/// In the order of addresses.
fn largest(mut holes: Vec<Hole>, most: usize) -> Vec<Hole> {
    if holes.len() > most {
        holes.select_nth_unstable_by_key(most, |hole| std::cmp::Reverse(hole.end - hole.start));
        holes.truncate(most);
        holes.sort_unstable_by_key(|hole| hole.start);
    }
    holes
}
