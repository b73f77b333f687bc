//! Merges intervals, so that a long recording is no larger than a short one: each of them is merged
//! into the next one. All figures are absolute, so the remaining ones keep their meaning.

use std::collections::HashMap;

use rusqlite::params;

use super::{CgroupSample, MemorySample, SystemSample, Writer};

/// Tables with figures that hold until the next row: an interval's row stands for those taken into it.
const CARRIED: [&str; 6] = [
    "site_history",
    "layer_history",
    "loss",
    "device_history",
    "stream_history",
    "device_usage",
];

/// Tables of samples, the key besides the interval, and the figures, each of which may be unknown.
const SAMPLES: [(&str, Option<&str>, &[&str]); 3] = [
    ("memory", Some("process"), MemorySample::COLUMNS),
    ("system", None, SystemSample::COLUMNS),
    ("cgroup", Some("cgroup"), CgroupSample::COLUMNS),
];

/// The intervals that go (`old`), and which one each goes into. In memory.
const PAIRS: &str = "CREATE TEMP TABLE pair (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)";

impl Writer {
    /// Takes every two intervals together, from the first on: half of them are left.
    pub(super) fn halve(&mut self) -> rusqlite::Result<()> {
        let intervals: Vec<(i64, bool)> = self
            .connection()
            .prepare_cached(
                "SELECT id, id IN (SELECT interval FROM round) FROM interval ORDER BY id",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let pairs = pairs(&intervals);
        self.connection().execute_batch(PAIRS)?;
        for (old, new) in &pairs {
            self.put("pair", &[params![old, new]])?;
        }
        for table in CARRIED {
            // If the later interval has a row of its own, that is the newer one.
            self.execute(&format!(
                "UPDATE OR IGNORE {table} SET interval = (SELECT new FROM pair WHERE old = interval) \
                 WHERE interval IN (SELECT old FROM pair)"
            ))?;
            self.forget_old(table)?;
        }
        for (table, key, columns) in SAMPLES {
            self.execute(&later_or_earlier(table, key, columns))?;
            self.forget_old(table)?;
        }
        self.execute("DELETE FROM interval WHERE id IN (SELECT old FROM pair)")?;
        self.connection().execute_batch("DROP TABLE pair")?;
        self.written.take_together(&pairs);
        Ok(())
    }

    fn forget_old(&self, table: &str) -> rusqlite::Result<()> {
        self.execute(&format!(
            "DELETE FROM {table} WHERE interval IN (SELECT old FROM pair)"
        ))
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection().execute(sql, [])?;
        Ok(())
    }
}

/// Each interval that goes, and the next one, which it goes into. An interval that ends a round stays.
fn pairs(intervals: &[(i64, bool)]) -> HashMap<i64, i64> {
    let mut pairs = HashMap::new();
    let mut intervals = intervals.iter();
    while let Some((old, ends_round)) = intervals.next() {
        if *ends_round {
            continue;
        }
        if let Some((new, _)) = intervals.next() {
            pairs.insert(*old, *new);
        }
    }
    pairs
}

/// Copies figures that only the earlier interval of each pair has into the later one.
fn later_or_earlier(table: &str, key: Option<&str>, columns: &[&str]) -> String {
    let figures: Vec<String> = columns
        .iter()
        .map(|column| format!("coalesce(later.{column}, earlier.{column})"))
        .collect();
    let (selected, same) = match key {
        Some(key) => (
            format!("earlier.{key}, pair.new"),
            format!("later.{key} = earlier.{key} AND "),
        ),
        None => ("pair.new".into(), String::new()),
    };
    format!(
        "INSERT OR REPLACE INTO {table} SELECT {selected}, {} FROM {table} AS earlier \
         JOIN pair ON pair.old = earlier.interval \
         LEFT JOIN {table} AS later ON {same}later.interval = pair.new",
        figures.join(", ")
    )
}
