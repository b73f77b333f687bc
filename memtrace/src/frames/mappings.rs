//! The purpose of a mapping, judged from the stack that made it.

use super::{Frame, allocators, runtime_heaps};

/// The purpose of address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// An allocator's: the heap's blocks are in it.
    Allocator,
    /// A device driver's, for the device's memory.
    Driver,
    /// Stacks of threads.
    Stack,
    /// The heap of a language's runtime.
    Runtime,
    /// Libraries, mapped by the dynamic linker.
    Library,
    /// The program's own: anonymous memory, or files that it maps.
    Program,
}

/// In the names of functions that map the stack of a new thread (glibc, musl).
const THREADS: &[&str] = &["allocate_stack", "pthread_create"];

/// In the names of the dynamic linkers' functions that map files (glibc elf/dl-map-segments.h, musl ldso/dynlink.c).
const LINKERS: &[&str] = &["_dl_map", "dl_map", "map_library", "open_path"];

/// File name prefixes of the libraries that map device memory.
const DRIVERS: &[&str] = &["libcuda.", "libnvidia-", "libamdhip64", "libhsa-runtime64"];

/// Frames within which these functions must be: callers further out request something else.
const NEAR: usize = 6;

/// The purpose of mappings made with these frames (leaf first). `by_allocator`: within a call that allocates.
pub(crate) fn of<'a>(by_allocator: bool, frames: impl Iterator<Item = &'a Frame>) -> Use {
    let near: Vec<&Frame> = frames.take(NEAR).collect();
    let named = |names: &[&str]| {
        near.iter().any(|frame| {
            let function = frame.function.as_deref().unwrap_or_default();
            names.iter().any(|name| function.contains(name))
        })
    };
    let linker = || {
        let file = near.first().and_then(|frame| frame.module_name());
        let file = file.unwrap_or_default();
        file.starts_with("ld-linux") || file.starts_with("ld-musl") || file.starts_with("ld64")
    };
    let driver = || {
        let mut files = near.iter().filter_map(|frame| frame.module_name());
        files.any(|file| DRIVERS.iter().any(|driver| file.starts_with(driver)))
    };
    // An allocator also maps within free(), or when a thread begins.
    let by_allocator = by_allocator || near.iter().any(|frame| allocators::is_inside(frame));
    if by_allocator && driver() {
        Use::Driver
    } else if by_allocator {
        Use::Allocator
    } else if named(THREADS) {
        Use::Stack
    } else if named(LINKERS) || linker() {
        Use::Library
    } else if runtime_heaps::of(near.iter().copied()).is_some() {
        Use::Runtime
    } else {
        Use::Program
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::native as frame;

    #[test]
    fn the_leaf_shows_the_purpose_of_a_mapping() {
        let libc = "/usr/lib/libc.so.6";
        let mmap = frame("__mmap64", libc);
        let main = frame("main", "/bin/program");
        let create = frame("__GI___pthread_create", libc);
        let linker = frame("mmap64", "/usr/lib/ld-linux-x86-64.so.2");
        let plain = [mmap.clone(), main.clone()];
        assert_eq!(of(true, plain.iter()), Use::Allocator);
        assert_eq!(of(false, plain.iter()), Use::Program);
        let in_driver = frame("cuMemAlloc_v2", "/usr/lib/libcuda.so.580.159.04");
        let device = [mmap.clone(), in_driver, main.clone()];
        assert_eq!(of(true, device.iter()), Use::Driver);
        assert_eq!(
            of(false, device.iter()),
            Use::Program,
            "not within a request"
        );
        for inner in ["alloc_new_heap", "__GI___libc_free", "free"] {
            let arena = [mmap.clone(), frame(inner, libc), main.clone()];
            assert_eq!(of(false, arena.iter()), Use::Allocator, "{inner}");
        }
        let own = [mmap.clone(), frame("Pool::free(void*)", "/bin/program")];
        assert_eq!(of(false, own.iter()), Use::Program);
        let php = [
            mmap.clone(),
            frame("zend_mm_chunk_alloc", "/usr/bin/php8.2"),
        ];
        assert_eq!(of(false, php.iter()), Use::Runtime);
        let thread = [mmap, create, main.clone()];
        assert_eq!(of(false, thread.iter()), Use::Stack);
        assert_eq!(of(false, [linker, main].iter()), Use::Library);
        assert_eq!(of(false, [].iter()), Use::Program);
    }
}
