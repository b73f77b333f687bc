//! Searches for separate debug files: by build id, then by `.gnu_debuglink` (GDB manual, section
//! 18.3, "Debugging Information in Separate Files"). A file found must prove that it belongs to the
//! program.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::layout::{Layout, MOST_UNCOMPRESSED};
use crate::process_root::{LastLink, Root};

/// The folder in which distributions put debug files, in any root.
const GLOBAL: &str = "/usr/lib/debug";

/// Largest file whose checksum is computed, bytes: a sparse one of a traced process could be any
/// size, and reading delays the names of everything else. The same limit as for unpacked sections.
const MOST_LINKED: u64 = MOST_UNCOMPRESSED;

/// A debug file that belongs to the module.
pub(super) struct DebugFile {
    pub(super) file: File,
    pub(super) layout: Layout,
    /// Its content is the host administrator's, not a traced process's.
    pub(super) trusted: bool,
}

/// The module whose debug file is wanted.
pub(super) struct Wanted<'a> {
    /// Lower-case hex.
    pub(super) build_id: Option<&'a str>,
    pub(super) link: Option<(&'a OsStr, u32)>,
    /// The file's path as its process sees it.
    pub(super) path: &'a Path,
}

/// The directories to look in.
pub(super) struct Places {
    host: Option<Root>,
    /// [`GLOBAL`], but in tests.
    global: PathBuf,
}

impl Places {
    pub(super) fn new() -> Self {
        Self::with_global(Path::new(GLOBAL))
    }

    pub(super) fn with_global(global: &Path) -> Self {
        Self {
            host: Root::host().ok(),
            global: global.to_owned(),
        }
    }

    /// The debug file of a module whose process has the root `own`, or this process's root.
    pub(super) fn find(&self, wanted: &Wanted, own: Option<&Root>) -> Option<DebugFile> {
        // The same build id means the same content: the host's can be trusted, so it comes first.
        let roots = [(self.host.as_ref(), true), (own, false)];
        roots
            .into_iter()
            .filter_map(|(root, trusted)| Some((root?, trusted)))
            .find_map(|(root, trusted)| self.by_build_id(wanted.build_id?, root, trusted))
            .or_else(|| self.by_link(wanted, own))
    }

    fn by_build_id(&self, build_id: &str, root: &Root, trusted: bool) -> Option<DebugFile> {
        let is_hex = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (first, rest) = build_id.split_at_checked(2)?;
        if !is_hex || rest.is_empty() {
            return None;
        }
        let path = self.global.join(format!(".build-id/{first}/{rest}.debug"));
        let file = root.open_file(&path, LastLink::Follow).ok()?;
        of_build_id(file, build_id, trusted)
    }

    fn by_link(&self, wanted: &Wanted, own: Option<&Root>) -> Option<DebugFile> {
        let (name, crc) = wanted.link?;
        // A name, not a path: "with any leading directory components removed".
        if Path::new(name).file_name() != Some(name) || !wanted.path.is_absolute() {
            return None;
        }
        let dir = wanted.path.parent()?;
        let below_global = self.global.join(dir.strip_prefix("/").ok()?);
        let host = self.host.as_ref();
        let candidates = [
            (own.or(host), dir.to_owned(), false),
            (own.or(host), dir.join(".debug"), false),
            (host, below_global.clone(), true),
            (own, below_global, false),
        ];
        candidates.into_iter().find_map(|(root, dir, trusted)| {
            let file = root?.open_file(&dir.join(name), LastLink::Follow).ok()?;
            let matches = crc32(&file).is_ok_and(|found| found == crc);
            let layout = matches.then(|| Layout::read(&file))?;
            // A file that a link leads back to itself holds nothing new.
            let new = layout.debug_link.is_none() && layout.is_elf();
            new.then_some(DebugFile {
                file,
                layout,
                trusted,
            })
        })
    }
}

/// `file`, if it contains this build id (lower-case hex).
pub(super) fn of_build_id(file: File, build_id: &str, trusted: bool) -> Option<DebugFile> {
    let layout = Layout::read(&file);
    (layout.build_id.as_deref() == Some(build_id)).then_some(DebugFile {
        file,
        layout,
        trusted,
    })
}

fn crc32(file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MOST_LINKED {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    // It may grow while it is read.
    let mut file = file.take(MOST_LINKED);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            len => hasher.update(buffer.get(..len).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    #[test]
    fn the_checksum_of_a_file_of_any_size_is_not_computed() {
        let file = file::of_bytes(b"").unwrap();
        assert_eq!(crc32(&file).unwrap(), 0);
        file.set_len(MOST_LINKED + 1).unwrap();
        let error = crc32(&file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
