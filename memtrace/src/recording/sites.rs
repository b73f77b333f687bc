//! Reading the sites of a recording.

use std::collections::HashMap;

use rusqlite::{Row, Transaction};

use super::{
    BirthsAt,
    decode::{Sums, figure, layer, lifetimes, totals, uint, unexpected, unpack_births},
    snapshot::{Moments, SiteSnapshot, StoredSite},
};
use crate::{
    event::{Layer, StackId},
    ledger::{ProcessId, SiteKey, SiteTotals, Totals},
};

/// All sites at their moments, with their figures as of interval `past` if one is given.
pub(super) fn sites(
    transaction: &Transaction,
    past: Option<i64>,
    moments: &mut Moments,
) -> rusqlite::Result<Vec<SiteSnapshot>> {
    let mut history = match past {
        Some(interval) => site_history(transaction, interval)?,
        None => HashMap::new(),
    };
    let mut births = births(transaction)?;
    let count = "SELECT count(*) FROM site";
    let count = transaction.query_row(count, [], |row| row.get::<_, u32>(0))?;
    let mut sites = Vec::with_capacity(count as usize);
    let (mut sums, mut past_sums) = (Sums::default(), Sums::default());
    let mut statement = transaction.prepare("SELECT * FROM site")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let layer = layer(row, 2)?;
        let stored = StoredSite {
            key: SiteKey {
                process: ProcessId(row.get(1)?),
                layer,
                stack: StackId(row.get(3)?),
                by_allocator: row.get(4)?,
                device: row.get(21)?,
            },
            current: match (layer, uint(row, 10)?) {
                // Forked workers have millions of sites at which they only inherited.
                (Layer::Vm | Layer::Heap | Layer::Python, 0) => SiteTotals {
                    totals: inherited(row)?,
                    ..SiteTotals::default()
                },
                _ => site(row)?,
            },
            past: history.remove(&number),
            births: births.remove(&number),
        };
        sums.add(&stored.current.totals)?;
        if let Some(past) = &stored.past {
            past_sums.add(past)?;
        }
        sites.extend(moments.site(stored));
    }
    Ok(sites)
}

fn site(row: &Row) -> rusqlite::Result<SiteTotals> {
    Ok(SiteTotals {
        totals: totals(row, 5)?,
        at_peak_bytes: figure(row, 15)?,
        at_peak_count: figure(row, 16)?,
        peak_epoch: uint(row, 17)?,
        first_ns: uint(row, 18)?,
        last_ns: uint(row, 19)?,
        lifetimes: lifetimes(row, 20)?,
    })
}

/// The figures of a site at which nothing was allocated.
fn inherited(row: &Row) -> rusqlite::Result<Totals> {
    Ok(Totals {
        inherited_bytes: figure(row, 7)?,
        inherited_count: figure(row, 8)?,
        ..Totals::default()
    })
}

/// By number of the site.
fn births(transaction: &Transaction) -> rusqlite::Result<HashMap<i64, Box<BirthsAt>>> {
    transaction
        .prepare("SELECT site, time_ns, rows FROM births")?
        .query_map([], |row| {
            let births = unpack_births(row.get_ref(2)?.as_blob()?);
            let births = BirthsAt {
                time_ns: uint(row, 1)?,
                births: births.ok_or_else(|| unexpected(2, "births"))?,
            };
            Ok((row.get(0)?, Box::new(births)))
        })?
        .collect()
}

fn site_history(
    transaction: &Transaction,
    interval: i64,
) -> rusqlite::Result<HashMap<i64, Totals>> {
    // In the order of the key, so that the last row of a site stays.
    transaction
        .prepare("SELECT * FROM site_history WHERE interval <= ?1 ORDER BY interval, site")?
        .query_map([interval], |row| Ok((row.get(1)?, totals(row, 2)?)))?
        .collect()
}
