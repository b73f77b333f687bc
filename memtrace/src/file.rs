//! Files written by others and possibly still being written, read within bounds: neither false
//! claims in a file nor later changes to it can cause unbounded memory use or a signal.

use object::{ReadCache, ReadRef};
use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::{fd::FromRawFd, unix::fs::FileExt},
    sync::atomic::{AtomicU64, Ordering},
};

/// Most memory for what is read about other users' files at a time, bytes: in memtrace, and in the process that
/// reads symbols.
pub(crate) const BUDGET: u64 = 256 << 20;

/// Most that is read of one file, bytes. The largest tables of the largest programs (symbols, call frame
/// information) take tens of MiB; a sparse file may claim any size.
pub(crate) const MOST_READ: u64 = BUDGET / 4 * 3;

/// Read of every file, whatever is read of others, bytes: most need no more.
const ALWAYS_READ: u64 = 4 << 20;

/// What may still be read of all files beyond [`ALWAYS_READ`] each, bytes.
static LEFT: AtomicU64 = AtomicU64::new(MOST_READ);

/// Approximate overhead of a kept string, bytes.
const STRING: u64 = 64;

/// The bytes of an open file, on demand for `object`: read, not mapped, and kept as long as this
/// lives. A file that is truncated meanwhile cannot be read beyond its end; a mapping of it would
/// raise SIGBUS.
pub struct FileBytes<'file> {
    file: &'file File,
    read: ReadCache<Positioned<'file>>,
    /// Bytes.
    taken: Cell<u64>,
    /// Of them from [`LEFT`].
    shared: Cell<u64>,
    /// Offset and size of each read: its result is kept, so a repeated read costs nothing.
    read_already: RefCell<HashSet<(u64, u64)>>,
}

impl<'file> FileBytes<'file> {
    pub fn new(file: &'file File) -> Self {
        Self {
            file,
            read: ReadCache::new(Positioned::new(file, 0)),
            taken: Cell::new(0),
            shared: Cell::new(0),
            read_already: RefCell::default(),
        }
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        let taken = self.taken.get().checked_add(bytes).ok_or(())?;
        if taken > MOST_READ {
            return Err(());
        }
        let shared = taken.saturating_sub(ALWAYS_READ);
        let more = shared - self.shared.get();
        let left = |left: u64| left.checked_sub(more);
        LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .map_err(drop)?;
        self.taken.set(taken);
        self.shared.set(shared);
        Ok(())
    }
}

impl Drop for FileBytes<'_> {
    fn drop(&mut self) {
        LEFT.fetch_add(self.shared.get(), Ordering::Relaxed);
    }
}

impl<'data> ReadRef<'data> for &'data FileBytes<'_> {
    fn len(self) -> Result<u64, ()> {
        (&self.read).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        if self.read_already.borrow_mut().insert((offset, size)) {
            self.take(size)?;
        }
        (&self.read).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        // Cut at 4 KiB there.
        let bytes = (&self.read).read_bytes_at_until(range, delimiter)?;
        self.take(bytes.len() as u64 + STRING)?;
        Ok(bytes)
    }
}

/// Source of a file's bytes: the file, or memory.
pub(crate) trait Source {
    fn length(&self) -> Option<u64>;
    fn at(&self, offset: u64, size: u64) -> Option<&[u8]>;
    fn until(&self, range: Range<u64>, delimiter: u8) -> Option<&[u8]>;
    /// Fills the buffer with what begins at `offset`, and keeps nothing of it.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> Option<()>;
}

impl Source for FileBytes<'_> {
    fn length(&self) -> Option<u64> {
        ReadRef::len(self).ok()
    }

    fn at(&self, offset: u64, size: u64) -> Option<&[u8]> {
        ReadRef::read_bytes_at(self, offset, size).ok()
    }

    fn until(&self, range: Range<u64>, delimiter: u8) -> Option<&[u8]> {
        ReadRef::read_bytes_at_until(self, range, delimiter).ok()
    }

    fn copy(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        self.file.read_exact_at(buffer, offset).ok()
    }
}

