//! Figures of sites over time, as they were written interval by interval. To get the whole course
//! of a site, carry its last figures forward: intervals without changes have no row.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, Row};

use super::{
    Error, Recording,
    decode::{Sums, layer, lifetimes, totals, uint},
};
use crate::{
    event::{Layer, StackId},
    ledger::{Holes, ProcessId, SiteKey, Totals},
};

/// Number of an interval: rises with time, starts anywhere, and may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IntervalId(pub i64);

/// The first layer of devices: those follow all others.
const FIRST_OF_DEVICES: u8 = Layer::CudaDriver as u8;

/// A site and its present figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteFigures {
    pub key: SiteKey,
    pub totals: Totals,
}

/// Ages of the blocks of a site at a scan, in the buckets of [`crate::ledger::SiteTotals::lifetimes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgesAt {
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// Ages of live blocks.
    pub live: Box<[u64]>,
    /// Lifetimes of the blocks freed before the scan.
    pub freed: Box<[u64]>,
}

impl Recording {
    /// Every interval and the time of its end (CLOCK_MONOTONIC ns), in order of time.
    pub(crate) fn intervals(&self) -> Result<Vec<(IntervalId, u64)>, Error> {
        self.connection()
            .prepare("SELECT id, time_ns FROM interval ORDER BY id")
            .and_then(|mut statement| {
                statement
                    .query_map([], |row| Ok((IntervalId(row.get(0)?), uint(row, 1)?)))?
                    .collect()
            })
            .map_err(|error| self.reading(&error))
    }

    /// Calls `visit` with every site with its present figures, and its number in the recording, in
    /// order of numbers. Without sites at which a process only inherited, which may be millions.
    pub(crate) fn each_site(&self, visit: impl FnMut(i64, SiteFigures)) -> Result<(), Error> {
        self.visit_sites(visit)
            .map_err(|error| self.reading(&error))
    }

    /// Memory that the blocks of each site of a process held open at the last scan; empty if there
    /// was none. By number of the site.
    pub(crate) fn holes(&self, process: ProcessId) -> Result<HashMap<i64, Holes>, Error> {
        self.connection()
            .prepare_cached("SELECT site, bytes, holes FROM held_open WHERE process = ?1")
            .and_then(|mut statement| {
                let held = |row: &Row| {
                    let held = Holes {
                        bytes: uint(row, 1)?,
                        holes: uint(row, 2)?,
                    };
                    Ok((row.get(0)?, held))
                };
                statement.query_map([process.0], held)?.collect()
            })
            .map_err(|error| self.reading(&error))
    }

    /// Ages of a site's blocks at the last scan of its running process that found some, by the
    /// site's number; `None` if there was none.
    pub(crate) fn ages(&self, site: i64) -> Result<Option<AgesAt>, Error> {
        self.connection()
            .prepare_cached("SELECT time_ns, ages, lifetimes FROM ages WHERE site = ?1")
            .and_then(|mut statement| {
                let ages = |row: &Row| {
                    Ok(AgesAt {
                        time_ns: uint(row, 0)?,
                        live: lifetimes(row, 1)?,
                        freed: lifetimes(row, 2)?,
                    })
                };
                statement.query_row([site], ages).optional()
            })
            .map_err(|error| self.reading(&error))
    }

    /// Calls `visit` with the figures of each wanted site, by its number and in order of numbers,
    /// at each interval in which they changed, in order of time.
    pub(crate) fn site_changes(
        &self,
        wanted: &[(i64, SiteKey)],
        mut visit: impl FnMut(IntervalId, SiteFigures),
    ) -> Result<(), Error> {
        self.each_change(wanted, &mut visit)
            .map_err(|error| self.reading(&error))
    }

    fn each_change(
        &self,
        wanted: &[(i64, SiteKey)],
        visit: &mut impl FnMut(IntervalId, SiteFigures),
    ) -> rusqlite::Result<()> {
        // The order of the key: a site has no index of its own here, because every interval would
        // pay for it.
        let mut statement = self
            .connection()
            .prepare("SELECT * FROM site_history ORDER BY interval, site")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number: i64 = row.get(1)?;
            if let Ok(index) = wanted.binary_search_by_key(&number, |(number, _)| *number) {
                let totals = totals(row, 2)?;
                let key = wanted[index].1;
                visit(IntervalId(row.get(0)?), SiteFigures { key, totals });
            }
        }
        Ok(())
    }

    fn visit_sites(&self, mut visit: impl FnMut(i64, SiteFigures)) -> rusqlite::Result<()> {
        let mut statement = self.connection().prepare(
            "SELECT id, process, layer, stack, by_allocator, live_bytes, live_count, \
             inherited_bytes, inherited_count, alloc_bytes, alloc_count, free_bytes, \
             free_count, peak_bytes, peak_ns, device FROM site \
             WHERE alloc_count > 0 OR layer >= ?1 ORDER BY id",
        )?;
        // On devices a block may have gone to another site.
        let mut rows = statement.query([FIRST_OF_DEVICES])?;
        let mut sums = Sums::default();
        while let Some(row) = rows.next()? {
            let key = SiteKey {
                process: ProcessId(row.get(1)?),
                layer: layer(row, 2)?,
                stack: StackId(row.get(3)?),
                by_allocator: row.get(4)?,
                device: row.get(15)?,
            };
            let totals = totals(row, 5)?;
            sums.add(&totals)?;
            visit(row.get(0)?, SiteFigures { key, totals });
        }
        Ok(())
    }
}
