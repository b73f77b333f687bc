//! Rows of a recording about devices (GPUs): writing and reading.

use rusqlite::{Connection, Row, params};

use super::{
    Interval,
    decode::{json, layer, optional, uint, unexpected},
    encode::{int, to_json},
    put::{part, put},
};
use crate::{
    event::{Device, StackId},
    ledger::{CacheTotals, DeviceTotals, Failure, FailureKey, ProcessId, StreamTotals},
};

/// A device of a process at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSnapshot {
    pub process: ProcessId,
    /// `None`: it is not known which device.
    pub device: Device,
    pub totals: DeviceTotals,
    /// Blocks of its caching allocator by the number of their stream, as it reported them.
    pub streams: Vec<(u64, StreamTotals)>,
    /// Process total on the device, bytes, from the last interval that reported it.
    pub process_total: Option<u64>,
}

/// A library of devices in which some functions are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibraryRow {
    pub file: String,
    /// For people.
    pub library: String,
    /// Functions that memtrace would have probed.
    pub lacking: Vec<String>,
}

/// Stored form of an unknown device, because it is part of keys.
const UNKNOWN: i64 = -1;

fn stored(device: Device) -> i64 {
    device.map_or(UNKNOWN, i64::from)
}

pub(super) fn device(row: &Row, column: usize) -> rusqlite::Result<Device> {
    match row.get(column)? {
        UNKNOWN => Ok(None),
        index => u8::try_from(index)
            .map(Some)
            .map_err(|_| unexpected(column, "device")),
    }
}

/// The columns of [`DeviceTotals`].
fn columns(totals: &DeviceTotals) -> [Option<i64>; 10] {
    let cache = totals.cache.as_ref();
    let of_cache = |figure: fn(&CacheTotals) -> Option<u64>| cache.and_then(figure);
    [
        of_cache(|cache| Some(cache.allocated)),
        of_cache(|cache| Some(cache.peak_allocated)),
        of_cache(|cache| cache.reserved),
        of_cache(|cache| cache.peak_reserved),
        of_cache(|cache| cache.largest_free),
        Some(totals.runtime),
        Some(totals.runtime_by_cache),
        Some(totals.driver),
        Some(totals.driver_by_allocator),
        Some(totals.pinned),
    ]
    .map(|figure| figure.map(int))
}

fn totals(row: &Row, first: usize) -> rusqlite::Result<DeviceTotals> {
    let cache = optional(row, first)?
        .map(|allocated| {
            Ok::<_, rusqlite::Error>(CacheTotals {
                allocated,
                peak_allocated: uint(row, first + 1)?,
                reserved: optional(row, first + 2)?,
                peak_reserved: optional(row, first + 3)?,
                largest_free: optional(row, first + 4)?,
            })
        })
        .transpose()?;
    Ok(DeviceTotals {
        cache,
        runtime: uint(row, first + 5)?,
        runtime_by_cache: uint(row, first + 6)?,
        driver: uint(row, first + 7)?,
        driver_by_allocator: uint(row, first + 8)?,
        pinned: uint(row, first + 9)?,
    })
}

/// Adds an interval's figures of devices.
pub(super) fn write(connection: &Connection, interval: i64, of: &Interval) -> rusqlite::Result<()> {
    for ((process, device), totals) in &of.changes.devices {
        let t = columns(totals);
        put(
            connection,
            "device_history",
            &[params![process.0, stored(*device), interval], &part(&t)],
        )?;
    }
    for (key, totals) in &of.changes.streams {
        put(
            connection,
            "stream_history",
            &[params![
                key.process.0,
                stored(key.device),
                // A stream that the allocator did not create is identified by an address: all 64
                // bits count.
                key.stream.cast_signed(),
                interval,
                int(totals.allocated),
                int(totals.requested)
            ]],
        )?;
    }
    for (key, failure) in &of.changes.failures {
        let t = columns(&failure.held);
        put(
            connection,
            "device_failure",
            &[
                params![
                    key.process.0,
                    key.layer as u8,
                    stored(key.device),
                    key.stack.0,
                    key.error,
                    int(failure.count),
                    int(failure.first_ns),
                    int(failure.last_ns),
                    int(failure.size)
                ],
                &part(&t),
            ],
        )?;
    }
    for (process, device, bytes) in &of.device_usage {
        put(
            connection,
            "device_usage",
            &[params![process.0, device, interval, int(*bytes)]],
        )?;
    }
    Ok(())
}

/// Adds a device library, or replaces the row of the file.
pub(super) fn write_library(
    connection: &Connection,
    file: &str,
    library: &str,
    lacking: &[&str],
) -> rusqlite::Result<()> {
    put(
        connection,
        "library",
        &[params![file, library, to_json(lacking)?]],
    )
}