impl Source for Vec<u8> {
    fn length(&self) -> Option<u64> {
        ReadRef::len(self.as_slice()).ok()
    }

    fn at(&self, offset: u64, size: u64) -> Option<&[u8]> {
        ReadRef::read_bytes_at(self.as_slice(), offset, size).ok()
    }

    fn until(&self, range: Range<u64>, delimiter: u8) -> Option<&[u8]> {
        ReadRef::read_bytes_at_until(self.as_slice(), range, delimiter).ok()
    }

    fn copy(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        buffer.copy_from_slice(self.at(offset, buffer.len() as u64)?);
        Some(())
    }
}

/// A [`Source`] as `object` expects it.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'data>(pub &'data (dyn Source + 'data));

impl<'data> ReadRef<'data> for Bytes<'data> {
    fn len(self) -> Result<u64, ()> {
        self.0.length().ok_or(())
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.0.at(offset, size).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.0.until(range, delimiter).ok_or(())
    }
}

/// An open file, read from a position of its own: descriptors that were duplicated share the kernel's.
pub(crate) struct Positioned<'file> {
    file: &'file File,
    at: u64,
}

impl<'file> Positioned<'file> {
    /// Begins at `at`, bytes.
    pub(crate) fn new(file: &'file File, at: u64) -> Self {
        Self { file, at }
    }
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buffer, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Positioned<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, distance) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(distance) => (self.at, distance),
            SeekFrom::End(distance) => (self.file.metadata()?.len(), distance),
        };
        self.at = from
            .checked_add_signed(distance)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// An anonymous file with these bytes.
///
/// # Errors
/// There is no memory for them.
pub(crate) fn of_bytes(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a string literal with a terminating zero.
    let fd = unsafe { libc::memfd_create(c"memtrace-module".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.write_all_at(bytes, 0)?;
    Ok(file)
}

/// Lower-case hex, as build ids are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_data_cannot_be_read() {
        let file = of_bytes(&[7; 8192]).unwrap();
        let bytes = &FileBytes::new(&file);
        assert_eq!(bytes.read_bytes_at(0, 4096), Ok(&[7; 4096][..]));
        assert_eq!(bytes.len(), Ok(8192));
        file.set_len(4096).unwrap();
        assert_eq!(bytes.read_bytes_at(0, 4096), Ok(&[7; 4096][..]));
        assert_eq!(bytes.read_bytes_at(4096, 1), Err(()));
        assert_eq!(bytes.read_bytes_at(4000, 200), Err(()));
        assert_eq!(bytes.read_bytes_at_until(4096..8192, 0), Err(()));
    }

    #[test]
    fn a_sparse_file_is_read_up_to_a_bound() {
        let file = of_bytes(b"").unwrap();
        file.set_len(1 << 40).unwrap();
        let bytes = &FileBytes::new(&file);
        assert_eq!(bytes.read_bytes_at(0, MOST_READ + 1), Err(()));
        let part = 1 << 20;
        let parts = (0..).take_while(|n| bytes.read_bytes_at(n * part, part).is_ok());
        // Stops on its own.
        assert_eq!(parts.count() as u64, MOST_READ / part);
        assert_eq!(
            bytes.read_bytes_at(0, part),
            Ok(&vec![0; part as usize][..]),
            "kept"
        );
        assert_eq!(bytes.read_bytes_at_until(0..1, 0), Err(()));
        // Others are still read as far as most need it.
        let other = &FileBytes::new(&file);
        assert!(other.read_bytes_at(0, ALWAYS_READ).is_ok());
    }

    #[test]
    fn readers_of_one_descriptor_do_not_disturb_each_other() {
        let file = of_bytes(b"first\0second\0").unwrap();
        let again = file.try_clone().unwrap();
        let (one, other) = (&FileBytes::new(&file), &FileBytes::new(&again));
        assert_eq!(one.read_bytes_at_until(0..13, 0), Ok(&b"first"[..]));
        assert_eq!(other.read_bytes_at(6, 6), Ok(&b"second"[..]));
        assert_eq!(one.read_bytes_at(0, 5), Ok(&b"first"[..]));
    }
}
