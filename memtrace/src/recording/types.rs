//! Types of Python's objects whose number grew steadily: the tables `census` and `growing_type`.

use rusqlite::{Connection, Row, params};

use super::{Error, Recording, Way, Writer, decode::uint, encode::int, holders::ways};
use crate::ledger::ProcessId;

/// How often the objects of a process were counted, or could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) counted: u32,
    /// It would have taken too long.
    pub(crate) too_large: u32,
    /// Its interpreter could not be read, or memory of it was swapped out.
    pub(crate) unreadable: u32,
}

/// A type whose number of objects grew steadily. Objects of more than 512 bytes are not counted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GrowingType {
    /// With its module unless it is a builtin.
    pub(crate) name: String,
    /// The first and the last count that say so.
    pub(crate) first: Objects,
    pub(crate) last: Objects,
    /// Objects among those that came and stayed whose holders were searched for; 0: nothing is known of them.
    pub(crate) examined: u32,
    /// Those of them that no root reaches.
    pub(crate) unreached: u32,
    /// The ways in which they are held, the most frequent first.
    pub(crate) ways: Vec<Way>,
}

/// The objects of a type at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    /// CLOCK_MONOTONIC.
    pub(crate) time_ns: u64,
    pub(crate) count: u64,
    /// The memory that they take.
    pub(crate) bytes: u64,
}

/// If no root reaches this share of the objects that were examined, their growth is not reached.
const UNREACHED: f64 = 0.8;

/// Least objects for that.
const LEAST_EXAMINED: u32 = 8;

impl GrowingType {
    /// Seconds between the two counts.
    pub(crate) fn seconds(&self) -> f64 {
        self.last.time_ns.saturating_sub(self.first.time_ns) as f64 / 1e9
    }

    /// Objects that came.
    pub(crate) fn grown(&self) -> u64 {
        self.last.count.saturating_sub(self.first.count)
    }

    /// By how many objects a second.
    pub(crate) fn per_s(&self) -> f64 {
        self.grown() as f64 / self.seconds().max(f64::MIN_POSITIVE)
    }

    /// By how many bytes a second.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.per_s() * self.size() as f64
    }

    /// Bytes of an object among those that came, on average.
    pub(crate) fn size(&self) -> u64 {
        let bytes = self.last.bytes.saturating_sub(self.first.bytes);
        bytes.checked_div(self.grown()).unwrap_or(0)
    }

    /// Whether no root reaches what came; `None`: not known.
    pub(crate) fn is_unreached(&self) -> Option<bool> {
        let share = f64::from(self.unreached) / f64::from(self.examined.max(1));
        (self.examined >= LEAST_EXAMINED).then_some(share >= UNREACHED)
    }
}

impl Writer {
    /// Adds the counts of a process, and the types that grew.
    pub(crate) fn types(
        &mut self,
        process: ProcessId,
        census: &Census,
        types: &[GrowingType],
    ) -> Result<(), Error> {
        self.write(|writer| {
            let Census {
                counted,
                too_large,
                unreadable,
            } = census;
            let row = params![process.0, counted, too_large, unreadable];
            writer.put("census", &[row])?;
            for of in types {
                let name = writer.string(Some(&of.name))?;
                let count = "SELECT 1 + count(*) FROM growing_type";
                let number: i64 = writer.connection().query_row(count, [], |row| row.get(0))?;
                writer.put(
                    "growing_type",
                    &[params![
                        process.0,
                        name,
                        int(of.first.time_ns),
                        int(of.first.count),
                        int(of.first.bytes),
                        int(of.last.time_ns),
                        int(of.last.count),
                        int(of.last.bytes),
                        of.examined,
                        of.unreached,
                        number
                    ]],
                )?;
                for (place, way) in (0_i64..).zip(&of.ways) {
                    writer.way(-number, place, way)?;
                }
            }
            Ok(())
        })
    }
}

impl Recording {
    /// The processes whose objects were counted, and the types that grew: eight at most, the one that took the most memory
    /// first.
    pub(crate) fn types(&self) -> Result<Vec<(ProcessId, Census, Vec<GrowingType>)>, Error> {
        let connection = self.connection();
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut all = censuses(connection)?;
            for (process, _, types) in &mut all {
                *types = growing(connection, *process)?;
            }
            Ok(all)
        };
        read().map_err(|error| self.reading(&error))
    }
}

fn censuses(
    connection: &Connection,
) -> rusqlite::Result<Vec<(ProcessId, Census, Vec<GrowingType>)>> {
    connection
        .prepare("SELECT process, counted, too_large, unreadable FROM census ORDER BY process")?
        .query_map([], |row| {
            let census = Census {
                counted: row.get(1)?,
                too_large: row.get(2)?,
                unreadable: row.get(3)?,
            };
            Ok((ProcessId(row.get(0)?), census, Vec::new()))
        })?
        .collect()
}

fn growing(connection: &Connection, process: ProcessId) -> rusqlite::Result<Vec<GrowingType>> {
    let mut types = connection.prepare_cached(
        "SELECT text, first_ns, first_count, first_bytes, last_ns, last_count, last_bytes, \
         examined, unreached, number FROM growing_type JOIN string ON string.id = name \
         WHERE process = ?1 ORDER BY last_bytes - first_bytes DESC, text LIMIT 8",
    )?;
    let types = types.query_map([process.0], |row| {
        let number: Option<i64> = row.get(9)?;
        let number = number.filter(|number| *number > 0);
        let ways = number.map(|number| ways(connection, -number)).transpose()?;
        Ok(GrowingType {
            name: row.get(0)?,
            first: objects(row, 1)?,
            last: objects(row, 4)?,
            examined: row.get(7)?,
            unreached: row.get(8)?,
            ways: ways.unwrap_or_default(),
        })
    })?;
    types.collect()
}

/// The three columns from `first` on.
fn objects(row: &Row, first: usize) -> rusqlite::Result<Objects> {
    Ok(Objects {
        time_ns: uint(row, first)?,
        count: uint(row, first + 1)?,
        bytes: uint(row, first + 2)?,
    })
}
