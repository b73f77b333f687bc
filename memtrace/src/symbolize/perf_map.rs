//! Names of generated code from the map that its runtime writes (Linux,
//! tools/perf/Documentation/jit-interface.txt): `/tmp/perf-PID.map`, a line
//! `START SIZE NAME` for each function, both numbers hexadecimal.

use std::{
    collections::BTreeMap,
    fs::{File, Metadata},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use procfs::process::Process;

use crate::frames::{Cause, Frame};
use crate::process_root::{LastLink, Root};

/// Most that is read of a map, bytes.
const MOST: u64 = 256 << 20;

/// The reason why a process has no map that can be trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot inspect process {tgid}: {source}")]
    Process {
        tgid: u32,
        source: procfs::ProcError,
    },
    #[error("cannot open `{path}`: {source}", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("`{path}` belongs to user {uid}, not to the process's", path = path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("`{path}` was written before the process began", path = path.display())]
    Stale { path: PathBuf },
}

/// The map of one process.
pub(crate) struct PerfMap {
    /// As the process sees it.
    path: PathBuf,
    root: Root,
    uid: u32,
    /// Since the epoch.
    process_began: Duration,
    file: File,
    version: Version,
    /// Bytes of whole lines taken in so far.
    read: u64,
    functions: Functions,
}

/// The version of a map: inode, size, time of the last change (s, ns).
type Version = (u64, u64, i64, i64);

impl PerfMap {
    /// Opens and reads the map of process `tgid`.
    ///
    /// # Errors
    /// The process has ended; there is no map, as for most programs; or it is not the process's own.
    pub(crate) fn load(tgid: u32) -> Result<Self, Error> {
        let of_process = |source| Error::Process { tgid, source };
        let process = Process::new(i32::try_from(tgid).unwrap_or(-1)).map_err(of_process)?;
        let status = process.status().map_err(of_process)?;
        let pid = status
            .nspid
            .and_then(|pids| pids.last().copied())
            .unwrap_or(process.pid);
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let root = Root::of_process(tgid);
        let root = root.map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
        let began = process.stat().map_err(of_process)?.starttime / procfs::ticks_per_second();
        let booted = procfs::boot_time_secs().map_err(of_process)?;
        let (file, version) = open(
            &root,
            &path,
            status.euid,
            Duration::from_secs(booted + began),
        )?;
        let mut map = Self {
            path,
            root,
            uid: status.euid,
            process_began: Duration::from_secs(booted + began),
            file,
            version,
            read: 0,
            functions: Functions::default(),
        };
        map.read_on();
        Ok(map)
    }

    /// The function at an absolute address of the process. A map that has changed is read again
    /// if the address is new.
    pub(crate) fn lookup(&mut self, abs_addr: u64) -> Option<Arc<str>> {
        let known = self.functions.find(abs_addr);
        known.or_else(|| {
            self.refresh();
            self.functions.find(abs_addr)
        })
    }

    /// The frame of generated code at an absolute address (of a return address, the address minus one).
    pub(crate) fn frame(&mut self, abs_addr: u64) -> Frame {
        let path = self.path.display().to_string();
        match self.lookup(abs_addr) {
            Some(name) => Frame {
                function: Some(name.to_string()),
                // As perf names it.
                module: Some(path),
                unresolved: None,
                ..Frame::unknown(abs_addr, Cause::NoPerfMap)
            },
            None => Frame::unknown(abs_addr, Cause::NotInPerfMap(path.into())),
        }
    }

    /// Reads additions to the map; true if it has changed.
    pub(crate) fn refresh(&mut self) -> bool {
        // The open file serves on when the process has ended or removed the name.
        if let Ok((file, version)) = open(&self.root, &self.path, self.uid, self.process_began) {
            self.file = file;
            if version == self.version {
                return false;
            }
            let (inode, size, ..) = self.version;
            let (new_inode, new_size, ..) = version;
            if new_inode != inode || new_size <= size {
                // Not appended to, but rewritten.
                self.functions = Functions::default();
                self.read = 0;
            }
            self.version = version;
        }
        let before = self.read;
        self.read_on();
        self.read != before
    }

    /// Takes in the whole lines that were not yet read.
    fn read_on(&mut self) {
        let mut bytes = Vec::new();
        let left = MOST.saturating_sub(self.read);
        let result = self
            .file
            .seek(SeekFrom::Start(self.read))
            .and_then(|_| (&self.file).take(left).read_to_end(&mut bytes));
        if let Err(error) = result {
            tracing::debug!("cannot read `{}`: {error}", self.path.display());
        }
        // The runtime may be in the middle of a line.
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = end.and_then(|end| bytes.get(..=end)).unwrap_or_default();
        self.read += whole.len() as u64;
        self.functions.add(whole);
    }
}

fn open(
    root: &Root,
    path: &Path,
    uid: u32,
    process_began: Duration,
) -> Result<(File, Version), Error> {
    let failed = |source| Error::Open {
        path: path.to_owned(),
        source,
    };
    let file = root.open_file(path, LastLink::Refuse).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if ![uid, 0].contains(&metadata.uid()) {
        return Err(Error::Foreign {
            path: path.to_owned(),
            uid: metadata.uid(),
        });
    }
    // Left behind by another process with this pid. The begin is known to a second.
    let changed = metadata.modified().map_err(failed)?;
    let changed = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
    if changed + Duration::from_secs(1) < process_began {
        return Err(Error::Stale {
            path: path.to_owned(),
        });
    }
    Ok((file, version(&metadata)))
}

fn version(metadata: &Metadata) -> Version {
    (
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

/// Functions by their first address: (one past the last, name). They do not overlap.
#[derive(Default)]
struct Functions(BTreeMap<u64, (u64, Arc<str>)>);

impl Functions {
    fn find(&self, abs_addr: u64) -> Option<Arc<str>> {
        let (_, (end, name)) = self.0.range(..=abs_addr).next_back()?;
        (abs_addr < *end).then(|| Arc::clone(name))
    }

    /// Adds the lines of a map; malformed ones are skipped.
    fn add(&mut self, lines: &[u8]) {
        let lines = lines.split(|byte| *byte == b'\n');
        for (start, end, name) in lines.filter_map(parse) {
            self.insert(start, end, name);
        }
    }

    /// Newer entries replace those they overlap: code memory is reused.
    fn insert(&mut self, start: u64, end: u64, name: Arc<str>) {
        let overlapped: Vec<u64> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, (old_end, _))| *old_end > start)
            .map(|(old_start, _)| *old_start)
            .collect();
        for old_start in overlapped {
            let Some((old_end, old_name)) = self.0.remove(&old_start) else {
                continue;
            };
            if old_end > end {
                self.0.insert(end, (old_end, Arc::clone(&old_name)));
            }
            if old_start < start {
                self.0.insert(old_start, (start, old_name));
            }
        }
        self.0.insert(start, (end, name));
    }
}

/// First address, one past the last, name.
fn parse(line: &[u8]) -> Option<(u64, u64, Arc<str>)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(3, ' ');
    let start = hex(fields.next()?)?;
    let size = hex(fields.next()?)?;
    let name = fields.next()?.trim();
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then(|| (start, end, name.into()))
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests;
