//! The purpose of a mapping, judged from the stack that made it.

use super::{
    Frame, allocators, library_call, own_line,
    own_line::{is_of_language, is_of_system},
    runtime_heaps,
};

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

/// The code that requested a mapping of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A named function of the program, by mmap.
    Program,
    /// Code of a file without symbols: it may be an allocator.
    Nameless,
    /// A library, an interpreter, or any code by another call.
    Other,
}

/// In the names of functions that take address space which munmap does not give back.
const OTHER_CALLS: &[&str] = &["brk", "shmat"];

/// The requester in a stack without wrappers (leaf first).
pub(crate) fn requester(frames: &[&Frame]) -> Requester {
    let own = own_line(frames).filter(|own| !own.is_python() && own.module.is_some());
    let Some(own) = own.filter(|_| library_call(frames).is_none()) else {
        return Requester::Other;
    };
    let mut called = frames
        .iter()
        .take_while(|frame| !std::ptr::eq(**frame, own));
    let is_other_call = called.any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        OTHER_CALLS.iter().any(|call| function.ends_with(call))
    });
    match own.function {
        _ if is_other_call || is_of_language(own) || is_of_system(own) => Requester::Other,
        Some(_) => Requester::Program,
        None => Requester::Nameless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native as frame, python, stripped};

    #[test]
    fn requesters_of_mappings_are_told_apart() {
        let libc = "/usr/lib/libc.so.6";
        let [mmap, sbrk] = ["__mmap64", "__sbrk"].map(|name| frame(name, libc));
        let main = frame("main", "/srv/server");
        let library = frame("SDL_CreateRGBSurface", "/usr/lib/libSDL2-2.0.so.0");
        let nameless = stripped("/srv/server");
        let line = python("handle", "/srv/server.py", 6);
        for (frames, expected) in [
            ([&mmap, &main, &main], Requester::Program),
            ([&sbrk, &main, &main], Requester::Other),
            ([&mmap, &library, &main], Requester::Other),
            ([&mmap, &library, &library], Requester::Other),
            ([&mmap, &main, &line], Requester::Other),
            ([&mmap, &nameless, &main], Requester::Nameless),
            ([&nameless, &nameless, &nameless], Requester::Nameless),
        ] {
            assert_eq!(requester(&frames), expected, "{frames:?}");
        }
    }

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
