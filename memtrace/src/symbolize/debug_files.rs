//! Searches for separate debug files: by build id, then by `.gnu_debuglink` (GDB manual, section
//! 18.3, "Debugging Information in Separate Files"). A file found must prove that it belongs to the
//! program.

use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::layout::Layout;
use crate::process_root::{LastLink, Root};

/// The folder in which distributions put debug files, in any root.
const GLOBAL: &str = "/usr/lib/debug";

/// Largest file whose checksum is computed, bytes: a sparse one of a traced process could be any size.
const MOST_LINKED: u64 = 1 << 30;

/// A debug file that belongs to the module.
pub(super) struct DebugFile {
    pub(super) file: File,
    pub(super) layout: Layout,
    /// Its content is the host administrator's, not a traced process's.
    pub(super) trusted: bool,
}

/// The debug file that a module needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// Name and CRC-32, by `.gnu_debuglink`.
    pub(crate) link: Option<(OsString, u32)>,
    /// The file itself has no debug information, so that fetching some is worth it.
    pub(crate) lacks_debug_info: bool,
}

/// How a debug file proves that it belongs to the module.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    /// The checksum that its content must have; otherwise the module's build id is in it.
    crc: Option<u32>,
    /// It is in the host's folder for debug files.
    trusted: bool,
}

impl Proof {
    /// Of a file from another machine: the files that it names are not here.
    pub(crate) const FETCHED: Proof = Proof {
        crc: None,
        trusted: false,
    };
}

/// The directories to look in.
pub(crate) struct Places {
    host: Option<Root>,
    /// [`GLOBAL`], but in tests.
    global: PathBuf,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self::with_global(Path::new(GLOBAL))
    }

    pub(super) fn with_global(global: &Path) -> Self {
        Self {
            host: Root::host().ok(),
            global: global.to_owned(),
        }
    }

    /// Has no directories: without them, the fuzzer starts no helper process.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn empty() -> Self {
        Self {
            host: None,
            global: GLOBAL.into(),
        }
    }

    /// Opens the files that may be the debug file of a module, the best one first, without reading
    /// them. Its process sees it as `path` and has the root `own`, or this process's root.
    pub(crate) fn candidates<'a>(
        &'a self,
        path: &'a Path,
        build_id: Option<&str>,
        wanted: &'a Wanted,
        own: Option<&'a Root>,
    ) -> impl Iterator<Item = (File, Proof)> + 'a {
        let host = self.host.as_ref();
        // The same build id means the same content: the host's can be trusted, so it comes first.
        let by_build_id = build_id.and_then(|id| self.by_build_id(id));
        let by_build_id = by_build_id
            .into_iter()
            .flat_map(move |path| [(host, path.clone(), None, true), (own, path, None, false)]);
        by_build_id
            .chain(self.by_link(path, wanted, own).into_iter().flatten())
            .filter_map(|(root, path, crc, trusted)| {
                let file = root?.open_file(&path, LastLink::Follow).ok()?;
                Some((file, Proof { crc, trusted }))
            })
    }

    fn by_build_id(&self, build_id: &str) -> Option<PathBuf> {
        let is_hex = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (first, rest) = build_id.split_at_checked(2)?;
        let is_one = is_hex && !rest.is_empty();
        is_one.then(|| self.global.join(format!(".build-id/{first}/{rest}.debug")))
    }

    fn by_link<'a>(
        &'a self,
        path: &Path,
        wanted: &Wanted,
        own: Option<&'a Root>,
    ) -> Option<[Candidate<'a>; 4]> {
        let (name, crc) = wanted.link.as_ref()?;
        // A name, not a path: "with any leading directory components removed".
        if Path::new(name).file_name() != Some(name) || !path.is_absolute() {
            return None;
        }
        let dir = path.parent()?;
        let below_global = self.global.join(dir.strip_prefix("/").ok()?);
        let host = self.host.as_ref();
        let crc = Some(*crc);
        Some([
            (own.or(host), dir.join(name), crc, false),
            (own.or(host), dir.join(".debug").join(name), crc, false),
            (host, below_global.join(name), crc, true),
            (own, below_global.join(name), crc, false),
        ])
    }
}

/// Root, path, checksum, whether it can be trusted.
type Candidate<'a> = (Option<&'a Root>, PathBuf, Option<u32>, bool);

/// `file`, if it is the debug file of a module with this build id (lower-case hex).
pub(super) fn proven(file: File, proof: Proof, build_id: Option<&str>) -> Option<DebugFile> {
    let layout = match proof.crc {
        Some(crc) => {
            let matches = crc32(&file).is_ok_and(|found| found == crc);
            let layout = matches.then(|| Layout::read(&file))?;
            // A file that a link leads back to itself holds nothing new.
            Some(layout).filter(|layout| layout.debug_link.is_none() && layout.is_elf())
        }
        None => {
            let layout = Layout::read(&file);
            Some(layout).filter(|of| of.build_id.is_some() && of.build_id.as_deref() == build_id)
        }
    };
    Some(DebugFile {
        layout: layout?,
        file,
        trusted: proof.trusted,
    })
}

/// Whether `file` contains this build id (lower-case hex).
pub(super) fn has_build_id(file: &File, build_id: &str) -> bool {
    Layout::read(file).build_id.as_deref() == Some(build_id)
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
