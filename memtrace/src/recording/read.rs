//! Reading a recording, also one that is being written or was cut off.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::{
    At, Error, LayerSnapshot, Meta, Node, NodeId, Origin, ProcessRow, Snapshot, Stacks, budget,
    compat, create,
    decode::{LATEST, Sums, end, frame, json, layer, node, optional, totals, uint, unexpected},
    device_tables,
    encode::{int, origin_name},
    file::{self, Journal, Reader, page_size},
    guard::{self, Guard},
    holders, killed, schema,
    sites::sites,
    snapshot::Stored,
    stacks::Known,
    varint,
};
use crate::{
    event::StackId,
    frames::{Frame, Wrappers},
    ledger::{LayerTotals, ProcessId},
};
use memtrace_common::{limits::MAX_FRAMES, loss::Reason};

/// Most nodes of a stack. Those that memtrace writes have half as many.
const DEEPEST: u16 = 2 * MAX_FRAMES as u16;

/// Most frames at a location. Those that memtrace writes have fewer.
const MOST_INLINED: usize = 1000;

/// How long to wait for a recorder that is committing.
const WAIT_FOR_WRITER: Duration = Duration::from_secs(5);

/// Where the header of an SQLite database has `user_version`.
const VERSION_OFFSET: usize = 60;

/// First bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Bytes of SQLite's smallest page; a file has at least one page.
const SMALLEST_PAGE: usize = 512;

/// A recording, open for reading.
#[derive(Debug)]
pub(crate) struct Recording {
    connection: Connection,
    guard: Guard,
    path: PathBuf,
    meta: Meta,
}

impl Recording {
    /// Opens the recording at `path`, which may come from anybody. Nothing is written, and nothing beside it is read but
    /// the journal of an older memtrace that was killed.
    ///
    /// # Errors
    ///
    /// When `path` cannot be read, is not a recording, is damaged, or has a version of the schema that is not understood.
    pub(crate) fn open(path: &Path) -> Result<Recording, Error> {
        let file = file::open(path, 0).map_err(|error| Error::opening(path, &error))?;
        let version = check_kind(path, &file)?;
        let found = file
            .metadata()
            .map_err(|error| Error::opening(path, &error))?;
        let journal = match version < schema::WITHOUT_JOURNAL {
            true => journal(path, found.uid())?,
            false => None,
        };
        let bytes = bytes(&found);
        budget::add(path, bytes);
        let (connection, guard) = guard::connect(Reader::new(file, journal), bytes)
            .map_err(|error| Error::reading(path, &error))?;
        Self::check(connection, guard, path)
    }

    fn check(connection: Connection, guard: Guard, path: &Path) -> Result<Recording, Error> {
        connection
            .busy_timeout(WAIT_FOR_WRITER)
            .map_err(|error| Error::reading(path, &error))?;
        let number = |name: &str| {
            connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map_err(|error| Error::reading(path, &error))
        };
        if number("application_id")? != schema::APPLICATION_ID {
            return Err(Error::NotARecording {
                path: path.into(),
                found: "the SQLite database of another program",
            });
        }
        let intruder = compat::intruder(&connection);
        if let Some(name) = intruder.map_err(|error| Error::reading(path, &error))? {
            return Err(Error::Damaged {
                path: path.into(),
                cause: format!("`{name}` is not a table as memtrace makes them"),
            });
        }
        guard.begin();
        match number("user_version")? {
            schema::VERSION => {}
            found if found > schema::VERSION => {
                let min_reader: i64 = connection
                    .query_row("SELECT min_reader FROM recording", [], |row| row.get(0))
                    .map_err(|error| Error::reading(path, &error))?;
                if min_reader > schema::VERSION {
                    return Err(Error::Newer {
                        path: path.into(),
                        found,
                        expected: schema::VERSION,
                    });
                }
            }
            found if found >= schema::OLDEST => {
                compat::complete(&connection).map_err(|error| Error::reading(path, &error))?;
            }
            found if found > 0 => {
                return Err(Error::Older {
                    path: path.into(),
                    found,
                    expected: schema::VERSION,
                });
            }
            found => {
                return Err(Error::Damaged {
                    path: path.into(),
                    cause: format!("schema version {found}, expected {}", schema::VERSION),
                });
            }
        }
        let mut meta: Meta = connection
            .query_row("SELECT meta FROM recording", [], |row| json(row, 0))
            .map_err(|error| Error::reading(path, &error))?;
        if meta.interval_is_auto {
            let usual =
                usual_interval(&connection).map_err(|error| Error::reading(path, &error))?;
            meta.interval_ns = usual.unwrap_or(meta.interval_ns);
        }
        if [meta.started_ns, meta.started_unix_ns, meta.interval_ns]
            .iter()
            .any(|time| *time > LATEST)
        {
            return Err(Error::Damaged {
                path: path.into(),
                cause: "a time that no clock shows".into(),
            });
        }
        Ok(Recording {
            connection,
            guard,
            path: path.into(),
            meta,
        })
    }

