//! Writing a recording: rows collect in a transaction that an interval commits.

use std::{collections::HashMap, fs::File, path::Path, path::PathBuf, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params};

use super::{
    Error, Interval, LocationId, Meta, Node, NodeId, ProcessRow, StackRow, create, device_tables,
    encode::{int, kind_name, origin_name, pack_births, to_json},
    file,
    fold::Written,
    output::Output,
    put::{part, put},
    schema, varint,
};
use crate::{
    frames::Frame,
    ledger::{LayerTotals, ProcessId, SiteKey, SiteTotals, Totals},
};
use memtrace_common::{Layer, loss::Reason};

/// How long an interval waits for a process that reads the file. If a commit fails, the next one
/// includes it.
const WAIT_FOR_READERS: Duration = Duration::from_millis(100);

/// The same for the last commit, which has no next one.
const WAIT_AT_THE_END: Duration = Duration::from_secs(10);

/// Least bytes for which a site's block ages are kept: very small sites are never judged.
const LEAST_OF_AGES: u64 = 1 << 10;

/// Writes a recording. After an error nothing more can be written, and the file
/// reads as of the last committed interval.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    intervals: i64,
    in_transaction: bool,
    /// A reader was in the way of the last one.
    commit_is_due: bool,
    failed: bool,
    strings: HashMap<String, i64>,
    frames: HashMap<Frame, i64>,
    pub(super) written: Written,
    losses: HashMap<Reason, u64>,
    /// The file, whatever its name is now.
    output: Output,
}

impl Writer {
    /// Creates the file `path`, of mode 0600 and, under sudo, owned by the invoking user.
    ///
    /// # Errors
    ///
    /// When something is at `path` already (with `force`: something other than a recording or an
    /// empty file), or when it cannot be created or written.
    pub fn create(path: &Path, force: bool, meta: &Meta) -> Result<Writer, Error> {
        let file = create::create_recording(path, force)?;
        Self::initialise(path, file, meta).inspect_err(|_| {
            // An empty file would only be mistaken for a recording. The failure before is reported,
            // not this one.
            let _ = std::fs::remove_file(path);
        })
    }

    fn initialise(path: &Path, file: File, meta: &Meta) -> Result<Writer, Error> {
        let output = file.try_clone().map(|file| Output::new(path, file));
        let output = output.map_err(|error| Error::opening(path, &error))?;
        let connection = Self::tables(file, meta).map_err(|error| Error::creating(path, &error))?;
        Ok(Writer {
            connection,
            path: path.into(),
            intervals: 0,
            in_transaction: false,
            commit_is_due: false,
            failed: false,
            strings: HashMap::new(),
            frames: HashMap::new(),
            written: Written::default(),
            losses: HashMap::new(),
            output,
        })
    }

    fn tables(file: File, meta: &Meta) -> rusqlite::Result<Connection> {
        let storage = file::Writer::new(file);
        let connection = file::connect(storage, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.set_prepared_statement_cache_capacity(32);
        connection.busy_timeout(WAIT_FOR_READERS)?;
        // The file itself commits all or nothing, and after a failure nothing more is written. FULL makes a commit
        // survive a power cut. Without cache spilling the file is touched by commits only, so that it can be read while
        // an interval collects.
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_spill", false)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let meta = to_json(meta)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", schema::VERSION)?;
        connection.execute_batch(&schema::statements())?;
        connection.execute(
            "INSERT INTO recording (id, meta, min_reader) VALUES (1, ?1, ?2)",
            params![meta, schema::MIN_READER],
        )?;
        connection.execute_batch("COMMIT")?;
        Ok(connection)
    }

    /// Replaces what is known of the recording. Committed with the next interval.
    pub fn begins(&mut self, meta: &Meta) -> Result<(), Error> {
        self.write(|writer| writer.run("UPDATE recording SET meta = ?1", params![to_json(meta)?]))
    }

    /// Adds a process, or replaces its row. Committed with the next interval.
    pub fn process(&mut self, row: &ProcessRow) -> Result<(), Error> {
        self.written.row(row);
        self.write(|writer| writer.insert_process(row))
    }

    /// Adds a location, or replaces its frames (those inlined first, the innermost of them first).
    /// Committed with the next interval.
    pub fn location(&mut self, id: LocationId, frames: &[Frame]) -> Result<(), Error> {
        self.write(|writer| {
            let ids = frames
                .iter()
                .map(|frame| writer.frame(frame))
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let frames = varint::pack(ids.into_iter().map(i64::cast_unsigned));
            writer.put("location", &[params![id.0, frames]])
        })
    }

    /// Adds nodes, the first of which has the id `first` and follows the last one added before.
    /// Committed with the next interval.
    pub fn nodes(&mut self, first: NodeId, nodes: &[Node]) -> Result<(), Error> {
        if nodes.is_empty() {
            return Ok(());
        }
        self.write(|writer| {
            let numbers = (first.0..).zip(nodes).flat_map(|(id, node)| {
                let distance = id.saturating_sub(node.parent.0);
                [distance.into(), node.location.0.into()]
            });
            writer.put("node", &[params![first.0, varint::pack(numbers)]])
        })
    }

