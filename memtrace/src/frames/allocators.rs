//! The only table of allocators: which functions are probed, which frames reports fold as the
//! allocator's own, and which settings make it return memory. To support a new allocator, add a row
//! here.

use memtrace_common::function::Operation;

use super::{
    Frame,
    functions::{FAMILY, Row, alloc, alloc_array, free, realloc, realloc_array, row, throwing},
};

/// Description of an allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    /// Its common name.
    pub name: &'static str,
    /// Prefixes of its functions: under each it defines the malloc family
    /// ([`super::functions::FAMILY`]).
    pub prefixes: &'static [&'static str],
    /// Functions of its own, under its prefixes only.
    pub own: &'static [Row],
    /// Beginnings of the names of files that contain nothing else.
    pub libraries: &'static [&'static str],
    /// Functions within it, by their whole names: frames of them lead to an allocation.
    pub inner: &'static [&'static str],
    /// Prefixes of its internal functions, in a program that contains it.
    pub within: &'static [&'static str],
    /// Name prefixes of the C libraries that contain it.
    pub c_libraries: &'static [&'static str],
    /// Bytes that a block takes, including headers and rounding.
    pub block: fn(f64) -> f64,
    /// Ways to make it return freed memory.
    pub gives_back: &'static [&'static str],
}

/// The most standard first: if two names share an address, the earlier prefix names it.
pub(crate) const ALLOCATORS: &[Allocator] = &[
    // Its prefixes are those of every allocator that overrides it; `__` are glibc's and musl's own names in
    // static programs.
    GLIBC,
    Allocator {
        name: "musl's malloc",
        c_libraries: &["ld-musl", "libc.musl"],
        gives_back: &["it cannot give memory back: use mimalloc or jemalloc, built for musl"],
        ..NONE
    },
    // Its default with a prefix, and the Rust crates'.
    Allocator {
        name: "jemalloc",
        prefixes: &["je_", "_rjem_"],
        libraries: &["libjemalloc"],
        within: &["je_", "_rjem_"],
        gives_back: &[
            "in a debugger: `call (int)mallctl(\"arena.4096.purge\", 0, 0, 0, 0)` gives it back, `call (void)malloc_stats_print(0, 0, 0)` shows where it is (Rust: `_rjem_mallctl`, `_rjem_malloc_stats_print`)",
            "give it back sooner: MALLOC_CONF=background_thread:true,dirty_decay_ms:1000 (Rust: _RJEM_MALLOC_CONF; 10,000 ms and no thread are the default)",
        ],
        ..NONE
    },
    Allocator {
        name: "mimalloc",
        prefixes: &["mi_"],
        own: MIMALLOC,
        libraries: &["libmimalloc"],
        within: &["mi_", "_mi_"],
        gives_back: &[
            "in a debugger: `call (void)mi_collect(1)` gives back the memory of the calling thread",
            "give it back at once: MIMALLOC_PURGE_DELAY=0 (version 2.0: MIMALLOC_DECOMMIT_DELAY=0)",
        ],
        ..NONE
    },
    Allocator {
        name: "tcmalloc",
        prefixes: &["tc_"],
        own: TCMALLOC,
        libraries: &["libtcmalloc"],
        within: &["tc_", "tcmalloc::", "TCMalloc_"],
        gives_back: &[
            "in a debugger: `call (void)MallocExtension_ReleaseFreeMemory()` gives it back",
            "give it back sooner: TCMALLOC_RELEASE_RATE=10 (1 is the default)",
        ],
        ..NONE
    },
    Allocator {
        name: "oneTBB's malloc",
        prefixes: &["scalable_"],
        own: TBB,
        libraries: &["libtbbmalloc"],
        within: &["scalable_", "rml::internal::"],
        gives_back: &[
            "in a debugger: `call (int)scalable_allocation_command(0, 0)` gives its buffers back",
        ],
        ..NONE
    },
    Allocator {
        name: "rpmalloc",
        prefixes: &["rp"],
        own: RPMALLOC,
        libraries: &["librpmalloc"],
        ..NONE
    },
    Allocator {
        name: "snmalloc",
        prefixes: &["sn_"],
        own: SNMALLOC,
        libraries: &["libsnmalloc"],
        within: &["sn_", "snmalloc::"],
        ..NONE
    },
    Allocator {
        name: "dlmalloc",
        prefixes: &["dl"],
        gives_back: &["in a debugger: `call (int)dlmalloc_trim(0)` gives it back"],
        ..NONE
    },
    // These two have only the standard names.
    Allocator {
        name: "Hoard",
        libraries: &["libhoard"],
        ..NONE
    },
    Allocator {
        name: "Scudo",
        libraries: &["libscudo"],
        within: &["scudo::"],
        ..NONE
    },
    // Their blocks come from other allocators or are in arenas.
    Allocator {
        name: "CPython's allocators",
        inner: CPYTHON,
        ..NONE
    },
];