    /// It is read once more: the limits of one reading begin again.
    pub(crate) fn read_again(&self) {
        budget::renew();
        let bytes = fs::metadata(&self.path).map_or(0, |found| bytes(&found));
        budget::add(&self.path, bytes);
        self.guard.begin();
    }

    /// Facts about the recording as a whole.
    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// How far a recording without an end reaches, ns since its start; `None` for a complete one.
    pub(crate) fn cut_off(&self) -> Result<Option<u64>, Error> {
        let reading = |error| self.reading(&error);
        let sql = "SELECT finished_ns, (SELECT max(time_ns) FROM interval) FROM recording";
        let (finished, last): (Option<i64>, Option<u64>) = self
            .connection
            .query_row(sql, [], |row| Ok((row.get(0)?, optional(row, 1)?)))
            .map_err(reading)?;
        let reaches = last.map_or(0, |last| last.saturating_sub(self.meta.started_ns));
        Ok(finished.is_none().then_some(reaches))
    }

    /// A number that changes whenever a recorder has committed something.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn version(&self) -> Result<i64, Error> {
        let version = self
            .connection
            .pragma_query_value(None, "data_version", |row| row.get(0));
        version.map_err(|error| self.reading(&error))
    }

    /// Live memory at a moment.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is damaged, or when a time after the last interval is
    /// requested.
    pub(crate) fn snapshot(&self, at: At) -> Result<Snapshot, Error> {
        if let At::Time(asked_ns) = at {
            self.check_time(asked_ns)?;
        }
        self.read_snapshot(at)
            .map_err(|error| Error::reading(&self.path, &error))
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// An error while reading.
    pub(super) fn reading(&self, error: &rusqlite::Error) -> Error {
        Error::reading(&self.path, error)
    }

    fn check_time(&self, asked_ns: u64) -> Result<(), Error> {
        let last = self
            .connection
            .query_row("SELECT max(time_ns) FROM interval", [], |row| {
                optional(row, 0)
            })
            .map_err(|error| Error::reading(&self.path, &error))?;
        let length_ns = last.map_or(0, |last| last.saturating_sub(self.meta.started_ns));
        if asked_ns > length_ns {
            return Err(Error::OutsideRecording {
                path: self.path.clone(),
                asked_ns,
                length_ns,
            });
        }
        Ok(())
    }

    /// Reads everything in one transaction: a recorder may be writing.
    fn read_snapshot(&self, at: At) -> rusqlite::Result<Snapshot> {
        let transaction = self.connection.unchecked_transaction()?;
        let limit = match at {
            At::Time(since_start) => self.meta.started_ns.saturating_add(since_start),
            _ => u64::MAX,
        };
        let last = interval(&transaction, limit)?;
        let processes = processes(&transaction)?;
        let stored = Stored {
            meta: self.meta.clone(),
            finished_ns: transaction.query_row("SELECT finished_ns FROM recording", [], |row| {
                optional(row, 0)
            })?,
            oom_kills: killed::out_of_memory(&transaction, &processes)?,
            processes,
            layers: layers(&transaction, last.id)?,
            devices: device_tables::snapshots(&transaction, last.id)?,
            failures: device_tables::failures(&transaction, last.time_ns.unwrap_or(0))?,
            libraries: device_tables::libraries(&transaction)?,
            holders: match last.past {
                true => Vec::new(),
                false => holders::read(&transaction)?,
            },
            stacks: stacks(&transaction, &self.meta)?,
            losses: losses(&transaction, last.id)?,
            emitted: last.emitted,
            received: last.received,
            time_ns: last.time_ns,
            past: last.past,
        };
        let mut moments = stored.moments(at);
        let past = last.past.then_some(last.id);
        let sites = sites(&transaction, past, &mut moments)?;
        Ok(stored.snapshot(at, &moments, sites))
    }
}

/// Bytes of a file that are stored: holes do not entitle anybody to more memory.
fn bytes(of: &Metadata) -> u64 {
    of.len().min(of.blocks().saturating_mul(512))
}

