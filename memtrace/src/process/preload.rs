//! The library of `memtrace record --preload`: on disk, in the environment, and in a process.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::execution;
use crate::frames::allocators::PRELOADED;

/// The variable in which the loader finds libraries to load first (ld.so(8)).
pub(crate) const VARIABLE: &str = "LD_PRELOAD";

/// For programs of all users. Nothing is removed from it: processes that outlive memtrace start programs, too.
pub(crate) const FOLDER: &str = "/var/cache/memtrace";

/// Writes a library to the folder, unless it is there, and gives its path.
///
/// # Errors
/// It cannot be written.
pub(crate) fn install(library: &[u8]) -> io::Result<PathBuf> {
    install_in(Path::new(FOLDER), library)
}

fn install_in(folder: &Path, library: &[u8]) -> io::Result<PathBuf> {
    let digest = Sha256::digest(library);
    let digest: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let path = folder.join(format!("{PRELOADED}-{digest}.so"));
    if fs::read(&path).is_ok_and(|found| found == library) {
        return Ok(path);
    }
    if !folder.is_dir() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder)?;
        // Whatever the umask is.
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    // A program that starts meanwhile finds all of it or nothing.
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(library)?;
    file.as_file()
        .set_permissions(Permissions::from_mode(0o644))?;
    file.persist(&path)?;
    Ok(path)
}

/// The variable's value for a command: its present one, and then the library. An allocator among the others keeps its
/// place.
pub(crate) fn value(library: &Path) -> OsString {
    let mut value = env::var_os(VARIABLE).unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

/// A value of the variable without the library; `None` if nothing else is in it.
pub(crate) fn without(value: &str) -> Option<String> {
    if !entries(value).any(is_library) {
        return Some(value.to_owned());
    }
    let others: Vec<&str> = entries(value).filter(|entry| !is_library(entry)).collect();
    (!others.is_empty()).then(|| others.join(":"))
}

/// The paths in a value of the variable.
fn entries(value: &str) -> impl Iterator<Item = &str> {
    value.split([':', ' ']).filter(|entry| !entry.is_empty())
}

/// Whether a file is the library, or one of another version, by its name.
pub(crate) fn is_library(path: impl AsRef<Path>) -> bool {
    let name = path.as_ref().file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(PRELOADED))
}

/// Whether the loader will load the library in a process that has just begun a program.
pub(crate) fn is_expected(tgid: u32) -> bool {
    let Ok(environ) = fs::read(format!("/proc/{tgid}/environ")) else {
        return false;
    };
    let prefix = format!("{VARIABLE}=");
    // The loader takes the first of several.
    let value = environ
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(prefix.as_bytes()))
        .map(String::from_utf8_lossy);
    let Some(value) = value else {
        return false;
    };
    let mut entries = entries(&value);
    let Some(library) = entries.find(|entry| is_library(entry)) else {
        return false;
    };
    let seen = format!("/proc/{tgid}/root{library}");
    Path::new(&seen).exists() && has_obedient_loader(tgid)
}

/// Whether a process's program has a loader, and that obeys the variable: not where the program has more rights than its
/// user.
fn has_obedient_loader(tgid: u32) -> bool {
    let Ok(auxv) = fs::read(format!("/proc/{tgid}/auxv")) else {
        return false;
    };
    let entry = |key| execution::entry(&auxv, key).unwrap_or(0);
    entry(libc::AT_BASE) != 0 && entry(libc::AT_SECURE) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_written_once_for_all_users() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache/memtrace");
        let path = install_in(&folder, b"a library").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o755, 0o644));
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(install_in(&folder, b"a library").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
        assert_ne!(install_in(&folder, b"another").unwrap(), path);
        fs::write(&path, b"damaged").unwrap();
        install_in(&folder, b"a library").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"a library");
        assert!(is_library(&path));
    }

    #[test]
    fn a_value_is_the_same_without_the_library() {
        for (value, expected) in [
            ("/x/libjemalloc.so.2", Some("/x/libjemalloc.so.2")),
            ("/c/libmemtrace_preload-1.so", None),
            ("/x/a.so:/c/libmemtrace_preload-1.so", Some("/x/a.so")),
            ("/x/a.so /x/b.so", Some("/x/a.so /x/b.so")),
            ("", Some("")),
        ] {
            assert_eq!(without(value).as_deref(), expected, "{value}");
        }
    }
}
