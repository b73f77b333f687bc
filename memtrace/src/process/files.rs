//! Files behind mappings, opened by inode and not by name: for a process in another mount
//! namespace, and for a file that was deleted or replaced since it was mapped, this opens the very
//! file that is being executed.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::maps::{FileId, Mapping};
use crate::{
    file,
    process_root::{self, LastLink, Memory, Root},
};

/// Why a mapped file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The mapping has just changed.
    #[error("another file is mapped there now")]
    Replaced,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A mapped file, kept open.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    pub key: FileId,
    /// The path as the process sees it: to show, not to open.
    pub path: PathBuf,
    pub file: File,
}

impl ModuleFile {
    /// Opens the file behind `mapping` of process `pid`.
    ///
    /// # Errors
    /// [`OpenError::Replaced`], or as [`open_mapped`].
    pub(crate) fn open(pid: u32, mapping: &Mapping) -> Result<ModuleFile, OpenError> {
        let file = open_mapped(pid, mapping)?;
        if file.metadata()?.ino() != mapping.ino && !still_maps(pid, mapping) {
            return Err(OpenError::Replaced);
        }
        let (Some(key), Some(path)) = (mapping.file(), mapping.path.clone()) else {
            return Err(no_file().into());
        };
        Ok(ModuleFile { key, path, file })
    }

    /// A copy of the contents of `mapping` of process `pid`, for one without a file (the vDSO).
    ///
    /// # Errors
    /// The process is gone, or its memory cannot be read.
    pub(crate) fn of_memory(pid: u32, mapping: &Mapping) -> io::Result<ModuleFile> {
        let mut bytes = vec![0; usize::try_from(mapping.len()).map_err(io::Error::other)?];
        Memory::of(pid)?.read_exact_at(&mut bytes, mapping.start)?;
        Self::of_bytes(mapping, &bytes)
    }

    /// As [`ModuleFile::of_memory`], for unreadable memory: these bytes instead.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn of_bytes(mapping: &Mapping, bytes: &[u8]) -> io::Result<ModuleFile> {
        Ok(ModuleFile {
            key: FileId { dev: 0, ino: 0 },
            path: mapping.path.clone().unwrap_or_default(),
            file: file::of_bytes(bytes)?,
        })
    }

    /// From its current contents, as the kernel side makes it (see
    /// `memtrace_common::process::FileKey`).
    ///
    /// # Errors
    /// Its file system does not answer.
    pub(crate) fn version(&self) -> io::Result<u32> {
        let metadata = self.file.metadata()?;
        Ok(memtrace_common::process::FileKey::version(
            metadata.mtime().cast_unsigned(),
            metadata.mtime_nsec() as u32,
        ))
    }
}

/// Whether the mapping is there as it was: some file systems give stat another inode than maps shows.
fn still_maps(pid: u32, mapping: &Mapping) -> bool {
    super::maps::read(pid).is_ok_and(|now| now.contains(mapping))
}

/// Opens the file behind `mapping` of process `pid`.
///
/// `/proc/PID/map_files` leads to the exact inode, but needs CAP_SYS_ADMIN or
/// CAP_CHECKPOINT_RESTORE in the initial user namespace. Without it the name is looked up in the
/// process's root, and refused unless its inode is the mapped one. The device is not compared: stat
/// and maps differ on some file systems.
///
/// # Errors
/// `InvalidInput` if there is no regular file behind the mapping (opening a device can have
/// effects), `NotFound` if the name leads to another inode.
pub(crate) fn open_mapped(pid: u32, mapping: &Mapping) -> io::Result<File> {
    if mapping.ino == 0 {
        return Err(no_file());
    }
    let link = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    match process_root::open_mapped(pid, Path::new(&link)) {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => open_by_name(pid, mapping),
        opened => opened,
    }
}

fn open_by_name(pid: u32, mapping: &Mapping) -> io::Result<File> {
    let path = mapping.path.as_deref().ok_or_else(no_file)?;
    let file = Root::of_process(pid)?.open_file(path, LastLink::Follow)?;
    let found = file.metadata()?.ino();
    if found != mapping.ino {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "`{}` was replaced: got inode {found}, expected {}",
                path.display(),
                mapping.ino
            ),
        ));
    }
    Ok(file)
}

fn no_file() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the mapping has no file behind it",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::process::maps;

    /// Maps a file of this process and gives its line of maps.
    fn mapped(path: &Path) -> (memmap2::Mmap, Mapping) {
        let file = File::open(path).unwrap();
        // SAFETY: nothing writes to the file while it is mapped.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let mappings = maps::read(std::process::id()).unwrap();
        let mapping = maps::find(&mappings, map.as_ptr() as u64).unwrap().clone();
        (map, mapping)
    }

    fn content(mut file: File) -> String {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_replaced_file_is_still_the_mapped_one_as_root() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a file");
        std::fs::write(&path, "mapped").unwrap();
        let (_map, before) = mapped(&path);
        // The inode stays in use, so the new file gets another one.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();

        let module = ModuleFile::open(std::process::id(), &before).unwrap();
        assert_eq!(module.path, path);
        assert_eq!(content(module.file), "mapped");

        let error = open_by_name(std::process::id(), &before).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn the_name_is_the_fallback_for_map_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "mapped").unwrap();
        let (_map, mut mapping) = mapped(&path);
        // No such entry in map_files.
        mapping.end += 0x1000;
        let file = open_mapped(std::process::id(), &mapping).unwrap();
        assert_eq!(content(file), "mapped");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let mappings = maps::read(std::process::id()).unwrap();
        let vdso = mappings
            .iter()
            .find(|mapping| mapping.path.as_deref() == Some(Path::new("[vdso]")))
            .unwrap();
        let error = open_mapped(std::process::id(), vdso).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