/// The allocator of most programs, also assumed if the allocator is unknown.
pub(crate) const GLIBC: Allocator = Allocator {
    name: "glibc",
    prefixes: &["", "__libc_", "__"],
    inner: IN_GLIBC,
    c_libraries: &["libc.so.6", "libc-2."],
    block: chunk,
    gives_back: &[
        "in a debugger: `call (int)malloc_trim(0)` gives it back, `call (int)malloc_info(0, stdout)` shows where it is",
        "fewer arenas: MALLOC_ARENA_MAX=2",
        "another allocator: LD_PRELOAD=libjemalloc.so.2",
    ],
    ..NONE
};

const NONE: Allocator = Allocator {
    name: "",
    prefixes: &[],
    own: &[],
    libraries: &[],
    inner: &[],
    within: &[],
    c_libraries: &[],
    block: size_class,
    gives_back: &[],
};

/// Bytes that a block of glibc takes: eight more than requested, in multiples of 16, at least 32 (malloc/malloc.c,
/// `request2size`).
fn chunk(bytes: f64) -> f64 {
    (((bytes + 8.0) / 16.0).ceil() * 16.0).max(32.0)
}

/// Bytes that a block takes in allocators with size classes: multiples of 8 and 16 up to 128 bytes, then four
/// classes for each doubling (jemalloc's; tcmalloc and mimalloc have a few more).
fn size_class(bytes: f64) -> f64 {
    let step = match bytes {
        ..=16.0 => 8.0,
        ..=128.0 => 16.0,
        _ => (bytes.log2().ceil() - 3.0).exp2(),
    };
    ((bytes / step).ceil() * step).max(8.0)
}

/// Innermost frames searched for the allocator that maps memory.
const NEAR: usize = 16;

impl Allocator {
    /// The allocator that made a mapping, by the frames that made it (leaf first).
    pub(crate) fn of_mapping<'a>(
        frames: impl Iterator<Item = &'a Frame>,
    ) -> Option<&'static Allocator> {
        let near: Vec<&Frame> = frames.take(NEAR).collect();
        let holds = |of: &&Allocator| near.iter().any(|frame| of.has(frame));
        let leaf = || near.first().and_then(|frame| frame.module_name());
        ALLOCATORS
            .iter()
            .find(holds)
            // Other allocators also map through the C library, so the leaf does not decide.
            .or_else(|| Self::of_file(leaf()?))
    }

    /// The allocator of a file that defines malloc, by its name.
    pub(crate) fn of_file(name: &str) -> Option<&'static Allocator> {
        ALLOCATORS.iter().find(|of| {
            let mut files = of.libraries.iter().chain(of.c_libraries);
            files.any(|file| name.starts_with(file))
        })
    }

    fn has(&self, frame: &Frame) -> bool {
        let function = frame.function.as_deref().unwrap_or_default();
        let file = frame.module_name().unwrap_or_default();
        self.libraries.iter().any(|of| file.starts_with(of))
            || self.within.iter().any(|of| function.starts_with(of))
    }
}

