//! Births and ages of live blocks.

use super::{
    ProcessId, SiteKey,
    lifetimes::{LIFETIME_BUCKETS, bucket_of, without_zeros_at_end},
    space::Space,
    totals::Book,
};
use crate::hash::FastMap;

const SECOND: u64 = 1_000_000_000;

/// Most rows of a site.
const MAX_ROWS: usize = 256;

/// Live blocks of one site by birth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Births {
    /// Upper edge of the births counted (CLOCK_MONOTONIC ns) → bytes, count. Ascending. At most 256
    /// rows: if a site has more distinct seconds, neighbours are merged.
    pub rows: Vec<(u64, u64, u64)>,
    /// Number of blocks by age, in the buckets of [`super::SiteTotals::lifetimes`], without zeros at the end;
    /// empty for a process that has ended.
    pub ages: Box<[u64]>,
}

impl Births {
    /// Total of all its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.iter().map(|(_, bytes, _)| bytes).sum()
    }
}

/// A scan under way.
#[derive(Default)]
pub(super) struct BirthScan {
    /// (site, second) → bytes, count.
    by_second: FastMap<(u32, u64), (u64, u64)>,
    ages: FastMap<u32, Box<[u64; LIFETIME_BUCKETS]>>,
    /// The moment that ages refer to; `None`: ages are not needed.
    now_ns: Option<u64>,
}

impl BirthScan {
    /// Ages are those at `now_ns`.
    pub(super) fn at(now_ns: u64) -> BirthScan {
        BirthScan {
            now_ns: Some(now_ns),
            ..BirthScan::default()
        }
    }

    /// Adds the process's own allocations in `space`.
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
                if let Some(now_ns) = self.now_ns {
                    let ages = self
                        .ages
                        .entry(site)
                        .or_insert_with(|| Box::new([0; LIFETIME_BUCKETS]));
                    ages[bucket_of(now_ns.saturating_sub(birth_ns))] += count;
                }
            }
        });
    }

    /// The rows of each site, sites in order of their keys.
    pub(super) fn finish(mut self, book: &Book) -> Vec<(SiteKey, Births)> {
        let mut by_site: FastMap<u32, Vec<(u64, u64, u64)>> = FastMap::default();
        for ((site, second), (bytes, count)) in self.by_second {
            let row = (second.saturating_mul(SECOND), bytes, count);
            by_site.entry(site).or_default().push(row);
        }
        let births = by_site.into_iter().map(|(site, mut rows)| {
            rows.sort_unstable();
            let ages = self.ages.remove(&site);
            let births = Births {
                rows: merged(rows),
                ages: ages.map_or_else(Box::default, |ages| without_zeros_at_end(&*ages)),
            };
            (book.key(site), births)
        });
        let mut births: Vec<(SiteKey, Births)> = births.collect();
        births.sort_unstable_by_key(|(key, _)| *key);
        births
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
