//! Errors of a recording. Every text names the path, the cause and the next step.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

use super::file;

/// Failure to write or read a recording.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{path}` exists already; choose another name or overwrite it with `--force`")]
    Exists { path: PathBuf },
    #[error(
        "`{path}` is {found}, expected a regular file; choose another name (`--force` replaces regular files only)"
    )]
    NotReplaceable { path: PathBuf, found: &'static str },
    #[error(
        "`{path}` is a recording, and `--force` replaces one only with another recording; choose another name"
    )]
    IsRecording { path: PathBuf },
    #[error(
        "`{path}` exists already and is not a recording, so it is not replaced; choose another name, or delete the file"
    )]
    IsNoRecording { path: PathBuf },
    #[error("another memtrace is recording to `{path}`; choose another name")]
    BeingRecorded { path: PathBuf },
    #[error("cannot create `{path}`: {cause}; choose another place")]
    Create { path: PathBuf, cause: String },
    #[error(
        "cannot write `{path}`: {cause}; data up to the last interval stays readable: {remedy}"
    )]
    Write {
        path: PathBuf,
        cause: String,
        remedy: &'static str,
    },
    #[error("cannot write `{path}`: an earlier write failed, nothing more is recorded")]
    FailedBefore { path: PathBuf },
    #[error(
        "`{journal}` {found}, so `{path}` cannot be read with it; if it does not belong there, delete it"
    )]
    ForeignJournal {
        path: PathBuf,
        journal: PathBuf,
        found: String,
    },
    #[error("cannot read `{path}`: {cause}")]
    Read { path: PathBuf, cause: String },
    #[error("`{path}` is not a memtrace recording: it is {found}")]
    NotARecording { path: PathBuf, found: &'static str },
    #[error(
        "`{path}` was written by a newer memtrace: it has schema version {found}, expected {expected}; read it with a newer memtrace"
    )]
    Newer {
        path: PathBuf,
        found: i64,
        expected: i64,
    },
    #[error(
        "`{path}` was written by an older memtrace: it has schema version {found}, expected {expected}; read it with the memtrace that wrote it, or record again"
    )]
    Older {
        path: PathBuf,
        found: i64,
        expected: i64,
    },
    #[error(
        "`{path}` is damaged or cut short ({cause}); if it is a copy, copy it again (with its `-journal`, if there is one)"
    )]
    Damaged { path: PathBuf, cause: String },
    #[error("`{path}` is busy: another process is writing it; try again")]
    Busy { path: PathBuf },
    #[error("time {} is outside `{path}`, expected at most {}", seconds(*.asked_ns), seconds(*.length_ns))]
    OutsideRecording {
        path: PathBuf,
        /// Since the start, nanoseconds.
        asked_ns: u64,
        /// Since the start, nanoseconds.
        length_ns: u64,
    },
}

fn seconds(ns: u64) -> String {
    format!("{:.1}s", ns as f64 / 1e9)
}

impl Error {
    /// An error of SQLite while writing.
    pub(super) fn writing(path: &Path, error: &rusqlite::Error) -> Error {
        let remedy = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => {
                "free some space or record to another file system with `-o`"
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                "make its directory writable or choose another one with `-o`"
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                "end the process that keeps it open"
            }
            _ => "check the disk, or record to another one with `-o`",
        };
        Error::Write {
            path: path.into(),
            cause: cause(error),
            remedy,
        }
    }

    /// An error of SQLite in a new file.
    pub(super) fn creating(path: &Path, error: &rusqlite::Error) -> Error {
        Error::Create {
            path: path.into(),
            cause: cause(error),
        }
    }

    /// An error when a file is opened. Recordings are private, so it often belongs to another user.
    pub(super) fn opening(path: &Path, error: &io::Error) -> Error {
        let owner = fs::metadata(path).map(|metadata| metadata.uid());
        let remedy = match (error.kind(), owner) {
            (ErrorKind::PermissionDenied, Ok(uid)) => {
                let owner = match uid {
                    0 => "root".to_owned(),
                    uid => format!("user {uid}"),
                };
                format!("; it belongs to {owner}; run as its owner, or chown it")
            }
            _ => String::new(),
        };
        Error::Read {
            path: path.into(),
            cause: format!("{error}{remedy}"),
        }
    }

    /// An error of SQLite while reading.
    pub(super) fn reading(path: &Path, error: &rusqlite::Error) -> Error {
        let path = path.to_path_buf();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Error::NotARecording {
                path,
                found: "not an SQLite database",
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy { path },
            Some(ErrorCode::OperationInterrupted) => Error::Damaged {
                path,
                cause: "reading it takes more time or memory than any recording of its size".into(),
            },
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory,
            ) => Error::Read {
                path,
                cause: error.to_string(),
            },
            // Also a table, column or value that does not match the schema.
            _ => Error::Damaged {
                path,
                cause: error.to_string(),
            },
        }
    }
}

/// The system's own words, if it has some.
fn cause(error: &rusqlite::Error) -> String {
    let system = match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => file::last_error(),
        _ => None,
    };
    match system {
        Some(error) if error.raw_os_error() == Some(libc::EFBIG) => {
            "it has reached the largest size that a file may have here (`ulimit -f`)".into()
        }
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_private_file_is_named() {
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        let error = Error::opening(Path::new("/etc/shadow"), &denied).to_string();
        assert!(
            error.contains("; it belongs to root; run as its owner, or chown it"),
            "{error}"
        );
        let missing = io::Error::from(ErrorKind::NotFound);
        let error = Error::opening(Path::new("/etc/shadow"), &missing).to_string();
        assert!(!error.contains("belongs to"), "{error}");
    }
}
