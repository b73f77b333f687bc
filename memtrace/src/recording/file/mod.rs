//! The one file of a recording. SQLite reads and writes it through a descriptor ([`vfs`]), never by its name, and there
//! is no journal beside it that another user could make: a commit is logged at the end of the file itself ([`log`])
//! before it changes anything ([`writer`]). A reader never writes: it takes the pages of an interrupted commit from
//! the log ([`reader`]), or from the journal of an older memtrace ([`journal`]).

mod journal;
mod locks;
mod log;
mod reader;
mod vfs;
mod writer;

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

pub(super) use journal::Journal;
#[cfg(test)]
pub(super) use log::append as append_log;
pub(super) use reader::{Reader, page_size};
pub(super) use vfs::{connect, last_error};
pub(super) use writer::Writer;

/// A file as SQLite uses it.
pub(super) trait Storage: Send {
    fn file(&self) -> &File;

    /// A lock has been taken: what is read from now on belongs together.
    fn begin(&mut self) -> io::Result<()>;

    /// Bytes.
    ///
    /// # Errors
    /// It is not known.
    fn length(&self) -> io::Result<u64>;

    /// Reads into `buffer`, less than that only at the end. Returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    fn write_at(&mut self, content: &[u8], offset: u64) -> io::Result<()>;

    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Makes all that was written since the last call durable: all of it, or nothing.
    fn commit(&mut self) -> io::Result<()>;
}

/// Opens a file that another user may have put there: neither a pipe nor a lease of its owner holds this up.
pub(super) fn open(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | flags);
    options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::WouldBlock,
            "another process keeps it from being opened (by a lease); try again",
        ),
        _ => error,
    })
}

/// Reads at `offset`, less than the length of `buffer` only at the end of the file.
fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
