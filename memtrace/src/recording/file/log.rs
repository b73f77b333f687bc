//! The log at the end of a recording: the new contents of the pages that a commit changes in their places. It is
//! complete and on the disk before the first of them is touched, and cut off after the last. So a file that ends with a
//! log was left by a recorder that was killed in between, and the log has the newer pages.
//!
//! After the `length` bytes of the database: the pages, the offset of each (8 bytes, little endian), and the trailer:
//! `length` (8), the number of pages (4), the size of a page (4), CRC-32 of all that before (4), 0 (4), [`MAGIC`].

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    os::unix::fs::FileExt,
};

use super::read_fully;

const MAGIC: &[u8; 8] = b"mtrc log";

/// Bytes of the trailer.
const TRAILER: usize = 32;

/// Bytes written, or read, at a time.
const CHUNK: usize = 1 << 20;

/// Newer contents of pages than in their places.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overlay {
    /// Bytes of a page.
    pub(super) page_size: u64,
    /// Bytes of the database.
    pub(super) length: u64,
    /// Where the content of a page is, by its offset in the database.
    pub(super) pages: HashMap<u64, u64>,
}

/// The last bytes of a log.
pub(super) type Trailer = [u8; TRAILER];

/// Writes a log of these pages, by their offsets and all of one size, behind `length` bytes of the database.
pub(in crate::recording) fn append(
    file: &File,
    length: u64,
    pages: &BTreeMap<u64, Box<[u8]>>,
) -> io::Result<()> {
    let page_size = pages.values().next().map_or(0, |page| page.len());
    let mut out = Out {
        file,
        offset: length,
        buffer: Vec::with_capacity(CHUNK),
        crc: crc32fast::Hasher::new(),
    };
    for page in pages.values() {
        out.put(page)?;
    }
    for offset in pages.keys() {
        out.put(&offset.to_le_bytes())?;
    }
    out.put(&length.to_le_bytes())?;
    out.put(&(pages.len() as u32).to_le_bytes())?;
    out.put(&(page_size as u32).to_le_bytes())?;
    let crc = out.crc.clone().finalize();
    out.put(&crc.to_le_bytes())?;
    out.put(&[0; 4])?;
    out.put(MAGIC)?;
    out.flush()
}

struct Out<'a> {
    file: &'a File,
    offset: u64,
    buffer: Vec<u8>,
    crc: crc32fast::Hasher,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.buffer.extend_from_slice(bytes);
        match self.buffer.len() < CHUNK {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// The last bytes of a file that ends with a log.
pub(super) fn trailer(file: &File, end: u64) -> io::Result<Option<Trailer>> {
    let mut trailer = [0; TRAILER];
    let Some(offset) = end.checked_sub(TRAILER as u64) else {
        return Ok(None);
    };
    let read = read_fully(file, &mut trailer, offset)?;
    Ok((read == TRAILER && trailer.ends_with(MAGIC)).then_some(trailer))
}

/// Reads the log at the end (`end`) of a file. `None` if it is not whole: then no page was touched.
pub(super) fn read(file: &File, end: u64, trailer: &Trailer) -> io::Result<Option<Overlay>> {
    let number = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&trailer[at..at + 4]);
        u64::from(u32::from_le_bytes(bytes))
    };
    let length = number(0) | number(4) << 32;
    let (count, page_size, crc) = (number(8), number(12), number(16));
    let pages_end = length.checked_add(count * page_size);
    let index_end = pages_end.and_then(|end| end.checked_add(8 * count));
    let (Some(pages_end), Some(index_end)) = (pages_end, index_end) else {
        return Ok(None);
    };
    let whole = index_end.checked_add(TRAILER as u64) == Some(end);
    if !whole || !page_size.is_power_of_two() || length % page_size != 0 {
        return Ok(None);
    }
    if crc != u64::from(checksum(file, length, index_end + 16)?) {
        return Ok(None);
    }
    let mut index = vec![0; (8 * count) as usize];
    read_fully(file, &mut index, pages_end)?;
    let offsets = index
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes));
    let contents = (length..pages_end).step_by(page_size as usize);
    Ok(Some(Overlay {
        page_size,
        length,
        pages: offsets.zip(contents).collect(),
    }))
}

fn checksum(file: &File, from: u64, to: u64) -> io::Result<u32> {
    let mut crc = crc32fast::Hasher::new();
    let mut chunk = vec![0; CHUNK];
    let mut at = from;
    while at < to {
        let wanted = (to - at).min(CHUNK as u64) as usize;
        let read = read_fully(file, &mut chunk[..wanted], at)?;
        if read == 0 {
            break;
        }
        crc.update(&chunk[..read]);
        at += read as u64;
    }
    Ok(crc.finalize())
}
