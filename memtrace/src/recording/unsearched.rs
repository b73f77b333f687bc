//! Why the holders of blocks are not known: of those of a whole process (the table `unsearched`), and of some that were
//! examined (`holders.unknown`).

use rusqlite::{Connection, params};

use super::{Error, Recording, Writer, decode::unexpected};
use crate::{hash::FastMap, ledger::ProcessId};

/// Why a process that grew was not searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unsearched {
    NotRequested,
    /// The user did not want to wait.
    CutShort,
    Failed(String),
}

/// Why a search did not find the holders of some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// References on the paths to them changed while they were read.
    Changing,
    /// Words that may or may not be references lead to them.
    Unclear,
    /// Words that have their addresses below marks in the upper bits may be references to them.
    Marked,
    /// No pointer to them was found, but an allocator whose blocks are not known may have freed them since.
    OtherAllocator,
    /// They are free again, or of an allocator whose blocks are not known.
    Gone,
    /// No object in these arenas was reached.
    NoObject,
}

impl Unknown {
    const ALL: [Self; 6] = [
        Self::Changing,
        Self::Unclear,
        Self::Marked,
        Self::OtherAllocator,
        Self::Gone,
        Self::NoObject,
    ];

    /// As in recordings.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Changing => "changing",
            Self::Unclear => "unclear",
            Self::Marked => "marked",
            Self::OtherAllocator => "other-allocator",
            Self::Gone => "gone",
            Self::NoObject => "no-object",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

impl Writer {
    /// Adds a process that was not searched.
    pub(crate) fn unsearched(&mut self, process: ProcessId, why: &Unsearched) -> Result<(), Error> {
        let (name, error) = match why {
            Unsearched::NotRequested => ("not-requested", None),
            Unsearched::CutShort => ("cut-short", None),
            Unsearched::Failed(error) => ("failed", Some(error)),
        };
        self.write(|writer| writer.put("unsearched", &[params![process.0, name, error]]))
    }
}

impl Recording {
    /// Processes that grew and were not searched. Those that had ended are not among them.
    pub(crate) fn unsearched(&self) -> Result<FastMap<ProcessId, Unsearched>, Error> {
        rows(self.connection()).map_err(|error| self.reading(&error))
    }
}

fn rows(connection: &Connection) -> rusqlite::Result<FastMap<ProcessId, Unsearched>> {
    connection
        .prepare("SELECT process, why, error FROM unsearched ORDER BY process")?
        .query_map([], |row| {
            let why = match row.get_ref(1)?.as_str()? {
                "not-requested" => Unsearched::NotRequested,
                "cut-short" => Unsearched::CutShort,
                "failed" => {
                    Unsearched::Failed(row.get::<_, Option<String>>(2)?.unwrap_or_default())
                }
                _ => return Err(unexpected(1, "why")),
            };
            Ok((ProcessId(row.get(0)?), why))
        })?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_as_it_was_written() {
        for why in Unknown::ALL {
            assert_eq!(Unknown::named(why.name()), Some(why));
        }
        assert_eq!(Unknown::named("none"), None);
    }
}
