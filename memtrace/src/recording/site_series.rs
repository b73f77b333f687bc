//! Figures of each site over time, at as many intervals as fit into memory.

use std::collections::HashMap;

use rusqlite::Transaction;

use super::{
    Error, Recording,
    decode::{layer, uint},
};
use crate::{
    event::StackId,
    ledger::{ProcessId, SiteKey},
};

/// A site at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SitePoint {
    /// Live, allocated by the process itself.
    pub live_bytes: u64,
    /// Allocations so far.
    pub alloc_count: u64,
}

/// All sites at the same intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteSeries {
    /// Ends of the intervals, CLOCK_MONOTONIC ns, rising.
    pub times_ns: Vec<u64>,
    /// Changes: the index in `times_ns` from which on a point holds, rising. Before the first, all
    /// figures are zero. A process's sites keep their last figures when it ends.
    pub sites: HashMap<SiteKey, Vec<(usize, SitePoint)>>,
}

impl Recording {
    /// Figures of each site at the end of at most `most` intervals, evenly chosen; the last one is
    /// among them.
    pub(crate) fn site_series(&self, most: usize) -> Result<SiteSeries, Error> {
        self.connection()
            .unchecked_transaction()
            .and_then(|transaction| {
                let all = intervals(&transaction, "SELECT id, time_ns FROM interval ORDER BY id")?;
                let chosen = chosen(all.len(), most);
                let chosen: Vec<_> = chosen.iter().map(|index| all[*index]).collect();
                series(&transaction, &chosen)
            })
            .map_err(|error| self.reading(&error))
    }

    /// Figures of each site before the first round of a program that repeats its work, and after each.
    pub(crate) fn rounds(&self) -> Result<SiteSeries, Error> {
        let of_rounds =
            "SELECT id, time_ns FROM interval JOIN round ON round.interval = id ORDER BY id";
        self.connection()
            .unchecked_transaction()
            .and_then(|transaction| {
                let chosen = intervals(&transaction, of_rounds)?;
                series(&transaction, &chosen)
            })
            .map_err(|error| self.reading(&error))
    }
}

/// Intervals, and the end of each.
fn intervals(transaction: &Transaction, sql: &str) -> rusqlite::Result<Vec<(i64, u64)>> {
    transaction
        .prepare(sql)?
        .query_map([], |row| Ok((row.get(0)?, uint(row, 1)?)))?
        .collect()
}

fn series(transaction: &Transaction, chosen: &[(i64, u64)]) -> rusqlite::Result<SiteSeries> {
    let ends: Vec<i64> = chosen.iter().map(|(id, _)| *id).collect();
    let keys: HashMap<i64, SiteKey> = transaction
        .prepare("SELECT id, process, layer, stack, by_allocator, device FROM site")?
        .query_map([], |row| {
            let key = SiteKey {
                process: ProcessId(row.get(1)?),
                layer: layer(row, 2)?,
                stack: StackId(row.get(3)?),
                by_allocator: row.get(4)?,
                device: row.get(5)?,
            };
            Ok((row.get(0)?, key))
        })?
        .collect::<rusqlite::Result<_>>()?;

    // Only changes are stored. A later interval before the same end overwrites an earlier one.
    let mut changes: HashMap<SiteKey, Vec<(usize, SitePoint)>> = HashMap::new();
    let mut statement = transaction.prepare(
        "SELECT interval, site, live_bytes, alloc_count FROM site_history ORDER BY interval, site",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let interval: i64 = row.get(0)?;
        let slot = ends.partition_point(|end| *end < interval);
        if slot == ends.len() {
            break;
        }
        let Some(key) = keys.get(&row.get(1)?) else {
            continue;
        };
        let point = SitePoint {
            live_bytes: uint(row, 2)?,
            alloc_count: uint(row, 3)?,
        };
        let changes = changes.entry(*key).or_default();
        match changes.last_mut() {
            Some((last, known)) if *last == slot => *known = point,
            _ => changes.push((slot, point)),
        }
    }
    Ok(SiteSeries {
        times_ns: chosen.iter().map(|(_, time)| *time).collect(),
        sites: changes,
    })
}

/// At most `most` of `count` indices, evenly, the last one among them.
fn chosen(count: usize, most: usize) -> Vec<usize> {
    let kept = count.min(most);
    (1..=kept).map(|n| n * count / kept - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_intervals_are_even_and_end_with_the_last() {
        assert_eq!(chosen(0, 5), Vec::<usize>::new());
        assert_eq!(chosen(3, 5), [0, 1, 2]);
        assert_eq!(chosen(10, 5), [1, 3, 5, 7, 9]);
        assert_eq!(chosen(7, 3), [1, 3, 6]);
        assert_eq!(chosen(7, 0), Vec::<usize>::new());
    }
}
