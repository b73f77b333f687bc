//! Compiled tables on disk, by build id: large files take a second to compile.
//!
//! Everything is best effort: on any failure the file is compiled again.
//!
//! The folder belongs to the user who typed the command, also under sudo, so that they can delete
//! it and use it without sudo. All access is with that user's rights, so a folder that they arrange
//! leads root nowhere they could not go themselves. A table that they forge makes their own report
//! wrong, and nothing else: an entry is checked until no lookup in it can go astray. Files that
//! other users could have written are not read; the caller ensures that a file cannot pass for
//! another one (`collect/tables.rs`).

mod entry;
mod user;

use super::Table;
use crate::own_folder;
use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};
use user::User;

/// Limit for all entries together, bytes.
const LIMIT: u64 = 512 << 20;

/// Limit for one entry, bytes: several times that of the largest libraries.
const MAX_ENTRY: u64 = 64 << 20;

/// Words of the smallest table worth keeping. Smaller ones compile in under 2 ms; reading and
/// hashing a file would save little of that.
const MIN_WORDS: usize = 1 << 14;

const SUFFIX: &str = ".unwind";

/// A folder of compiled tables.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    user: User,
    limit: u64,
}

impl Cache {
    /// The invoking user's: `memtrace/unwind` in `$XDG_CACHE_HOME` or `~/.cache` (XDG Base Directory
    /// Specification 0.8), under sudo in the `~/.cache` of the user who called it.
    pub(crate) fn open() -> Option<Cache> {
        let user = User::invoking();
        let folder = user.cache_home()?.join("memtrace/unwind");
        Cache::of(&folder, user)
    }

    /// The one in `folder`, which is made if it is missing.
    #[cfg(test)]
    fn at(folder: &Path) -> Option<Cache> {
        Cache::of(folder, User::invoking())
    }

    fn of(folder: &Path, user: User) -> Option<Cache> {
        let prepared = user.run(|| {
            match user.is_other() {
                true => DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(folder)?,
                false => own_folder::make(folder)?,
            }
            check_owner(&fs::symlink_metadata(folder)?, &user, Metadata::is_dir)
        });
        if let Err(error) = prepared {
            match error.kind() {
                ErrorKind::PermissionDenied => {
                    tracing::warn!("no cache of unwind tables: {error}; set XDG_CACHE_HOME");
                }
                _ => {
                    tracing::debug!(folder = %folder.display(), %error, "no cache of unwind tables")
                }
            }
            return None;
        }
        Some(Cache {
            folder: folder.into(),
            user,
            limit: LIMIT,
        })
    }

    /// The table of the file with this build id, lower-case hex; `None` if there is none, or none to trust.
    pub(crate) fn get(&self, build_id: &str) -> Option<Table> {
        let path = self.path(build_id)?;
        let bytes = match self.user.run(|| self.read(&path)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "cannot read an unwind table");
                return None;
            }
        };
        let table = entry::decode(&bytes, build_id);
        if table.is_none() {
            tracing::debug!(path = %path.display(), "a cached unwind table is damaged");
        }
        table
    }

    /// Keeps a table, unless it is so small that compiling it again is as fast.
    pub(crate) fn put(&self, build_id: &str, table: &Table) {
        let Some(path) = self.path(build_id) else {
            return;
        };
        let bytes = entry::encode(table, build_id);
        let size = bytes.len() as u64;
        if table.words.len() < MIN_WORDS || size > MAX_ENTRY.min(self.limit) {
            return;
        }
        let written = self.user.run(|| {
            self.make_room(size)?;
            write(&path, &bytes)
        });
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "cannot keep an unwind table");
        }
    }

    /// `None` if it is not a build id: it becomes a file's name.
    fn path(&self, build_id: &str) -> Option<PathBuf> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let valid = (8..=128).contains(&build_id.len()) && build_id.bytes().all(hex);
        let name = format!("{build_id}-{}{SUFFIX}", entry::VERSION);
        valid.then(|| self.folder.join(name))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = OpenOptions::new()
            .read(true)
            // Opening a pipe must not wait for a writer.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        let metadata = file.metadata()?;
        check_owner(&metadata, &self.user, Metadata::is_file)?;
        if metadata.len() > MAX_ENTRY {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_ENTRY).read_to_end(&mut bytes)?;
        // Entries that are used are the last to be evicted; if this fails, they are not.
        file.set_modified(SystemTime::now()).ok();
        Ok(bytes)
    }

    /// Removes the entries that were not used for longest until `size` more bytes fit.
    fn make_room(&self, size: u64) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(SUFFIX) {
                let metadata = entry.metadata()?;
                entries.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, len, _)| len).sum();
        for (_, len, path) in entries {
            if total + size <= self.limit {
                break;
            }
            fs::remove_file(path)?;
            total -= len;
        }
        Ok(())
    }
}

/// # Errors
/// Unless it is of the wanted kind, belongs to the user, and is writable by no one else.
fn check_owner(
    metadata: &Metadata,
    user: &User,
    kind: impl Fn(&Metadata) -> bool,
) -> io::Result<()> {
    if kind(metadata) && metadata.uid() == user.uid && metadata.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// In one step: a reader sees a whole entry or none.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}{SUFFIX}", std::process::id()));
    // Left by a process of the same number that was killed.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file: File| file.write_all(bytes))
        .and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| {
        fs::remove_file(&new).ok();
    })
}

#[cfg(test)]
mod tests;
