//! A recording that is open for reading, also one that is being written or was cut off: the checks of its file, its
//! version and its tables.

use std::{
    fs::{self, File, Metadata},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::Connection;

use super::{
    Error, Meta, budget, compat, create,
    decode::{LATEST, json, optional, uint},
    file::{self, Journal, Reader, page_size},
    guard::{self, Guard},
    schema,
};

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
    pub(super) path: PathBuf,
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

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// An error while reading.
    pub(super) fn reading(&self, error: &rusqlite::Error) -> Error {
        Error::reading(&self.path, error)
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
