//! Output files: exclusive, private from their first moment, and owned by the user who called sudo.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use super::{Error, file, schema};

/// Makes `path` a new empty file for a recording, of mode 0600, owned by the invoking user under sudo. With `force` it
/// takes the place of another recording in one step, so a failure leaves the old one as it was. It is locked: no other
/// memtrace replaces it as long as the result is open.
///
/// # Errors
///
/// When something is at `path` already (with `force`: something other than a recording or an empty file, or a recording
/// in progress), or when it cannot be created.
pub(super) fn create_recording(path: &Path, force: bool) -> Result<File, Error> {
    let file = match is_free_for_recording(path, force)? {
        true => create(path)?,
        false => replace(path, b"").map_err(|error| cannot_create(path, &error))?,
    };
    // Not every file system has locks.
    let _ = file.try_lock();
    Ok(file)
}

/// Whether [`create_recording`] can be expected to work later; an existing file is left as it is.
///
/// # Errors
/// As [`create_recording`].
pub(crate) fn may_record(path: &Path, force: bool) -> Result<(), Error> {
    may_create(path, is_free_for_recording(path, force)?)
}

/// The same for [`write_private`].
///
/// # Errors
/// As [`write_private`].
pub(crate) fn may_write(path: &Path, force: bool) -> Result<(), Error> {
    may_create(path, is_free_for_other(path, force)?)
}

fn may_create(path: &Path, free: bool) -> Result<(), Error> {
    if free {
        create(path)?;
        // It is empty.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Writes a new file other than a recording, of mode 0600, owned by the invoking user under sudo. A failure leaves no file,
/// or with `force` the old one.
///
/// # Errors
///
/// When something is at `path` already (with `force`: something other than a regular file, or a recording), or when it
/// cannot be written.
pub(crate) fn write_private(path: &Path, force: bool, content: &[u8]) -> Result<(), Error> {
    if !is_free_for_other(path, force)? {
        return match replace(path, content) {
            Ok(_) => Ok(()),
            Err(error) => Err(cannot_create(path, &error)),
        };
    }
    let written = create(path)?.write_all(content);
    written.map_err(|error| {
        let _ = fs::remove_file(path);
        cannot_create(path, &error)
    })
}

/// As [`is_free`]. If the name after `-o` is forgotten, the program to trace takes its place, and must not be
/// overwritten.
fn is_free_for_recording(path: &Path, force: bool) -> Result<bool, Error> {
    let full = fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    if full && !is_recording(path)? {
        return Err(Error::IsNoRecording { path: path.into() });
    }
    is_free(path, force)
}

/// As [`is_free`], for files other than recordings.
fn is_free_for_other(path: &Path, force: bool) -> Result<bool, Error> {
    let free = is_free(path, force)?;
    if !free && is_recording(path)? {
        return Err(Error::IsRecording { path: path.into() });
    }
    Ok(free)
}

/// True if nothing is at `path`, false if what is there may be replaced.
fn is_free(path: &Path, force: bool) -> Result<bool, Error> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(Error::NotReplaceable {
            path: path.into(),
            found: describe(metadata.file_type()),
        }),
        Ok(_) if !force => Err(Error::Exists { path: path.into() }),
        Ok(_) if is_locked(path) => Err(Error::BeingRecorded { path: path.into() }),
        Ok(_) => Ok(false),
        // Any other failure shows again, and with its cause, when the file is opened.
        Err(_) => Ok(true),
    }
}

fn is_locked(path: &Path) -> bool {
    let file = file::open(path, libc::O_NOFOLLOW);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

/// By the header of an SQLite database (<https://sqlite.org/fileformat.html>, 1.3).
fn is_recording(path: &Path) -> Result<bool, Error> {
    let mut header = [0; 72];
    let read =
        file::open(path, libc::O_NOFOLLOW).and_then(|file| file.read_exact_at(&mut header, 0));
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        read => read.map_err(|error| Error::opening(path, &error))?,
    }
    let application = schema::APPLICATION_ID as u32;
    Ok(header.starts_with(b"SQLite format 3\0") && header.ends_with(&application.to_be_bytes()))
}

/// Makes `path` a new empty file, of mode 0600, owned by the invoking user under sudo.
///
/// # Errors
///
/// When something is at `path` already, or when it cannot be created.
pub(super) fn create(path: &Path) -> Result<File, Error> {
    let file = open_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::Exists { path: path.into() },
        _ => cannot_create(path, &error),
    })?;
    give_to_invoker(&file).map_err(|error| cannot_create(path, &error))?;
    sync_folder(path);
    Ok(file)
}

/// Puts a new file with this content in the place of another one.
fn replace(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut new = tempfile::Builder::new()
        .prefix(".memtrace-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder(path))?;
    new.write_all(content)?;
    give_to_invoker(new.as_file())?;
    let file = new.persist(path)?;
    sync_folder(path);
    // Other SQLite programs would roll a journal of the old file back into the new one.
    let _ = fs::remove_file(with_suffix(path, "-journal"));
    Ok(file)
}

/// The folder that `path` is in.
fn folder(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Makes the name of a new file durable. Not every file system can.
fn sync_folder(path: &Path) {
    let _ = File::open(folder(path)).and_then(|folder| folder.sync_all());
}

fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Under sudo the file belongs to the user who typed the command.
fn give_to_invoker(file: &File) -> io::Result<()> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(());
    }
    let id = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    match (id("SUDO_UID"), id("SUDO_GID")) {
        (Some(uid), Some(gid)) => fchown(file, Some(uid), Some(gid)),
        _ => Ok(()),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn cannot_create(path: &Path, error: &io::Error) -> Error {
    Error::Create {
        path: path.into(),
        cause: error.to_string(),
    }
}

fn describe(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else {
        "a device, pipe or socket"
    }
}
