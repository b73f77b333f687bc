//! Finds the resident pages of a process (`/proc/PID/pagemap`).

use std::ops::Range;

use procfs::{
    ProcResult,
    process::{MemoryPageFlags, PageInfo, PageMap, Process, SwapPageFlags},
};

/// Pages whose states are read at once.
const BATCH: usize = 1 << 16;

/// The pages of one process.
pub(crate) struct ResidentPages {
    pages: PageMap,
    page_size: u64,
}

impl ResidentPages {
    /// # Errors
    /// The process is gone, or hidden.
    pub(crate) fn open(tgid: u32) -> ProcResult<Self> {
        Ok(Self {
            pages: Process::new(tgid.cast_signed())?.pagemap()?,
            page_size: procfs::page_size(),
        })
    }

    /// Bytes of a range whose pages are resident or swapped out. Parts of pages at its edges count
    /// as resident: the rest of such a page is in use.
    pub(crate) fn bytes(&mut self, range: Range<u64>) -> ProcResult<u64> {
        let first = range.start.div_ceil(self.page_size);
        let last = range.end / self.page_size;
        if first >= last {
            return Ok(range.end - range.start);
        }
        let edges = (first * self.page_size - range.start) + (range.end - last * self.page_size);
        let pages = self.pages.get_range_info(first as usize..last as usize)?;
        let taken = pages.iter().filter(|page| is_taken(page)).count() as u64;
        Ok(edges + taken * self.page_size)
    }

    /// The parts of a private mapping of a file that the process has written: the others are as in the file.
    pub(crate) fn written(&mut self, range: Range<u64>) -> ProcResult<Vec<Range<u64>>> {
        self.parts(range, is_own)
    }

    /// The parts of a range that are resident or swapped out.
    pub(crate) fn taken(&mut self, range: Range<u64>) -> ProcResult<Vec<Range<u64>>> {
        self.parts(range, is_taken)
    }

    /// The parts of a range that are neither resident nor swapped out: to read them may wait for the disk or server of
    /// the mapped file.
    pub(crate) fn absent(&mut self, range: Range<u64>) -> ProcResult<Vec<Range<u64>>> {
        self.parts(range, |page| !is_taken(page))
    }

    /// The parts of a range whose pages are of this kind.
    fn parts(
        &mut self,
        range: Range<u64>,
        is_meant: impl Fn(&PageInfo) -> bool,
    ) -> ProcResult<Vec<Range<u64>>> {
        let end = range.end;
        let mut parts: Vec<Range<u64>> = Vec::new();
        let pages = range.start / self.page_size..end.div_ceil(self.page_size);
        for first in pages.clone().step_by(BATCH) {
            let last = pages.end.min(first + BATCH as u64);
            let batch = self.pages.get_range_info(first as usize..last as usize)?;
            for (page, _) in (first..last).zip(&batch).filter(|(_, page)| is_meant(page)) {
                let start = (page * self.page_size).max(range.start);
                let after = ((page + 1) * self.page_size).min(end);
                match parts.last_mut() {
                    Some(part) if part.end == start => part.end = after,
                    _ => parts.push(start..after),
                }
            }
        }
        Ok(parts)
    }
}

/// Whether a page no longer is the file's.
fn is_own(page: &PageInfo) -> bool {
    match page {
        PageInfo::MemoryPage(flags) => {
            flags.contains(MemoryPageFlags::PRESENT) && !flags.contains(MemoryPageFlags::FILE)
        }
        PageInfo::SwapPage(flags) => flags.contains(SwapPageFlags::SWAP),
    }
}

fn is_taken(page: &PageInfo) -> bool {
    match page {
        PageInfo::MemoryPage(flags) => flags.contains(MemoryPageFlags::PRESENT),
        PageInfo::SwapPage(flags) => flags.contains(SwapPageFlags::SWAP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn touched_pages_are_resident_and_others_are_not_as_root() {
        let page = procfs::page_size();
        // SAFETY: a new mapping of our own.
        let area = unsafe {
            libc::mmap(
                ptr::null_mut(),
                8 * page as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(area, libc::MAP_FAILED);
        let start = area as u64;
        // SAFETY: both are in the mapping.
        unsafe {
            libc::madvise(area, 8 * page as usize, libc::MADV_NOHUGEPAGE);
            *area.cast::<u8>().add(2 * page as usize) = 1;
        }
        let mut pages = ResidentPages::open(std::process::id()).unwrap();
        assert_eq!(pages.bytes(start..start + 8 * page).unwrap(), page);
        let inside = start + 4 * page + 100..start + 7 * page + 50;
        assert_eq!(pages.bytes(inside).unwrap(), page - 100 + 50);
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(area, 8 * page as usize) };
    }

    #[test]
    fn pages_of_a_file_that_were_only_read_are_not_written_as_root() {
        let page = procfs::page_size();
        let file = crate::file::of_bytes(&vec![1; 4 * page as usize]).unwrap();
        // SAFETY: a new mapping of our own file.
        let area = unsafe {
            libc::mmap(
                ptr::null_mut(),
                4 * page as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        assert_ne!(area, libc::MAP_FAILED);
        let start = area as u64;
        // SAFETY: all are in the mapping.
        unsafe {
            let bytes = area.cast::<u8>();
            assert_eq!(bytes.read_volatile(), 1);
            bytes.add(page as usize).write_volatile(2);
            bytes.add(2 * page as usize).write_volatile(2);
        }
        let mut pages = ResidentPages::open(std::process::id()).unwrap();
        let written = pages.written(start + 8..start + 3 * page - 8).unwrap();
        let expected = start + page..start + 3 * page - 8;
        assert_eq!(written, std::slice::from_ref(&expected));
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(area, 4 * page as usize) };
    }
}
