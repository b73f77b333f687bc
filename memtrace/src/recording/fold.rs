//! The rows written for each process, and their removal when it is folded into a group.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use rusqlite::{Connection, ToSql, params};

use super::ProcessRow;
use crate::ledger::{ProcessId, SiteKey};

/// Only a process that ended so soon may be folded: for longer the places of its figures over time
/// are not kept.
pub(crate) const SHORT_LIVED: Duration = Duration::from_secs(30);

/// Ended processes whose site ids are kept, because the ages of their blocks are written later.
const ENDED: usize = 256;

/// Tables whose key begins with the process.
const TABLES: [&str; 5] = ["memory", "layer_history", "in_cgroup", "fact", "held_open"];

/// The rows written for each process.
#[derive(Debug, Default)]
pub(super) struct Written {
    processes: HashMap<ProcessId, Process>,
    groups: HashSet<ProcessId>,
    ended: Vec<ProcessId>,
    /// Sites so far.
    sites: i64,
}

#[derive(Debug)]
struct Process {
    sites: HashMap<SiteKey, i64>,
    /// End of the first interval with a change, CLOCK_MONOTONIC ns.
    since_ns: u64,
    /// Rows of `site_history`, by interval and site; of a young process only.
    history: Vec<(i64, i64)>,
}

impl Written {
    pub(super) fn row(&mut self, row: &ProcessRow) {
        if row.is_group() {
            self.groups.insert(row.id);
        } else if row.ended_ns.is_some() {
            self.ended.push(row.id);
        }
    }

    pub(super) fn is_group(&self, process: ProcessId) -> bool {
        self.groups.contains(&process)
    }

    /// The number of a site, which changed in the interval that ended at `time_ns`.
    pub(super) fn site(&mut self, key: SiteKey, time_ns: u64) -> i64 {
        let process = self.processes.entry(key.process);
        let process = process.or_insert_with(|| Process {
            sites: HashMap::new(),
            since_ns: time_ns,
            history: Vec::new(),
        });
        *process.sites.entry(key).or_insert_with(|| {
            self.sites += 1;
            self.sites
        })
    }

    /// The number of a site that was written.
    pub(super) fn number(&self, key: SiteKey) -> Option<i64> {
        self.processes.get(&key.process)?.sites.get(&key).copied()
    }

    /// `site_history` has a row for this.
    pub(super) fn history(&mut self, key: SiteKey, interval: i64, site: i64, time_ns: u64) {
        if let Some(process) = self.processes.get_mut(&key.process) {
            if time_ns.saturating_sub(process.since_ns) <= SHORT_LIVED.as_nanos() as u64 {
                process.history.push((interval, site));
            } else {
                process.history = Vec::new();
            }
        }
    }

    /// Intervals went into others, by the one that went.
    pub(super) fn take_together(&mut self, pairs: &HashMap<i64, i64>) {
        for process in self.processes.values_mut() {
            for (interval, _) in &mut process.history {
                *interval = pairs.get(interval).copied().unwrap_or(*interval);
            }
            process.history.sort_unstable();
            process.history.dedup();
        }
    }

    /// Rows of `site_history` that could be taken back.
    #[cfg(test)]
    pub(super) fn kept_rows(&self) -> usize {
        let processes = self.processes.values();
        processes.map(|process| process.history.len()).sum()
    }

    /// An interval was written, with ages or without.
    pub(super) fn interval(&mut self, has_births: bool) {
        if has_births || self.ended.len() > ENDED {
            for process in self.ended.drain(..) {
                self.processes.remove(&process);
            }
        }
    }
    /// Removes the rows of a process from the recording.
    pub(super) fn take_back(
        &mut self,
        connection: &Connection,
        process: ProcessId,
    ) -> rusqlite::Result<()> {
        let delete = |sql: &str, of: &[&dyn ToSql]| connection.prepare_cached(sql)?.execute(of);
        for table in TABLES {
            let sql = format!("DELETE FROM {table} WHERE process = ?1");
            delete(&sql, params![process.0])?;
        }
        delete("DELETE FROM process WHERE id = ?1", params![process.0])?;
        let Some(written) = self.processes.remove(&process) else {
            return Ok(());
        };
        for site in written.sites.values() {
            delete("DELETE FROM site WHERE id = ?1", params![site])?;
            delete("DELETE FROM births WHERE site = ?1", params![site])?;
            delete("DELETE FROM ages WHERE site = ?1", params![site])?;
        }
        for (interval, site) in written.history {
            delete(
                "DELETE FROM site_history WHERE interval = ?1 AND site = ?2",
                params![interval, site],
            )?;
        }
        Ok(())
    }
}