/// Whether a frame is within an allocator: a function of its own, or one that frees.
pub(super) fn is_inside(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    // glibc's name for its own calls of an exported function.
    let function = function.strip_prefix("__GI_").unwrap_or(function);
    let frees = |name: &str| {
        let mut rows = FAMILY.iter();
        rows.any(|row| row.name == name && row.function.operation == Operation::Free)
    };
    ALLOCATORS.iter().any(|of| of.inner.contains(&function))
        || prefixes().any(|prefix| function.strip_prefix(prefix).is_some_and(frees))
}

/// Every prefix, in table order.
pub(crate) fn prefixes() -> impl Iterator<Item = &'static str> {
    ALLOCATORS
        .iter()
        .flat_map(|allocator| allocator.prefixes)
        .copied()
}

/// The functions that only one allocator has, each with its prefix.
pub(crate) fn own() -> impl Iterator<Item = (&'static str, &'static Row)> {
    ALLOCATORS.iter().flat_map(|allocator| {
        let prefixes = allocator.prefixes.iter();
        prefixes.flat_map(|prefix| allocator.own.iter().map(move |row| (*prefix, row)))
    })
}

/// mimalloc.h. The `mi_heap_` functions take the heap first.
const MIMALLOC: &[Row] = &[
    row("malloc_small", alloc(0)),
    row("zalloc", alloc(0)),
    row("zalloc_small", alloc(0)),
    row("mallocn", alloc_array(0, 1)),
    row("reallocn", realloc_array(0, 1, 2)),
    row("rezalloc", realloc(0, 1)),
    row("recalloc", realloc_array(0, 1, 2)),
    row("malloc_aligned", alloc(0)),
    row("malloc_aligned_at", alloc(0)),
    row("zalloc_aligned", alloc(0)),
    row("zalloc_aligned_at", alloc(0)),
    row("calloc_aligned", alloc_array(0, 1)),
    row("calloc_aligned_at", alloc_array(0, 1)),
    row("realloc_aligned", realloc(0, 1)),
    row("realloc_aligned_at", realloc(0, 1)),
    row("rezalloc_aligned", realloc(0, 1)),
    row("rezalloc_aligned_at", realloc(0, 1)),
    row("recalloc_aligned", realloc_array(0, 1, 2)),
    row("recalloc_aligned_at", realloc_array(0, 1, 2)),
    row("aligned_recalloc", realloc_array(0, 1, 2)),
    row("aligned_offset_recalloc", realloc_array(0, 1, 2)),
    row("free_size", free(0)),
    row("free_size_aligned", free(0)),
    row("free_aligned", free(0)),
    row("new", throwing(alloc(0))),
    row("new_aligned", throwing(alloc(0))),
    row("new_nothrow", throwing(alloc(0))),
    row("new_aligned_nothrow", throwing(alloc(0))),
    row("new_n", throwing(alloc_array(0, 1))),
    row("new_realloc", throwing(realloc(0, 1))),
    row("new_reallocn", throwing(realloc_array(0, 1, 2))),
    row("heap_malloc", alloc(1)),
    row("heap_malloc_small", alloc(1)),
    row("heap_zalloc", alloc(1)),
    row("heap_calloc", alloc_array(1, 2)),
    row("heap_mallocn", alloc_array(1, 2)),
    row("heap_malloc_aligned", alloc(1)),
    row("heap_malloc_aligned_at", alloc(1)),
    row("heap_zalloc_aligned", alloc(1)),
    row("heap_zalloc_aligned_at", alloc(1)),
    row("heap_calloc_aligned", alloc_array(1, 2)),
    row("heap_calloc_aligned_at", alloc_array(1, 2)),
    row("heap_realloc", realloc(1, 2)),
    row("heap_reallocn", realloc_array(1, 2, 3)),
    row("heap_reallocf", realloc(1, 2)),
    row("heap_rezalloc", realloc(1, 2)),
    row("heap_recalloc", realloc_array(1, 2, 3)),
    row("heap_realloc_aligned", realloc(1, 2)),
    row("heap_realloc_aligned_at", realloc(1, 2)),
    row("heap_rezalloc_aligned", realloc(1, 2)),
    row("heap_rezalloc_aligned_at", realloc(1, 2)),
    row("heap_recalloc_aligned", realloc_array(1, 2, 3)),
    row("heap_recalloc_aligned_at", realloc_array(1, 2, 3)),
    row("heap_alloc_new", throwing(alloc(1))),
    row("heap_alloc_new_n", throwing(alloc_array(1, 2))),
];