    /// Adds a stack. Committed with the next interval.
    pub fn stack(&mut self, row: &StackRow) -> Result<(), Error> {
        self.write(|writer| {
            let thread = writer.string(row.thread.as_deref())?;
            writer.put(
                "stack",
                &[params![row.id.0, row.node.0, row.end.name(), thread]],
            )
        })
    }

    /// Adds a library of devices and the functions that its version lacks. Committed with the next
    /// interval.
    pub fn library(&mut self, file: &str, library: &str, lacking: &[&str]) -> Result<(), Error> {
        self.write(|writer| {
            device_tables::write_library(&writer.connection, file, library, lacking)
        })
    }

    /// Adds an interval and, unless that can wait, commits it with everything since the last
    /// commit. If another process holds the file for reading, the next interval commits this one
    /// too.
    pub fn interval(&mut self, interval: &Interval) -> Result<(), Error> {
        self.write(|writer| {
            writer.insert_interval(interval)?;
            if interval.halve {
                writer.halve()?;
            }
            if interval.commit_later && !writer.commit_is_due {
                return Ok(());
            }
            let committed = writer.commit();
            writer.commit_is_due = is_busy(&committed);
            match writer.commit_is_due {
                true => Ok(()),
                false => committed,
            }
        })?;
        self.output.watch();
        Ok(())
    }

    /// Replaces the count of a reason in the last interval.
    pub fn loss(&mut self, reason: Reason, count: u64) -> Result<(), Error> {
        self.write(|writer| writer.insert_loss(reason, count))
    }

    /// Marks that recording ended normally, at `time_ns` (CLOCK_MONOTONIC), and commits.
    pub fn finish(mut self, time_ns: u64) -> Result<(), Error> {
        self.write(|writer| {
            writer.connection.busy_timeout(WAIT_AT_THE_END)?;
            writer.run(
                "UPDATE recording SET finished_ns = ?1",
                params![int(time_ns)],
            )?;
            writer.commit()
        })?;
        self.output.restore()
    }