/// Distinguishes by its first bytes cases that SQLite would report as one error, or open. Returns the version of the
/// schema.
fn check_kind(path: &Path, file: &File) -> Result<i64, Error> {
    let cannot_read = |error| Error::opening(path, &error);
    let not_a_recording = |found| Error::NotARecording {
        path: path.into(),
        found,
    };
    let found = file.metadata().map_err(cannot_read)?;
    if found.is_dir() {
        return Err(not_a_recording("a directory"));
    }
    if !found.is_file() {
        return Err(not_a_recording("a device, pipe or socket"));
    }
    let mut start = [0; SMALLEST_PAGE];
    let read = file.read_at(&mut start, 0).map_err(cannot_read)?;
    if read == 0 {
        Err(not_a_recording("empty"))
    } else if !start.starts_with(MAGIC) {
        Err(not_a_recording("not an SQLite database"))
    } else if read < SMALLEST_PAGE || found.len() < page_size(start[16], start[17]) {
        // SQLite would take it for an empty database.
        Err(Error::Damaged {
            path: path.into(),
            cause: format!("{} bytes, expected at least a page", found.len()),
        })
    } else {
        let mut version = [0; 4];
        version.copy_from_slice(&start[VERSION_OFFSET..VERSION_OFFSET + 4]);
        Ok(i32::from_be_bytes(version).into())
    }
}

/// The journal beside a recording of `owner`.
fn journal(path: &Path, owner: u32) -> Result<Option<Journal>, Error> {
    let journal = create::with_suffix(path, "-journal");
    Journal::open(&journal, owner).map_err(|refused| Error::ForeignJournal {
        path: path.into(),
        journal,
        found: refused.to_string(),
    })
}