/// gperftools/tcmalloc.h.
const TCMALLOC: &[Row] = &[
    row("malloc_skip_new_handler", alloc(0)),
    row("new", throwing(alloc(0))),
    row("new_nothrow", alloc(0)),
    row("new_aligned", throwing(alloc(0))),
    row("new_aligned_nothrow", alloc(0)),
    row("newarray", throwing(alloc(0))),
    row("newarray_nothrow", alloc(0)),
    row("newarray_aligned", throwing(alloc(0))),
    row("newarray_aligned_nothrow", alloc(0)),
    row("delete", free(0)),
    row("delete_sized", free(0)),
    row("delete_nothrow", free(0)),
    row("delete_aligned", free(0)),
    row("delete_sized_aligned", free(0)),
    row("delete_aligned_nothrow", free(0)),
    row("deletearray", free(0)),
    row("deletearray_sized", free(0)),
    row("deletearray_nothrow", free(0)),
    row("deletearray_aligned", free(0)),
    row("deletearray_sized_aligned", free(0)),
    row("deletearray_aligned_nothrow", free(0)),
];

/// oneapi/tbb/scalable_allocator.h.
const TBB: &[Row] = &[
    row("aligned_malloc", alloc(0)),
    row("aligned_realloc", realloc(0, 1)),
    row("aligned_free", free(0)),
];

/// rpmalloc.h.
const RPMALLOC: &[Row] = &[
    row("aligned_calloc", alloc_array(1, 2)),
    row("aligned_realloc", realloc(0, 2)),
];

/// Functions that the Rust crate of snmalloc calls.
const SNMALLOC: &[Row] = &[
    row("rust_alloc", alloc(1)),
    row("rust_alloc_zeroed", alloc(1)),
    row("rust_realloc", realloc(0, 3)),
    row("rust_dealloc", free(0)),
];

/// Inside glibc's malloc (malloc/malloc.c, malloc/arena.c).
const IN_GLIBC: &[&str] = &[
    "_int_free",
    "_int_malloc",
    "_int_memalign",
    "_int_realloc",
    "_mid_memalign",
    "alloc_new_heap",
    "arena_get2",
    "new_heap",
    "sysmalloc",
    "sysmalloc_mmap",
    "tcache_init",
];

