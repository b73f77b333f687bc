//! Facts about the machine and the traced processes, as pairs of a field and its value: the table
//! `fact`.

use rusqlite::params;

use super::{Error, Recording, Writer, series};
use crate::ledger::ProcessId;

/// One thing that may explain why a program behaves differently elsewhere. `docs/reference/fingerprint.md`
/// lists the fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fact {
    /// `None`: a fact of the machine.
    pub process: Option<ProcessId>,
    /// Dotted name, such as `kernel.release`.
    pub field: String,
    pub value: String,
}

/// The field with the memory size of a device, by the index that the process uses.
pub(crate) fn capacity_of(device: u8) -> String {
    format!("gpu.{device}.memory")
}

/// The field with the folders of Python packages besides the interpreter's own, with colons between them.
pub(crate) const PACKAGE_FOLDERS: &str = "python.package_folders";

/// `process` of a fact of the machine.
const MACHINE: i64 = -1;

impl Writer {
    /// Adds facts; a later value takes the place of an earlier one. Committed with the next interval.
    pub fn facts(&mut self, facts: &[Fact]) -> Result<(), Error> {
        self.write(|writer| {
            for fact in facts {
                let field = writer.string(Some(&fact.field))?;
                let value = writer.string(Some(&fact.value))?;
                writer.put("fact", &[params![number(fact.process), field, value]])?;
            }
            Ok(())
        })
    }

    /// A forked child has its parent's facts until its exec.
    pub fn inherit_facts(&mut self, parent: ProcessId, child: ProcessId) -> Result<(), Error> {
        self.write(|writer| {
            writer.run(
                "INSERT OR REPLACE INTO fact SELECT ?2, field, value FROM fact WHERE process = ?1",
                params![parent.0, child.0],
            )
        })
    }

    /// The process executes another program: its facts no longer hold.
    pub fn forget_facts(&mut self, process: ProcessId) -> Result<(), Error> {
        self.write(|writer| writer.run("DELETE FROM fact WHERE process = ?1", params![process.0]))
    }
}

impl Recording {
    /// Every fact: the machine's first, then each process's, by field.
    pub(crate) fn facts(&self) -> Result<Vec<Fact>, Error> {
        series::rows(
            self.connection(),
            "SELECT process, f.text, v.text FROM fact JOIN string f ON f.id = field \
             JOIN string v ON v.id = value ORDER BY process, f.text",
            &[],
            |row| {
                let process: i64 = row.get(0)?;
                Ok(Fact {
                    process: match process {
                        MACHINE => None,
                        id => {
                            Some(ProcessId(u32::try_from(id).map_err(|_| {
                                rusqlite::Error::IntegralValueOutOfRange(0, id)
                            })?))
                        }
                    },
                    field: row.get(1)?,
                    value: row.get(2)?,
                })
            },
        )
        .map_err(|error| self.reading(&error))
    }
}

fn number(process: Option<ProcessId>) -> i64 {
    process.map_or(MACHINE, |process| i64::from(process.0))
}
