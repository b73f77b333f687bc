//! Records of the kernel side as they came, kept in a compressed file for tests to replay: each is
//! its length in bytes (u32, little endian) and the bytes.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

/// A file that is being written; complete once it is dropped.
pub(super) struct Capture(zstd::stream::AutoFinishEncoder<'static, File>);

impl Capture {
    /// Begins a file, in place of one that is there.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let encoder = zstd::Encoder::new(File::create(path)?, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        Ok(Self(encoder.auto_finish()))
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &[u8]) -> io::Result<()> {
        let length = u32::try_from(record.len()).map_err(io::Error::other)?;
        self.0.write_all(&length.to_le_bytes())?;
        self.0.write_all(record)
    }
}

/// The records of a file.
///
/// # Errors
/// It cannot be read, or is damaged.
#[cfg(test)]
pub(super) fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let bytes = zstd::decode_all(File::open(path)?)?;
    let mut rest = bytes.as_slice();
    let mut records = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (record, behind) = behind
            .split_at_checked(u32::from_le_bytes(*length) as usize)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        records.push(record.to_vec());
        rest = behind;
    }
    Ok(records)
}