/// Every device as of an interval, by process and index.
pub(super) fn snapshots(
    connection: &Connection,
    interval: i64,
) -> rusqlite::Result<Vec<DeviceSnapshot>> {
    let mut usage = connection.prepare(
        "SELECT bytes FROM device_usage WHERE process = ?1 AND device = ?2 AND interval <= ?3 \
         ORDER BY interval DESC LIMIT 1",
    )?;
    // SQLite returns the other columns from the row that has the maximum.
    let mut streams = connection.prepare(
        "SELECT stream, allocated, requested, max(interval) FROM stream_history \
         WHERE process = ?1 AND device = ?2 AND interval <= ?3 GROUP BY stream ORDER BY stream",
    )?;
    connection
        .prepare(
            "SELECT process, device, max(interval), allocated, peak_allocated, reserved, \
             peak_reserved, largest_free, runtime, runtime_by_cache, driver, driver_by_allocator, pinned \
             FROM device_history WHERE interval <= ?1 GROUP BY process, device \
             ORDER BY process, device",
        )?
        .query_map([interval], |row| {
            let process: u32 = row.get(0)?;
            let index = device(row, 1)?;
            let mut used = usage.query(params![process, stored(index), interval])?;
            let process_total = match used.next()? {
                Some(row) => Some(uint(row, 0)?),
                None => None,
            };
            let by_stream = streams.query_map(params![process, stored(index), interval], |row| {
                let totals = StreamTotals {
                    allocated: uint(row, 1)?,
                    requested: uint(row, 2)?,
                };
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), totals))
            })?;
            let streams: Vec<_> = by_stream.collect::<Result<_, _>>()?;
            Ok(DeviceSnapshot {
                process: ProcessId(process),
                device: index,
                totals: totals(row, 3)?,
                streams: streams
                    .into_iter()
                    .filter(|(_, totals)| totals.allocated > 0)
                    .collect(),
                process_total,
            })
        })?
        .collect()
}

/// A process's memory on each device, at each moment at which it had changed, in order of time
/// (CLOCK_MONOTONIC ns).
pub(super) fn history(
    connection: &Connection,
    process: ProcessId,
) -> rusqlite::Result<Vec<(u64, Device, DeviceTotals)>> {
    connection
        .prepare_cached(
            "SELECT time_ns, device, allocated, peak_allocated, reserved, peak_reserved, \
             largest_free, runtime, runtime_by_cache, driver, driver_by_allocator, pinned \
             FROM device_history JOIN interval ON interval.id = interval \
             WHERE process = ?1 ORDER BY interval",
        )?
        .query_map([process.0], |row| {
            Ok((uint(row, 0)?, device(row, 1)?, totals(row, 2)?))
        })?
        .collect()
}

/// Process totals on each device, at each interval that reported them, in order of time
/// (CLOCK_MONOTONIC ns).
pub(super) fn usage(
    connection: &Connection,
    process: ProcessId,
) -> rusqlite::Result<Vec<(u64, u8, u64)>> {
    connection
        .prepare_cached(
            "SELECT time_ns, device, bytes FROM device_usage JOIN interval ON interval.id = interval \
             WHERE process = ?1 ORDER BY interval",
        )?
        .query_map([process.0], |row| {
            Ok((uint(row, 0)?, row.get(1)?, uint(row, 2)?))
        })?
        .collect()
}

/// Failed allocations whose first was not after `until_ns`, in order of their first.
pub(super) fn failures(
    connection: &Connection,
    until_ns: u64,
) -> rusqlite::Result<Vec<(FailureKey, Failure)>> {
    connection
        .prepare("SELECT * FROM device_failure WHERE first_ns <= ?1 ORDER BY first_ns")?
        .query_map([int(until_ns)], |row| {
            let key = FailureKey {
                process: ProcessId(row.get(0)?),
                layer: layer(row, 1)?,
                device: device(row, 2)?,
                stack: StackId(row.get(3)?),
                error: row.get(4)?,
            };
            let failure = Failure {
                count: uint(row, 5)?,
                first_ns: uint(row, 6)?,
                last_ns: uint(row, 7)?,
                size: uint(row, 8)?,
                held: totals(row, 9)?,
            };
            Ok((key, failure))
        })?
        .collect()
}

pub(super) fn libraries(connection: &Connection) -> rusqlite::Result<Vec<LibraryRow>> {
    connection
        .prepare("SELECT file, library, lacking FROM library ORDER BY file")?
        .query_map([], |row| {
            Ok(LibraryRow {
                file: row.get(0)?,
                library: row.get(1)?,
                lacking: json(row, 2)?,
            })
        })?
        .collect()
}
