//! Processes that ended by SIGKILL while the kernel killed processes for lack of memory. The kernel's counter does not
//! name its victims, so this is a coincidence that the reader may judge.

use rusqlite::{Connection, OptionalExtension};

use super::{ProcessRow, decode::uint, encode::int};
use crate::{hash::FastMap, ledger::ProcessId};

/// A killed process has to free its memory before it ends, ns.
const LONGEST_END: u64 = 2_000_000_000;

/// SIGKILL in the status of waitpid(2).
const SIGKILL: u32 = 9;

/// How many processes the kernel killed about when each of `processes` ended by SIGKILL; those without any are left
/// out.
pub(super) fn out_of_memory(
    connection: &Connection,
    processes: &[ProcessRow],
) -> rusqlite::Result<FastMap<ProcessId, u64>> {
    let is_killed = |row: &&ProcessRow| row.exit_status.is_some_and(|of| of & 0x7f == SIGKILL);
    let mut killed = FastMap::default();
    for row in processes.iter().filter(is_killed) {
        let Some(ended_ns) = row.ended_ns else {
            continue;
        };
        let before = ended_ns.saturating_sub(LONGEST_END);
        let before = count(connection, "time_ns <= ?1 ORDER BY interval DESC", before)?.or(count(
            connection,
            "time_ns >= ?1 ORDER BY interval",
            before,
        )?);
        let after = count(connection, "time_ns >= ?1 ORDER BY interval", ended_ns)?.or(count(
            connection,
            "time_ns <= ?1 ORDER BY interval DESC",
            ended_ns,
        )?);
        let more = after
            .zip(before)
            .map_or(0, |(after, before)| after.saturating_sub(before));
        if more > 0 {
            killed.insert(row.id, more);
        }
    }
    Ok(killed)
}

/// The kernel's counter at the first interval of a selection by time, ns.
fn count(connection: &Connection, which: &str, time_ns: u64) -> rusqlite::Result<Option<u64>> {
    let query = format!(
        "SELECT oom_kills FROM system JOIN interval ON interval.id = interval \
         WHERE oom_kills IS NOT NULL AND {which} LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&query)?;
    statement
        .query_row([int(time_ns)], |row| uint(row, 0))
        .optional()
}
