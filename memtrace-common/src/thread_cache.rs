//! glibc's cache of free blocks of a thread (`tcache`, malloc/malloc.c of 2.32 to 2.43). malloc gives the first block of
//! a size's list if there is one, so the result of most calls is known at their beginning.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How to find the cache from a probe on malloc.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct ThreadCache {
    /// Bytes from the probe to the word that gives the offset, from the thread pointer, of the pointer to the cache.
    /// 0: there is no such word.
    pub slot: i64,
    /// Bytes from the start of the cache to its first list.
    pub lists: u64,
}

/// Functions whose number is below this can have a cache.
pub const THREAD_CACHES: u32 = 4096;

/// Lists for blocks of up to 1,032 bytes (`TCACHE_SMALL_BINS`).
const LISTS: u64 = 64;

/// The number of the list that has blocks for `size` bytes; `None` if they are too large for these lists. Chunks are
/// multiples of 16 bytes, at least 32, and have a header of 8 (`checked_request2size`, `csize2tidx`).
pub const fn list(size: u64) -> Option<u64> {
    if size > MAX_SIZE {
        return None;
    }
    let chunk = (size + 8).div_ceil(16);
    Some(chunk.saturating_sub(2))
}

const MAX_SIZE: u64 = (LISTS + 1) * 16 - 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_chunks_of_one_size() {
        for (size, number) in [
            (0, Some(0)),
            (24, Some(0)),
            (25, Some(1)),
            (40, Some(1)),
            (41, Some(2)),
            (1032, Some(63)),
            (1033, None),
            (u64::MAX, None),
        ] {
            assert_eq!(list(size), number, "{size}");
        }
    }
}