    /// Runs `action` within the transaction.
    pub(super) fn write(
        &mut self,
        action: impl FnOnce(&mut Self) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        if self.failed {
            return Err(Error::FailedBefore {
                path: self.path.clone(),
            });
        }
        self.begin().and_then(|()| action(self)).map_err(|error| {
            self.failed = true;
            Error::writing(&self.path, &error)
        })
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        if !self.in_transaction {
            // Deferred: it takes the write lock with its first row, and nothing else writes.
            self.connection.execute_batch("BEGIN")?;
            self.in_transaction = true;
        }
        Ok(())
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")?;
        self.in_transaction = false;
        Ok(())
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// As [`put`].
    pub(super) fn put(&self, table: &str, parts: &[&[&dyn ToSql]]) -> rusqlite::Result<()> {
        put(&self.connection, table, parts)
    }

    pub(super) fn run(&self, sql: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn insert_process(&self, row: &ProcessRow) -> rusqlite::Result<()> {
        let cmdline = to_json(&row.cmdline)?;
        self.put(
            "process",
            &[params![
                row.id.0,
                row.tgid,
                row.ppid,
                origin_name(row.origin),
                row.comm,
                cmdline,
                int(row.started_ns),
                row.ended_ns.map(int),
                row.exit_status,
                row.rss_at_start.map(int),
                row.folded.map(int)
            ]],
        )
    }

    pub(super) fn string(&mut self, text: Option<&str>) -> rusqlite::Result<Option<i64>> {
        let Some(text) = text else { return Ok(None) };
        if let Some(id) = self.strings.get(text) {
            return Ok(Some(*id));
        }
        let id = next_id(self.strings.len());
        self.put("string", &[params![id, text]])?;
        self.strings.insert(text.into(), id);
        Ok(Some(id))
    }

    fn frame(&mut self, frame: &Frame) -> rusqlite::Result<i64> {
        if let Some(id) = self.frames.get(frame) {
            return Ok(*id);
        }
        let id = next_id(self.frames.len());
        let function = self.string(frame.function.as_deref())?;
        let module = self.string(frame.module.as_deref())?;
        let build_id = self.string(frame.build_id.as_deref())?;
        let file = self.string(frame.file.as_deref())?;
        let unresolved = frame.unresolved.as_ref().map(ToString::to_string);
        let unresolved = self.string(unresolved.as_deref())?;
        self.put(
            "frame",
            &[params![
                id,
                kind_name(frame.kind),
                function,
                module,
                build_id,
                frame.file_offset.map(int),
                file,
                frame.line,
                frame.inlined,
                unresolved
            ]],
        )?;
        self.frames.insert(frame.clone(), id);
        Ok(id)
    }

    fn insert_interval(&mut self, interval: &Interval) -> rusqlite::Result<()> {
        let id = self.intervals + 1;
        if !interval.unfinished {
            self.intervals = id;
        }
        self.put(
            "interval",
            &[params![
                id,
                int(interval.time_ns),
                int(interval.emitted),
                int(interval.received)
            ]],
        )?;
        if interval.ends_round {
            self.put("round", &[params![id]])?;
        }
        for process in &interval.folded {
            self.written.take_back(&self.connection, *process)?;
        }
        for (key, site) in &interval.changes.sites {
            self.insert_site(id, interval.time_ns, *key, site)?;
        }
        for ((process, layer), totals) in &interval.changes.layers {
            self.insert_layer(id, *process, *layer, totals)?;
        }
        device_tables::write(&self.connection, id, interval)?;
        for (process, sample) in &interval.memory {
            self.insert_memory(id, *process, sample)?;
        }
        if let Some(sample) = &interval.system {
            self.insert_system(id, sample)?;
        }
        for (cgroup, sample) in &interval.cgroups {
            self.insert_cgroup(id, *cgroup, sample)?;
        }
        for (process, cgroup) in &interval.members {
            self.insert_member(*process, *cgroup)?;
        }
        for (reason, count) in &interval.losses {
            self.insert_loss(*reason, *count)?;
        }
        if !interval.births.is_empty() {
            // A scan covers all sites: those it does not list have no live blocks.
            self.run("DELETE FROM births", params![])?;
        }
        for (key, births) in &interval.births {
            let site = self.written.site(*key, interval.time_ns);
            self.put(
                "births",
                &[params![site, int(interval.time_ns), pack_births(births)]],
            )?;
            if !births.ages.is_empty() && births.bytes() >= LEAST_OF_AGES {
                let ages = varint::pack(births.ages.iter().copied());
                // These ages stay after the process ends: they date from before it freed its memory.
                self.run(
                    "INSERT OR REPLACE INTO ages SELECT ?1, ?2, ?3, lifetimes FROM site WHERE id = ?1",
                    params![site, int(interval.time_ns), ages],
                )?;
            }
        }
        for (process, held) in &interval.holes {
            self.run(
                "DELETE FROM held_open WHERE process = ?1",
                params![process.0],
            )?;
            for (key, held) in held {
                let site = self.written.site(*key, interval.time_ns);
                self.put(
                    "held_open",
                    &[params![
                        process.0,
                        site,
                        int(interval.time_ns),
                        int(held.bytes),
                        int(held.holes)
                    ]],
                )?;
            }
        }
        self.written.interval(!interval.births.is_empty());
        Ok(())
    }

    fn insert_site(
        &mut self,
        interval: i64,
        time_ns: u64,
        key: SiteKey,
        site: &SiteTotals,
    ) -> rusqlite::Result<()> {
        let id = self.written.site(key, time_ns);
        let t = totals(&site.totals);
        let lifetimes = varint::pack(site.lifetimes.iter().copied());
        self.put(
            "site",
            &[
                params![
                    id,
                    key.process.0,
                    key.layer as u8,
                    key.stack.0,
                    key.by_allocator
                ],
                &part(&t),
                params![
                    int(site.at_peak_bytes),
                    int(site.at_peak_count),
                    int(site.peak_epoch),
                    int(site.first_ns),
                    int(site.last_ns),
                    lifetimes,
                    key.device
                ],
            ],
        )?;
        // A group has no course: its processes have ended.
        if self.written.is_group(key.process) {
            return Ok(());
        }
        self.written.history(key, interval, id, time_ns);
        self.put("site_history", &[params![interval, id], &part(&t)])
    }

    fn insert_loss(&mut self, reason: Reason, count: u64) -> rusqlite::Result<()> {
        if self.losses.insert(reason, count) == Some(count) {
            return Ok(());
        }
        self.put(
            "loss",
            &[params![self.intervals, reason.name(), int(count)]],
        )
    }

    fn insert_layer(
        &self,
        interval: i64,
        process: ProcessId,
        layer: Layer,
        l: &LayerTotals,
    ) -> rusqlite::Result<()> {
        let t = totals(&l.totals);
        if self.written.is_group(process) {
            self.run(
                "DELETE FROM layer_history WHERE process = ?1 AND layer = ?2",
                params![process.0, layer as u8],
            )?;
        }
        self.put(
            "layer_history",
            &[
                params![process.0, layer as u8, interval],
                &part(&t),
                params![
                    int(l.peak_epoch),
                    int(l.before_attach_bytes),
                    int(l.cleared_by_exec_bytes),
                    int(l.cleared_by_exec_count)
                ],
            ],
        )
    }
}

/// In the order of the columns of `site`, `site_history` and `layer_history`.
fn totals(t: &Totals) -> [i64; 10] {
    [
        t.live_bytes,
        t.live_count,
        t.inherited_bytes,
        t.inherited_count,
        t.alloc_bytes,
        t.alloc_count,
        t.free_bytes,
        t.free_count,
        t.peak_bytes,
        t.peak_ns,
    ]
    .map(int)
}

fn is_busy(committed: &rusqlite::Result<()>) -> bool {
    let error = committed.as_ref().err();
    error.and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::DatabaseBusy)
}

fn next_id(known: usize) -> i64 {
    int(known as u64 + 1)
}
