//! Processes of the job that are not in the recording: the table `untraced`.

use rusqlite::{Connection, params};

use super::{Error, Recording, Writer, decode::json, encode::to_json};

/// A process that belongs to the job and is not traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Untraced {
    pub(crate) tgid: u32,
    pub(crate) comm: String,
    pub(crate) cmdline: Vec<String>,
    /// Why not.
    pub(crate) why: String,
}

impl Writer {
    /// Adds a process that is not traced. Committed with the next interval.
    pub(crate) fn untraced(&mut self, of: &Untraced) -> Result<(), Error> {
        self.write(|writer| {
            let cmdline = to_json(&of.cmdline)?;
            writer.put("untraced", &[params![of.tgid, of.comm, cmdline, of.why]])
        })
    }
}

impl Recording {
    /// Processes of the job that are not traced, by number.
    pub(crate) fn untraced(&self) -> Result<Vec<Untraced>, Error> {
        rows(self.connection()).map_err(|error| self.reading(&error))
    }
}

fn rows(connection: &Connection) -> rusqlite::Result<Vec<Untraced>> {
    connection
        .prepare("SELECT tgid, comm, cmdline, why FROM untraced ORDER BY tgid")?
        .query_map([], |row| {
            Ok(Untraced {
                tgid: row.get(0)?,
                comm: row.get(1)?,
                cmdline: json(row, 2)?,
                why: row.get(3)?,
            })
        })?
        .collect()
}
