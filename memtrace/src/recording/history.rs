//! Figures of sites over time, as they were written interval by interval.
//! Whoever wants the whole course of a site carries its last figures forward:
//! intervals in which nothing changed have no row.

use std::collections::HashMap;

use super::{
    Error, Recording,
    decode::{layer, totals, uint},
};
use crate::{
    event::StackId,
    ledger::{ProcessId, SiteKey, Totals},
};

/// Number of an interval: rises with time, starts anywhere, has no gaps that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntervalId(pub i64);

/// A site and its present figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFigures {
    pub key: SiteKey,
    pub totals: Totals,
}

impl Recording {
    /// Every interval and the time of its end (CLOCK_MONOTONIC ns), in the order of time.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is damaged.
    pub fn intervals(&self) -> Result<Vec<(IntervalId, u64)>, Error> {
        self.connection()
            .prepare("SELECT id, time_ns FROM interval ORDER BY id")
            .and_then(|mut statement| {
                statement
                    .query_map([], |row| Ok((IntervalId(row.get(0)?), uint(row, 1)?)))?
                    .collect()
            })
            .map_err(|error| self.reading(&error))
    }

    /// Every site with its present figures.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is damaged.
    pub fn site_figures(&self) -> Result<Vec<SiteFigures>, Error> {
        self.numbered_sites()
            .map(|sites| sites.into_iter().map(|(_, site)| site).collect())
    }

    /// Gives `visit` the figures of each site that `wanted` names, at each interval in which they
    /// changed, in the order of time. Memory grows with the number of wanted sites only.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is damaged.
    pub fn site_changes(
        &self,
        wanted: impl Fn(&SiteKey) -> bool,
        mut visit: impl FnMut(IntervalId, SiteFigures),
    ) -> Result<(), Error> {
        let wanted: HashMap<i64, SiteKey> = self
            .numbered_sites()?
            .into_iter()
            .filter(|(_, site)| wanted(&site.key))
            .map(|(number, site)| (number, site.key))
            .collect();
        self.each_change(&wanted, &mut visit)
            .map_err(|error| self.reading(&error))
    }

    fn each_change(
        &self,
        wanted: &HashMap<i64, SiteKey>,
        visit: &mut impl FnMut(IntervalId, SiteFigures),
    ) -> rusqlite::Result<()> {
        // The order of the key: a site has no index of its own here, for every interval would pay.
        let mut statement = self
            .connection()
            .prepare("SELECT * FROM site_history ORDER BY interval, site")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(key) = wanted.get(&row.get(1)?) {
                let totals = totals(row, 2)?;
                visit(IntervalId(row.get(0)?), SiteFigures { key: *key, totals });
            }
        }
        Ok(())
    }

    fn numbered_sites(&self) -> Result<Vec<(i64, SiteFigures)>, Error> {
        let sql = "SELECT id, process, layer, stack, by_allocator, live_bytes, live_count, \
                   inherited_bytes, inherited_count, alloc_bytes, alloc_count, free_bytes, \
                   free_count, peak_bytes, peak_ns, device FROM site ORDER BY id";
        self.connection()
            .prepare(sql)
            .and_then(|mut statement| {
                statement
                    .query_map([], |row| {
                        let key = SiteKey {
                            process: ProcessId(row.get(1)?),
                            layer: layer(row, 2)?,
                            stack: StackId(row.get(3)?),
                            by_allocator: row.get(4)?,
                            device: row.get(15)?,
                        };
                        let totals = totals(row, 5)?;
                        Ok((row.get(0)?, SiteFigures { key, totals }))
                    })?
                    .collect()
            })
            .map_err(|error| self.reading(&error))
    }
}
