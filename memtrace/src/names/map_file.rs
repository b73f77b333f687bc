//! The file of a process's perf map: which one is the process's own, and whether it has changed. Its content is read
//! elsewhere.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use procfs::process::Process;

use crate::process_root::{LastLink, Root};

/// The reason why a process has no map that can be trusted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
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

/// The map's file as it was last seen.
pub(super) struct MapFile {
    /// As the process sees it.
    pub(super) path: PathBuf,
    pub(super) file: File,
    root: Root,
    uid: u32,
    /// Since the epoch.
    process_began: Duration,
    version: Version,
}

/// The version of a map: inode, size, time of the last change (s, ns).
type Version = (u64, u64, i64, i64);

impl MapFile {
    /// Opens the map of process `tgid`.
    ///
    /// # Errors
    /// The process has ended; there is no map, as for most programs; or it is not the process's own.
    pub(super) fn open(tgid: u32) -> Result<Self, Error> {
        let of_process = |source| Error::Process { tgid, source };
        let process = Process::new(i32::try_from(tgid).unwrap_or(-1)).map_err(of_process)?;
        let status = process.status().map_err(of_process)?;
        let pid = status
            .nspid
            .and_then(|pids| pids.last().copied())
            .unwrap_or(process.pid);
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let root = Root::of_process(tgid).map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
        let began = process.stat().map_err(of_process)?.starttime / procfs::ticks_per_second();
        let booted = procfs::boot_time_secs().map_err(of_process)?;
        let process_began = Duration::from_secs(booted + began);
        let (file, version) = open(&root, &path, status.euid, process_began)?;
        Ok(Self {
            path,
            file,
            root,
            uid: status.euid,
            process_began,
            version,
        })
    }

    /// Opens the file again if it has changed since, and returns whether it was rewritten, not only added to.
    pub(super) fn reopen(&mut self) -> Option<bool> {
        // The open file serves on when the process has ended or removed the name.
        let opened = open(&self.root, &self.path, self.uid, self.process_began);
        let (file, version) = match opened {
            Ok(opened) => opened,
            Err(_) => {
                let file = self.file.try_clone().ok()?;
                let version = version(&file.metadata().ok()?);
                (file, version)
            }
        };
        if version == self.version {
            return None;
        }
        let (inode, size, ..) = self.version;
        let (new_inode, new_size, ..) = version;
        self.file = file;
        self.version = version;
        Some(new_inode != inode || new_size <= size)
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

#[cfg(test)]
mod tests;