/// CPython's allocators (Objects/obmalloc.c).
const CPYTHON: &[&str] = &[
    "_PyMem_MiMalloc",
    "_PyMem_MiCalloc",
    "_PyMem_MiRealloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawRealloc",
    "_PyObject_Calloc",
    "_PyObject_Malloc",
    "_PyObject_MiCalloc",
    "_PyObject_MiMalloc",
    "_PyObject_MiRealloc",
    "_PyObject_Realloc",
    "PyMem_Calloc",
    "PyMem_Malloc",
    "PyMem_RawCalloc",
    "PyMem_RawMalloc",
    "PyMem_RawRealloc",
    "PyMem_Realloc",
    "PyObject_Calloc",
    "PyObject_Malloc",
    "PyObject_Realloc",
    "pymalloc_alloc",
    "pymalloc_realloc",
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use memtrace_common::function::NO_ARGUMENT;

    use super::{
        super::{
            fixture::native,
            functions::{EXTENSIONS, OPERATORS},
        },
        *,
    };

    #[test]
    fn a_name_has_one_shape() {
        let mut names = HashSet::new();
        for (prefix, row) in own() {
            assert!(names.insert((prefix, row.name)), "`{prefix}{}`", row.name);
        }
        for prefix in prefixes() {
            for row in FAMILY.iter().chain(EXTENSIONS) {
                assert!(names.insert((prefix, row.name)), "`{prefix}{}`", row.name);
            }
        }
        let operators: HashSet<_> = OPERATORS.iter().map(|row| row.name).collect();
        assert_eq!(operators.len(), OPERATORS.len());
    }

    #[test]
    fn a_prefix_belongs_to_one_allocator() {
        let mut known = HashSet::new();
        assert!(prefixes().all(|prefix| known.insert(prefix)));
    }

    #[test]
    fn functions_of_its_own_need_a_prefix() {
        for allocator in ALLOCATORS {
            assert!(allocator.own.is_empty() || !allocator.prefixes.is_empty());
            let all = [
                allocator.prefixes,
                allocator.libraries,
                allocator.inner,
                allocator.c_libraries,
            ];
            assert!(all.iter().any(|of| !of.is_empty()), "{allocator:?}");
        }
    }

    #[test]
    fn arguments_are_registers_and_differ() {
        let own = own().map(|(_, row)| row);
        for row in FAMILY.iter().chain(EXTENSIONS).chain(OPERATORS).chain(own) {
            let function = row.function;
            let present: Vec<_> = [function.size, function.count, function.block]
                .into_iter()
                .filter(|&argument| argument != NO_ARGUMENT)
                .collect();
            assert!(present.iter().all(|&argument| argument < 6), "{}", row.name);
            let distinct: HashSet<_> = present.iter().collect();
            assert_eq!(distinct.len(), present.len(), "{}", row.name);
            assert_eq!(
                function.operation == Operation::Alloc,
                function.block == NO_ARGUMENT,
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn the_frames_of_a_mapping_name_its_allocator() {
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let of = |frames: &[(&str, &str)]| {
            let frames: Vec<_> = frames
                .iter()
                .map(|(name, file)| native(name, file))
                .collect();
            Allocator::of_mapping(frames.iter()).map(|of| of.name)
        };
        let mmap = ("mmap64", libc);
        let jemalloc = "/usr/lib/libjemalloc.so.2";
        let main = ("main", "/bin/program");
        assert_eq!(
            of(&[mmap, ("os_pages_map", jemalloc), main]),
            Some("jemalloc")
        );
        let rust = ("_rjem_je_extent_alloc_mmap", "/bin/program");
        assert_eq!(of(&[mmap, rust, main]), Some("jemalloc"));
        assert_eq!(of(&[mmap, ("sysmalloc", libc), main]), Some("glibc"));
        assert_eq!(
            of(&[("mmap", "/lib/ld-musl-x86_64.so.1"), main]),
            Some("musl's malloc")
        );
        assert_eq!(of(&[main]), None);
        assert_eq!(of(&[]), None);
        for (file, name) in [
            ("libtcmalloc_minimal.so.4.5.9", Some("tcmalloc")),
            ("libmimalloc.so.2", Some("mimalloc")),
            ("libc-2.31.so", Some("glibc")),
            ("program", None),
        ] {
            assert_eq!(Allocator::of_file(file).map(|of| of.name), name, "{file}");
        }
    }

    #[test]
    fn a_block_is_rounded_by_its_allocator() {
        for (bytes, of_glibc, of_others) in [
            (1.0, 32.0, 8.0),
            (24.0, 32.0, 32.0),
            (25.0, 48.0, 32.0),
            (100.0, 112.0, 112.0),
            (129.0, 144.0, 160.0),
            (256.0, 272.0, 256.0),
            (1025.0, 1040.0, 1280.0),
        ] {
            assert_eq!(
                (chunk(bytes), size_class(bytes)),
                (of_glibc, of_others),
                "{bytes}"
            );
        }
    }
}
