//! The journal that an older memtrace left beside its recording when it was killed in the middle of a commit: the
//! earlier contents of pages (<https://sqlite.org/fileformat.html>, 3). It is only read. Since version
//! [`super::super::schema::WITHOUT_JOURNAL`] there is none.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use super::{log::Overlay, open, read_fully};

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Bytes of a journal's header that are used.
const HEADER: usize = 28;

/// A journal with the pages in it.
pub(in crate::recording) struct Journal {
    pub(super) file: File,
    pub(super) pages: Overlay,
}

/// Why a journal is not followed.
#[derive(Debug, thiserror::Error)]
pub(in crate::recording) enum Refused {
    #[error("belongs to user {0}")]
    Foreign(u32),
    #[error("is {0}")]
    Kind(&'static str),
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

impl Journal {
    /// The journal at `path`, if there is one that is in use, of a recording that belongs to `owner`.
    ///
    /// # Errors
    /// What is there may have been put there by somebody else.
    pub(in crate::recording) fn open(path: &Path, owner: u32) -> Result<Option<Self>, Refused> {
        let file = match open(path, libc::O_NOFOLLOW) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(match fs::symlink_metadata(path) {
                    Ok(found) if found.is_symlink() => Refused::Kind("a symbolic link"),
                    Ok(found) if found.file_type().is_socket() => Refused::Kind("a socket"),
                    _ => error.into(),
                });
            }
        };
        let found = file.metadata()?;
        // SAFETY: geteuid has no preconditions and cannot fail.
        let own = unsafe { libc::geteuid() };
        if !found.is_file() {
            return Err(Refused::Kind("not a regular file"));
        }
        if ![owner, own].contains(&found.uid()) {
            return Err(Refused::Foreign(found.uid()));
        }
        let pages = pages(&file, found.len())?;
        Ok(pages.map(|pages| Self { file, pages }))
    }
}

/// `None`: it is not in use.
fn pages(file: &File, end: u64) -> io::Result<Option<Overlay>> {
    let mut overlay: Option<Overlay> = None;
    let mut at = 0;
    let mut page = Vec::new();
    'headers: loop {
        let mut header = [0; HEADER];
        if read_fully(file, &mut header, at)? < HEADER || !header.starts_with(&MAGIC) {
            break;
        }
        let number = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&header[at..at + 4]);
            u32::from_be_bytes(bytes)
        };
        let (count, nonce, pages) = (number(8), number(12), number(16));
        let (sector, page_size) = (u64::from(number(20)), u64::from(number(24)));
        let sizes = [sector, page_size];
        if !sizes
            .iter()
            .all(|size| size.is_power_of_two() && (32..=1 << 16).contains(size))
        {
            break;
        }
        let overlay = overlay.get_or_insert_with(|| Overlay {
            page_size,
            length: u64::from(pages) * page_size,
            ..Overlay::default()
        });
        at += sector;
        for _ in 0..count {
            page.resize(page_size as usize + 8, 0);
            if at >= end || read_fully(file, &mut page, at)? < page.len() {
                break 'headers;
            }
            let (head, rest) = page.split_at(4);
            let (content, sum) = rest.split_at(page_size as usize);
            if be(sum) != checksum(nonce, content) {
                break 'headers;
            }
            if let Some(index) = be(head).checked_sub(1) {
                let offset = u64::from(index) * page_size;
                overlay.pages.entry(offset).or_insert(at + 4);
            }
            at += page.len() as u64;
        }
        at = at.next_multiple_of(sector);
    }
    Ok(overlay)
}

fn be(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Of every 200th byte, from the end.
fn checksum(nonce: u32, page: &[u8]) -> u32 {
    let first = page.len() % 200;
    let picked = page
        .iter()
        .skip(first)
        .step_by(200)
        .skip(usize::from(first == 0));
    picked.fold(nonce, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}
