//! The tables of figures over time: writing and reading rows of [`super::samples`].

use rusqlite::{Connection, Row, ToSql};

use super::{
    CgroupSample, Error, MemorySample, Recording, SystemSample, Writer, decode::uint,
    device_tables, encode::int,
};
use crate::{
    event::Device,
    ledger::{DeviceTotals, ProcessId},
};

/// The samples of one interval, see [`super::Interval`].
impl Writer {
    pub(super) fn insert_memory(
        &self,
        interval: i64,
        process: ProcessId,
        sample: &MemorySample,
    ) -> rusqlite::Result<()> {
        self.insert_sample(
            "memory",
            &[("process", process.0.into()), ("interval", interval)],
            MemorySample::COLUMNS,
            &sample.values(),
        )
    }

    pub(super) fn insert_system(
        &self,
        interval: i64,
        sample: &SystemSample,
    ) -> rusqlite::Result<()> {
        self.insert_sample(
            "system",
            &[("interval", interval)],
            SystemSample::COLUMNS,
            &sample.values(),
        )
    }

    pub(super) fn insert_cgroup(
        &self,
        interval: i64,
        cgroup: u32,
        sample: &CgroupSample,
    ) -> rusqlite::Result<()> {
        self.insert_sample(
            "cgroup",
            &[("cgroup", cgroup.into()), ("interval", interval)],
            CgroupSample::COLUMNS,
            &sample.values(),
        )
    }

    /// `process` is in control group `cgroup` from now on.
    pub(super) fn insert_member(&self, process: ProcessId, cgroup: u32) -> rusqlite::Result<()> {
        self.put("in_cgroup", &[&[&process.0, &cgroup]])
    }

    /// Figures that only an earlier sample of the same interval has are kept.
    fn insert_sample(
        &self,
        table: &str,
        keys: &[(&str, i64)],
        columns: &[&str],
        values: &[Option<i64>],
    ) -> rusqlite::Result<()> {
        let marks = vec!["?"; keys.len() + values.len()].join(", ");
        let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
        let kept: Vec<String> = columns
            .iter()
            .map(|column| format!("{column} = coalesce(excluded.{column}, {column})"))
            .collect();
        let row: Vec<&dyn ToSql> = keys
            .iter()
            .map(|(_, key)| key as &dyn ToSql)
            .chain(values.iter().map(|value| value as &dyn ToSql))
            .collect();
        self.run(
            &format!(
                "INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({}) DO UPDATE SET {}",
                names.join(", "),
                kept.join(", ")
            ),
            &row,
        )
    }
}

impl Recording {
    /// A process's memory at each interval (CLOCK_MONOTONIC ns), in order of time.
    pub(crate) fn memory(&self, process: ProcessId) -> Result<Vec<(u64, MemorySample)>, Error> {
        self.series(
            "SELECT time_ns, memory.* FROM memory JOIN interval ON interval.id = interval \
             WHERE process = ?1 ORDER BY interval",
            &[&process.0],
            MemorySample::read,
        )
    }

    /// Resident memory of all processes together, bytes, at each interval at which it was read (CLOCK_MONOTONIC ns), in
    /// order of time. Pages that processes share count in each.
    pub(crate) fn resident(&self) -> Result<Vec<(u64, u64)>, Error> {
        self.series(
            "SELECT time_ns, sum(rss_anon + ifnull(rss_file, 0) + ifnull(rss_shmem, 0)) AS resident \
             FROM memory JOIN interval ON interval.id = interval \
             WHERE rss_anon IS NOT NULL GROUP BY interval ORDER BY interval",
            &[],
            |row| uint(row, 1),
        )
    }

    /// A process's memory on each device, whenever it had changed (CLOCK_MONOTONIC ns), in order of
    /// time.
    pub(crate) fn device_history(
        &self,
        process: ProcessId,
    ) -> Result<Vec<(u64, Device, DeviceTotals)>, Error> {
        device_tables::history(self.connection(), process).map_err(|error| self.reading(&error))
    }

    /// Process totals on each device, from `nvidia-smi`, at each interval that
    /// reported them (CLOCK_MONOTONIC ns), in order of time.
    pub(crate) fn device_usage(&self, process: ProcessId) -> Result<Vec<(u64, u8, u64)>, Error> {
        device_tables::usage(self.connection(), process).map_err(|error| self.reading(&error))
    }

    /// The machine's memory at each interval (CLOCK_MONOTONIC ns), in order of time.
    pub(crate) fn system(&self) -> Result<Vec<(u64, SystemSample)>, Error> {
        self.series(
            "SELECT time_ns, system.* FROM system JOIN interval ON interval.id = interval \
             ORDER BY interval",
            &[],
            SystemSample::read,
        )
    }

    /// The last memory control group of `process`, at each interval at which it was read
    /// (CLOCK_MONOTONIC ns), in order of time. Empty if it could not be read. Processes of one
    /// group have the same series.
    pub(crate) fn cgroup(&self, process: ProcessId) -> Result<Vec<(u64, CgroupSample)>, Error> {
        let started = "SELECT started_ns FROM process WHERE id = ?1";
        let started = self
            .connection()
            .query_row(started, [process.0], |row| uint(row, 0))
            .or_else(|error| match error {
                rusqlite::Error::QueryReturnedNoRows => Ok(0),
                error => Err(error),
            })
            .map_err(|error| self.reading(&error))?;
        self.series(
            "SELECT time_ns, cgroup.* FROM in_cgroup \
             JOIN cgroup ON cgroup.cgroup = in_cgroup.cgroup \
             JOIN interval ON interval.id = interval \
             WHERE process = ?1 AND time_ns >= ?2 ORDER BY interval",
            &[&process.0, &int(started)],
            CgroupSample::read,
        )
    }

    fn series<T>(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        read: impl Fn(&Row) -> rusqlite::Result<T>,
    ) -> Result<Vec<(u64, T)>, Error> {
        rows(self.connection(), sql, values, |row| {
            Ok((uint(row, 0)?, read(row)?))
        })
        .map_err(|error| self.reading(&error))
    }
}

/// All rows of a query.
pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    read: impl Fn(&Row) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection
        .prepare_cached(sql)?
        .query_map(values, |row| read(row))?
        .collect()
}