/// The median distance of intervals; `None` if there are too few.
fn usual_interval(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let ends: Vec<u64> = connection
        .prepare("SELECT time_ns FROM interval ORDER BY id")?
        .query_map([], |row| uint(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut distances: Vec<u64> = ends
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    distances.sort_unstable();
    Ok(distances.get(distances.len() / 2).copied())
}

/// An interval.
pub(super) struct Last {
    /// 0 before the first.
    pub(super) id: i64,
    pub(super) time_ns: Option<u64>,
    pub(super) emitted: u64,
    pub(super) received: u64,
    /// It is not the last of the recording.
    pub(super) past: bool,
}

/// The last interval that ended by `limit` (CLOCK_MONOTONIC ns).
pub(super) fn interval(transaction: &Transaction, limit: u64) -> rusqlite::Result<Last> {
    let found = transaction
        .query_row(
            "SELECT id, time_ns, emitted, received, id < (SELECT max(id) FROM interval) \
             FROM interval WHERE time_ns <= ?1 ORDER BY id DESC LIMIT 1",
            [int(limit)],
            |row| {
                Ok(Last {
                    id: row.get(0)?,
                    time_ns: Some(uint(row, 1)?),
                    emitted: uint(row, 2)?,
                    received: uint(row, 3)?,
                    past: row.get(4)?,
                })
            },
        )
        .optional()?;
    Ok(found.unwrap_or(Last {
        id: 0,
        time_ns: None,
        emitted: 0,
        received: 0,
        past: true,
    }))
}

pub(super) fn processes(transaction: &Transaction) -> rusqlite::Result<Vec<ProcessRow>> {
    transaction
        .prepare("SELECT * FROM process ORDER BY id")?
        .query_map([], |row| {
            let origin: String = row.get(3)?;
            Ok(ProcessRow {
                id: ProcessId(row.get(0)?),
                tgid: row.get(1)?,
                ppid: row.get(2)?,
                origin: [Origin::Attached, Origin::Launched, Origin::Child]
                    .into_iter()
                    .find(|known| origin_name(*known) == origin)
                    .ok_or_else(|| unexpected(3, "origin"))?,
                comm: row.get(4)?,
                cmdline: json(row, 5)?,
                started_ns: uint(row, 6)?,
                ended_ns: optional(row, 7)?,
                exit_status: row.get(8)?,
                rss_at_start: optional(row, 9)?,
                folded: optional(row, 10)?,
            })
        })?
        .collect()
}

fn layers(transaction: &Transaction, interval: i64) -> rusqlite::Result<Vec<LayerSnapshot>> {
    // SQLite returns the other columns from the row that has the maximum.
    let sql = "SELECT process, layer, max(interval), live_bytes, live_count, inherited_bytes, \
               inherited_count, alloc_bytes, alloc_count, free_bytes, free_count, peak_bytes, \
               peak_ns, peak_epoch, before_attach_bytes, cleared_by_exec_bytes, \
               cleared_by_exec_count FROM layer_history WHERE interval <= ?1 \
               GROUP BY process, layer ORDER BY process, layer";
    let mut sums = Sums::default();
    transaction
        .prepare(sql)?
        .query_map([interval], |row| {
            let totals = totals(row, 3)?;
            sums.add(&totals)?;
            Ok(LayerSnapshot {
                process: ProcessId(row.get(0)?),
                layer: layer(row, 1)?,
                totals: LayerTotals {
                    totals,
                    peak_epoch: uint(row, 13)?,
                    before_attach_bytes: uint(row, 14)?,
                    cleared_by_exec_bytes: uint(row, 15)?,
                    cleared_by_exec_count: uint(row, 16)?,
                },
            })
        })?
        .collect()
}

pub(super) fn stacks(transaction: &Transaction, meta: &Meta) -> rusqlite::Result<Stacks> {
    Ok(Stacks {
        wrappers: Wrappers::new(&meta.allocator_prefixes),
        locations: locations(transaction)?,
        nodes: nodes(transaction)?,
        stacks: known_stacks(transaction)?,
    })
}

fn locations(transaction: &Transaction) -> rusqlite::Result<Vec<Box<[Arc<Frame>]>>> {
    let frames: HashMap<u64, Arc<Frame>> = transaction
        .prepare(
            "SELECT frame.id, kind, f.text, m.text, b.text, file_offset, s.text, line, inlined, \
             u.text FROM frame LEFT JOIN string f ON f.id = function \
             LEFT JOIN string m ON m.id = module LEFT JOIN string b ON b.id = build_id \
             LEFT JOIN string s ON s.id = file LEFT JOIN string u ON u.id = unresolved",
        )?
        .query_map([], |row| Ok((uint(row, 0)?, Arc::new(frame(row)?))))?
        .collect::<rusqlite::Result<_>>()?;
    let mut locations = Vec::new();
    let mut statement = transaction.prepare("SELECT id, frames FROM location ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if uint(row, 0)? != locations.len() as u64 + 1 {
            return Err(unexpected(0, "location"));
        }
        let known = varint::unpack(row.get_ref(1)?.as_blob()?, MOST_INLINED)
            .and_then(|ids| ids.iter().map(|id| frames.get(id).cloned()).collect());
        locations.push(known.ok_or_else(|| unexpected(1, "frames"))?);
    }
    Ok(locations)
}

fn nodes(transaction: &Transaction) -> rusqlite::Result<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::new();
    // Of each node, and first of what is above all of them.
    let mut depths = vec![0];
    let mut statement = transaction.prepare("SELECT first, nodes FROM node ORDER BY first")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if uint(row, 0)? != nodes.len() as u64 + 1 {
            return Err(unexpected(0, "first"));
        }
        let numbers = varint::unpack(row.get_ref(1)?.as_blob()?, usize::MAX);
        for pair in numbers.ok_or_else(|| unexpected(1, "nodes"))?.chunks(2) {
            let node = node(nodes.len() as u64 + 1, pair).ok_or_else(|| unexpected(1, "nodes"))?;
            let depth = depths.get(node.parent.0 as usize).copied().unwrap_or(0) + 1;
            if depth > DEEPEST {
                return Err(unexpected(1, "nodes, too deep"));
            }
            nodes.push(node);
            depths.push(depth);
        }
    }
    Ok(nodes)
}

fn known_stacks(transaction: &Transaction) -> rusqlite::Result<HashMap<StackId, Known>> {
    let threads: HashMap<i64, Arc<str>> = transaction
        .prepare("SELECT id, text FROM string WHERE id IN (SELECT DISTINCT thread FROM stack)")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    transaction
        .prepare("SELECT id, node, end, thread FROM stack")?
        .query_map([], |row| {
            let thread: Option<i64> = row.get(3)?;
            let thread = thread.map(|id| {
                let thread = threads.get(&id).cloned();
                thread.ok_or_else(|| unexpected(3, "thread"))
            });
            let known = Known {
                node: NodeId(row.get(1)?),
                end: end(row, 2)?,
                thread: thread.transpose()?,
            };
            Ok((StackId(row.get(0)?), known))
        })?
        .collect()
}

pub(super) fn losses(
    transaction: &Transaction,
    interval: i64,
) -> rusqlite::Result<Vec<(Reason, u64)>> {
    let counts: HashMap<String, u64> = transaction
        .prepare(
            "SELECT reason, max(interval), count FROM loss WHERE interval <= ?1 GROUP BY reason",
        )?
        .query_map([interval], |row| Ok((row.get(0)?, uint(row, 2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Reason::ALL
        .into_iter()
        .map(|reason| (reason, counts.get(reason.name()).copied().unwrap_or(0)))
        .collect())
}
