//! The name of the file that is being written: it may be renamed or removed meanwhile. Writing goes on, by descriptor.

use std::{
    fs::{self, File},
    io::{self, Seek},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::{Error, create};

/// A file and the name that it was given.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
    is_reported: bool,
}

impl Output {
    pub(super) fn new(path: &Path, file: File) -> Self {
        Self {
            path: path.into(),
            file,
            is_reported: false,
        }
    }

    /// Reports once that the file has lost its name.
    pub(super) fn watch(&mut self) {
        if !self.is_reported && self.is_removed() {
            self.is_reported = true;
            tracing::warn!(
                "`{}` was removed; memtrace goes on recording and writes it again at the end",
                self.path.display()
            );
        }
    }

    /// At the end: a removed file is written again, and the new name of a renamed one is reported.
    pub(super) fn restore(&self) -> Result<(), Error> {
        if self.is_removed() {
            return self.copy();
        }
        let is_there = |of: &fs::Metadata| {
            let own = self.file.metadata();
            own.is_ok_and(|own| own.dev() == of.dev() && own.ino() == of.ino())
        };
        if !fs::metadata(&self.path).is_ok_and(|found| is_there(&found)) {
            let now = fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
            tracing::warn!(
                "`{}` was renamed while it was written; the recording is `{}`",
                self.path.display(),
                now.unwrap_or_default().display()
            );
        }
        Ok(())
    }

    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() == 0)
    }

    /// A file without a name cannot get one again: linkat(2) refuses.
    fn copy(&self) -> Result<(), Error> {
        let mut path = self.path.clone();
        let new = create::create(&path).or_else(|_| {
            path = create::with_suffix(&self.path, ".recovered");
            create::create(&path)
        })?;
        let copied = (&self.file)
            .rewind()
            .and_then(|()| io::copy(&mut &self.file, &mut &new))
            .and_then(|_| new.sync_all());
        copied.map_err(|error| Error::Create {
            path: path.clone(),
            cause: error.to_string(),
        })?;
        tracing::warn!(
            "`{}` was removed while it was written; the recording is in a new file, `{}`",
            self.path.display(),
            path.display()
        );
        Ok(())
    }
}

impl Drop for Output {
    /// A child that was just forked may have the descriptor too.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}
