//! Output files: exclusive, private from their first moment, and owned by the user who called sudo.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use super::Error;

/// Makes `path` a new empty file of mode 0600, owned by the invoking user under sudo. With `force`
/// it takes the place of a regular file in one step, so a failure leaves the old one as it was.
///
/// # Errors
///
/// When something is at `path` already (with `force`: something other than a regular file), or
/// when it cannot be created.
pub(crate) fn create_private(path: &Path, force: bool) -> Result<File, Error> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(Error::NotReplaceable {
                path: path.into(),
                found: describe(metadata.file_type()),
            });
        }
        Ok(_) if !force => return Err(Error::Exists { path: path.into() }),
        Ok(_) => return replace(path).map_err(|error| cannot_create(path, &error)),
        // Any other failure shows again, and with its cause, when the file is opened.
        Err(_) => {}
    }
    let file = open_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::Exists { path: path.into() },
        _ => cannot_create(path, &error),
    })?;
    give_to_invoker(&file).map_err(|error| cannot_create(path, &error))?;
    Ok(file)
}

fn replace(path: &Path) -> io::Result<File> {
    let new = with_suffix(path, &format!(".new-{}", std::process::id()));
    let file = open_new(&new)?;
    if let Err(error) = give_to_invoker(&file).and_then(|()| fs::rename(&new, path)) {
        return fs::remove_file(&new).and(Err(error));
    }
    // A journal of the old file must never be rolled back into the new one.
    match fs::remove_file(with_suffix(path, "-journal")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(file),
    }
}

fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
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
