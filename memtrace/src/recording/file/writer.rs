//! Writing the file: a commit is all there or not at all, whenever the recorder is killed.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt};

use super::{Storage, log, read_fully};

/// The file of a recording in progress.
pub(in crate::recording) struct Writer {
    file: File,
    /// Bytes of the database that are committed. Everything behind them may be overwritten.
    committed: u64,
    /// Bytes with those that were added since.
    length: u64,
    /// Pages changed since the last commit, by their offsets. New pages are written at once.
    changed: BTreeMap<u64, Box<[u8]>>,
    /// A commit failed: another one must not overwrite a log.
    failed: bool,
}

impl Writer {
    /// Of an empty file.
    pub(in crate::recording) fn new(file: File) -> Self {
        Self {
            file,
            committed: 0,
            length: 0,
            changed: BTreeMap::new(),
            failed: false,
        }
    }

    fn log_and_write(&mut self) -> io::Result<()> {
        if !self.changed.is_empty() {
            let logged = log::append(&self.file, self.length, &self.changed)
                .and_then(|()| self.file.sync_data());
            if let Err(error) = logged {
                // Nothing was touched. A failure of this leaves bytes that no reader heeds.
                let _ = self.file.set_len(self.committed);
                return Err(error);
            }
            for (offset, page) in &self.changed {
                self.file.write_all_at(page, *offset)?;
            }
        }
        self.file.sync_data()?;
        if !self.changed.is_empty() {
            self.file.set_len(self.length)?;
        }
        Ok(())
    }
}

impl Storage for Writer {
    fn file(&self) -> &File {
        &self.file
    }

    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let at_or_before = self.changed.range(..=offset).next_back();
        if let Some((start, page)) = at_or_before {
            let from = (offset - start) as usize;
            if let Some(content) = page.get(from..from + buffer.len()) {
                buffer.copy_from_slice(content);
                return Ok(buffer.len());
            }
        }
        read_fully(&self.file, buffer, offset)
    }

    fn write_at(&mut self, content: &[u8], offset: u64) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write failed"));
        }
        if offset < self.committed {
            self.changed.insert(offset, content.into());
        } else {
            self.file.write_all_at(content, offset)?;
            self.length = self.length.max(offset + content.len() as u64);
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        // Pages are freed, never given back.
        if length < self.committed {
            return Err(io::Error::other("a recording does not shrink"));
        }
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write failed"));
        }
        if let Err(error) = self.log_and_write() {
            self.failed = true;
            return Err(error);
        }
        self.changed.clear();
        self.committed = self.length;
        Ok(())
    }
}
