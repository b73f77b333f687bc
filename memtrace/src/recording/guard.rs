//! Limits for reading: a recording may come from anybody, and must be refused rather than take all of a machine.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, limits::Limit};

use super::{
    budget,
    file::{self, Reader},
};
use crate::clock;

/// CPU time for the schema, nanoseconds: a recording has some dozens of tables.
const OPENING: u64 = 1_000_000_000;

/// Steps of SQLite's virtual machine between two looks: about a millisecond.
const STEPS: i32 = 20_000;

/// SQLite's own limits (<https://sqlite.org/limits.html>).
const LIMITS: [(Limit, i32); 7] = [
    // The longest text or blob. A batch of nodes takes some megabytes.
    (Limit::SQLITE_LIMIT_LENGTH, 32 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 64 << 10),
    (Limit::SQLITE_LIMIT_COLUMN, 100),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 50),
    (Limit::SQLITE_LIMIT_VDBE_OP, 20_000),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
];

/// The limits of one reading.
#[derive(Debug)]
pub(super) struct Guard {
    bytes: u64,
    limits: Arc<Limits>,
}

#[derive(Debug, Default)]
struct Limits {
    /// CPU time of the thread, nanoseconds.
    time: AtomicU64,
    /// Resident bytes.
    memory: AtomicU64,
}

/// Opens a connection to a recording of this many bytes. Its first reading is that of its schema.
pub(super) fn connect(file: Reader, bytes: u64) -> rusqlite::Result<(Connection, Guard)> {
    let mut connection = file::connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    for (limit, most) in LIMITS {
        connection.set_limit(limit, most)?;
    }
    for (config, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        // Those of `compat` are temporary, and not affected.
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        // Otherwise a cached statement is compiled again for each value.
        (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
    ] {
        connection.set_db_config(config, value)?;
    }
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let limits = Arc::new(Limits::default());
    let watched = Arc::clone(&limits);
    connection.progress_handler(STEPS, Some(move || watched.are_exceeded()))?;
    let guard = Guard { bytes, limits };
    guard.begin();
    let opened = cpu_time_ns().saturating_add(OPENING);
    guard.limits.time.store(opened, Ordering::Relaxed);
    Ok((connection, guard))
}

impl Guard {
    /// Another reading begins.
    pub(super) fn begin(&self) {
        // SQLite is stopped before the process is: an error can be reported with more words.
        let time = budget::time(self.bytes) / 4 * 3;
        let memory = budget::memory(self.bytes) / 4 * 3;
        let Limits {
            time: latest,
            memory: most,
        } = &*self.limits;
        latest.store(cpu_time_ns().saturating_add(time), Ordering::Relaxed);
        most.store(budget::resident().saturating_add(memory), Ordering::Relaxed);
    }
}

impl Limits {
    fn are_exceeded(&self) -> bool {
        cpu_time_ns() > self.time.load(Ordering::Relaxed)
            || budget::resident() > self.memory.load(Ordering::Relaxed)
    }
}

/// CPU time of this thread so far.
fn cpu_time_ns() -> u64 {
    clock::now_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}
