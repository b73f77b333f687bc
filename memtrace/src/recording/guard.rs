//! Limits for reading: a recording may come from anybody, and must be refused rather than take all of a machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, limits::Limit};

use super::file::{self, Reader};

/// CPU time that SQLite may take for any recording, and for each of its bytes. The largest ones take a tenth of that.
const TIME: Duration = Duration::from_secs(4);
const TIME_OF_BYTE: Duration = Duration::from_nanos(250);

/// Memory that reading may take for any recording, and for each of its bytes.
const MEMORY: u64 = 128 << 20;
const MEMORY_OF_BYTE: u64 = 16;

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

/// Opens a connection to a recording of this many bytes.
///
/// # Errors
/// SQLite refuses it.
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
    Ok((connection, guard))
}

impl Guard {
    /// Another reading begins.
    pub(super) fn begin(&self) {
        let time = TIME.as_nanos() as u64 + self.bytes * TIME_OF_BYTE.as_nanos() as u64;
        let memory = MEMORY.saturating_add(self.bytes.saturating_mul(MEMORY_OF_BYTE));
        let Limits {
            time: latest,
            memory: most,
        } = &*self.limits;
        latest.store(cpu_time_ns().saturating_add(time), Ordering::Relaxed);
        most.store(resident().saturating_add(memory), Ordering::Relaxed);
    }
}

impl Limits {
    fn are_exceeded(&self) -> bool {
        cpu_time_ns() > self.time.load(Ordering::Relaxed)
            || resident() > self.memory.load(Ordering::Relaxed)
    }
}

/// CPU time of this thread so far.
fn cpu_time_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Resident bytes of this process; 0 if they are not known.
fn resident() -> u64 {
    let own = procfs::process::Process::myself().and_then(|own| own.statm());
    own.map_or(0, |statm| statm.resident * procfs::page_size())
}
