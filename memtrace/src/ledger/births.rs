//! Births of outstanding blocks, second by second.

use super::{Births, ProcessId, SiteKey, space::Space, totals::Book};
use crate::hash::FastMap;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

/// Most rows of a site.
const MAX_ROWS: usize = 256;

/// A scan under way: (site, second) → bytes, count.
#[derive(Default)]
pub(super) struct BirthScan {
    by_second: FastMap<(u32, u64), (u64, u64)>,
}

impl BirthScan {
    /// Adds what `space`'s process itself allocated.
    pub(super) fn add_space(&mut self, space: &Space, book: &Book) {
        let process: ProcessId = space.process();
        space.for_each_block(|site, birth_ns, bytes, count| {
            if book.key(site).process == process {
                let row = self
                    .by_second
                    .entry((site, birth_ns.div_ceil(SECOND)))
                    .or_default();
                row.0 += bytes;
                row.1 += count;
            }
        });
    }

    /// The rows of each site, sites in the order of their keys.
    pub(super) fn finish(self, book: &Book) -> Vec<(SiteKey, Births)> {
        let mut by_site: BTreeMap<SiteKey, Vec<(u64, u64, u64)>> = BTreeMap::new();
        for ((site, second), (bytes, count)) in self.by_second {
            let row = (second.saturating_mul(SECOND), bytes, count);
            by_site.entry(book.key(site)).or_default().push(row);
        }
        by_site
            .into_iter()
            .map(|(key, mut rows)| {
                rows.sort_unstable();
                (key, Births { rows: merged(rows) })
            })
            .collect()
    }
}

/// At most [`MAX_ROWS`] rows: equal numbers of neighbours become one, at the
/// latest's edge.
fn merged(rows: Vec<(u64, u64, u64)>) -> Vec<(u64, u64, u64)> {
    if rows.len() <= MAX_ROWS {
        return rows;
    }
    rows.chunks(rows.len().div_ceil(MAX_ROWS))
        .map(|neighbours| {
            neighbours
                .iter()
                .fold((0, 0, 0), |sum, row| (row.0, sum.1 + row.1, sum.2 + row.2))
        })
        .collect()
}
