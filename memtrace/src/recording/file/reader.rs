//! Reading the file, also one that is being written or was left in the middle of a commit. Nothing is written.

use std::{fs::File, io};

use super::{
    Journal, Storage, locks,
    log::{self, Overlay, Trailer},
    read_fully,
};

/// The file of a recording.
pub(in crate::recording) struct Reader {
    file: File,
    journal: Option<Journal>,
    /// Bytes of the database.
    length: u64,
    /// The log at the end of the file, if any.
    logged: Option<(Trailer, Option<Overlay>)>,
    /// The journal is that of a recorder that was killed.
    is_hot: bool,
}

impl Reader {
    /// With the `journal` that an older memtrace left beside it.
    pub(in crate::recording) fn new(file: File, journal: Option<Journal>) -> Self {
        Self {
            file,
            journal,
            length: 0,
            logged: None,
            is_hot: false,
        }
    }

    /// Newer, or in a journal older, contents of pages, and the file that has them.
    fn overlay(&self) -> Option<(&File, &Overlay)> {
        let logged = self.logged.as_ref().and_then(|(_, log)| log.as_ref());
        let journal = self.journal.as_ref().filter(|_| self.is_hot);
        logged
            .map(|log| (&self.file, log))
            .or_else(|| journal.map(|journal| (&journal.file, &journal.pages)))
    }
}

impl Storage for Reader {
    fn file(&self) -> &File {
        &self.file
    }

    fn begin(&mut self) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        self.logged = match (log::trailer(&self.file, end)?, self.logged.take()) {
            (Some(trailer), Some(known)) if known.0 == trailer => Some(known),
            (Some(trailer), _) => Some((trailer, log::read(&self.file, end, &trailer)?)),
            (None, _) => None,
        };
        self.is_hot = self.journal.is_some() && !locks::is_reserved(&self.file)?;
        self.length = match self.overlay() {
            Some((_, overlay)) => overlay.length,
            // SQLite overlooks a last page that is cut.
            None => {
                let mut stored = [0; 2];
                read_fully(&self.file, &mut stored, 16)?;
                end - end % page_size(stored[0], stored[1]).max(1)
            }
        };
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some((file, overlay)) = self.overlay() {
            let within = offset % overlay.page_size;
            if let Some(content) = overlay.pages.get(&(offset - within)) {
                let rest = (overlay.page_size - within).min(buffer.len() as u64);
                return read_fully(file, &mut buffer[..rest as usize], content + within);
            }
        }
        read_fully(&self.file, buffer, offset)
    }

    fn write_at(&mut self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn commit(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of a page, by the bytes 16 and 17 of an SQLite database (<https://sqlite.org/fileformat.html>, 1.3.2).
pub(in crate::recording) fn page_size(high: u8, low: u8) -> u64 {
    match u16::from_be_bytes([high, low]) {
        1 => 1 << 16,
        size => size.into(),
    }
}
