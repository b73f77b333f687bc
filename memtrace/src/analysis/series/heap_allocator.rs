//! Finds the malloc of a process: the allocator that took most of the address space, otherwise the
//! one that the loader found.

use std::collections::HashMap;

use crate::frames::{
    Frame,
    allocators::{Allocator, GLIBC},
};

/// The allocators of a process, each with the bytes that it mapped.
#[derive(Default)]
pub(super) struct Mapped(HashMap<&'static str, (&'static Allocator, u64)>);

impl Mapped {
    /// Adds a site by an allocator, and the bytes that it held at most.
    pub(super) fn add<'a>(&mut self, frames: impl Iterator<Item = &'a Frame>, bytes: u64) {
        if let Some(allocator) = Allocator::of_mapping(frames) {
            self.0.entry(allocator.name).or_insert((allocator, 0)).1 += bytes;
        }
    }

    /// `provider`: the file whose malloc the loader found.
    pub(super) fn most(&self, provider: Option<&str>) -> Option<&'static Allocator> {
        let most = self.0.values().max_by_key(|(of, bytes)| (bytes, of.name));
        let file = || provider?.rsplit('/').next();
        most.map(|(allocator, _)| *allocator)
            .or_else(|| Allocator::of_file(file()?))
    }
}

/// Estimated headers and rounding of `count` blocks of `bytes` in total. Unknown allocators are
/// assumed to round like glibc.
pub(super) fn overhead(allocator: Option<&Allocator>, bytes: f64, count: f64) -> f64 {
    if count <= 0.0 {
        return 0.0;
    }
    let block = allocator.map_or(GLIBC.block, |of| of.block);
    block(bytes / count) * count - bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::native;

    #[test]
    fn the_allocator_that_maps_most_wins_over_the_one_found() {
        let libc = "/usr/lib/libc.so.6";
        let mut mapped = Mapped::default();
        let name = |mapped: &Mapped, provider| mapped.most(provider).map(|of| of.name);
        assert_eq!(name(&mapped, Some(libc)), Some("glibc"));
        assert_eq!(name(&mapped, Some("/bin/program")), None);
        assert_eq!(name(&mapped, None), None);
        let mmap = native("mmap64", libc);
        let arena = [mmap.clone(), native("new_heap", libc)];
        mapped.add(arena.iter(), 1 << 20);
        let jemalloc = [mmap, native("_rjem_je_pages_map", "/bin/program")];
        mapped.add(jemalloc.iter(), 2 << 20);
        assert_eq!(name(&mapped, Some(libc)), Some("jemalloc"));
    }
}
