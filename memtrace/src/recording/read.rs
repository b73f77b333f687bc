//! Rows of a recording as of a moment: all that a snapshot is made from, but sites and holders.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{OptionalExtension, Transaction};

use super::{
    At, Error, LayerSnapshot, Meta, Node, NodeId, Origin, PACKAGE_FOLDERS, ProcessRow, Recording,
    Snapshot, Stacks,
    decode::{Sums, end, frame, json, layer, node, optional, totals, uint, unexpected},
    device_tables,
    encode::{int, origin_name},
    holders, killed,
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

impl Recording {
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
        self.read_snapshot(at).map_err(|error| self.reading(&error))
    }

    fn check_time(&self, asked_ns: u64) -> Result<(), Error> {
        let last = self
            .connection()
            .query_row("SELECT max(time_ns) FROM interval", [], |row| {
                optional(row, 0)
            })
            .map_err(|error| self.reading(&error))?;
        let length_ns = last.map_or(0, |last| last.saturating_sub(self.meta().started_ns));
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
        let transaction = self.connection().unchecked_transaction()?;
        let limit = match at {
            At::Time(since_start) => self.meta().started_ns.saturating_add(since_start),
            _ => u64::MAX,
        };
        let last = interval(&transaction, limit)?;
        let processes = processes(&transaction)?;
        let stored = Stored {
            meta: self.meta().clone(),
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
            stacks: stacks(&transaction, self.meta())?,
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

/// Folders of the processes' packages besides Python's own.
fn package_folders(transaction: &Transaction) -> rusqlite::Result<Vec<String>> {
    let lists: Vec<String> = transaction
        .prepare(
            "SELECT DISTINCT v.text FROM fact JOIN string f ON f.id = field \
             JOIN string v ON v.id = value WHERE f.text = ?1",
        )?
        .query_map([PACKAGE_FOLDERS], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let folders = lists.iter().flat_map(|list| list.split(':'));
    Ok(folders.map(|folder| format!("{folder}/")).collect())
}

/// Whether a file is below a folder in one of these folders. A file in the folder itself may be the program's own.
fn is_packaged(file: Option<&str>, folders: &[String]) -> bool {
    file.is_some_and(|file| {
        let mut below = folders
            .iter()
            .filter_map(|of| file.strip_prefix(of.as_str()));
        below.any(|rest| rest.contains('/'))
    })
}

fn locations(transaction: &Transaction) -> rusqlite::Result<Vec<Box<[Arc<Frame>]>>> {
    let folders = package_folders(transaction)?;
    let frames: HashMap<u64, Arc<Frame>> = transaction
        .prepare(
            "SELECT frame.id, kind, f.text, m.text, b.text, file_offset, s.text, line, inlined, \
             u.text FROM frame LEFT JOIN string f ON f.id = function \
             LEFT JOIN string m ON m.id = module LEFT JOIN string b ON b.id = build_id \
             LEFT JOIN string s ON s.id = file LEFT JOIN string u ON u.id = unresolved",
        )?
        .query_map([], |row| {
            let frame = frame(row)?;
            let path = match frame.is_python() {
                true => &frame.file,
                false => &frame.module,
            };
            let is_packaged = is_packaged(path.as_deref(), &folders);
            Ok((
                uint(row, 0)?,
                Arc::new(Frame {
                    is_packaged,
                    ..frame
                }),
            ))
        })?
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
