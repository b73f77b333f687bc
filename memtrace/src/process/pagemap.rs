//! Finds the resident pages of a process (`/proc/PID/pagemap`).

use std::ops::Range;

use procfs::{
    ProcResult,
    process::{MemoryPageFlags, PageInfo, PageMap, Process, SwapPageFlags},
};

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
    ///
    /// # Errors
    /// The process is gone.
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
}
