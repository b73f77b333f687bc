//! The allocators: a table, and the only one. Which functions are probed, and
//! which frames reports fold as an allocator's own, is read from it; a new
//! allocator is a row here.

use super::functions::{Row, alloc, alloc_array, free, realloc, realloc_array, row, throwing};

/// What is known of an allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    /// What its functions begin with: under each prefix it defines the malloc family
    /// ([`super::functions::FAMILY`]).
    pub prefixes: &'static [&'static str],
    /// Functions of its own, under its prefixes only.
    pub own: &'static [Row],
    /// How the names of files begin that hold nothing but it.
    pub libraries: &'static [&'static str],
    /// Functions within it, by their whole names: frames of them lead to an allocation.
    pub inner: &'static [&'static str],
}

/// The most standard first: where two names share an address, the earlier prefix names it.
pub(crate) const ALLOCATORS: &[Allocator] = &[
    // glibc, and what overrides it; `__` are glibc's and musl's own names in static programs.
    Allocator {
        prefixes: &["", "__libc_", "__"],
        inner: GLIBC,
        ..NONE
    },
    // jemalloc: its default with a prefix, and the Rust crates'.
    Allocator {
        prefixes: &["je_", "_rjem_"],
        libraries: &["libjemalloc"],
        ..NONE
    },
    Allocator {
        prefixes: &["mi_"],
        own: MIMALLOC,
        libraries: &["libmimalloc"],
        ..NONE
    },
    Allocator {
        prefixes: &["tc_"],
        own: TCMALLOC,
        libraries: &["libtcmalloc"],
        ..NONE
    },
    // oneTBB.
    Allocator {
        prefixes: &["scalable_"],
        own: TBB,
        libraries: &["libtbbmalloc"],
        ..NONE
    },
    Allocator {
        prefixes: &["rp"],
        own: RPMALLOC,
        libraries: &["librpmalloc"],
        ..NONE
    },
    Allocator {
        prefixes: &["sn_"],
        own: SNMALLOC,
        libraries: &["libsnmalloc"],
        ..NONE
    },
    // dlmalloc.
    Allocator {
        prefixes: &["dl"],
        ..NONE
    },
    // Hoard and Scudo, under the standard names only.
    Allocator {
        libraries: &["libhoard", "libscudo"],
        ..NONE
    },
    // CPython's allocators: their blocks are other allocators' or lie in arenas.
    Allocator {
        inner: CPYTHON,
        ..NONE
    },
];

const NONE: Allocator = Allocator {
    prefixes: &[],
    own: &[],
    libraries: &[],
    inner: &[],
};

/// Every prefix, in the order of the table.
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

/// What the Rust crate of snmalloc calls.
const SNMALLOC: &[Row] = &[
    row("rust_alloc", alloc(1)),
    row("rust_alloc_zeroed", alloc(1)),
    row("rust_realloc", realloc(0, 3)),
    row("rust_dealloc", free(0)),
];

/// Inside glibc's malloc (malloc/malloc.c, malloc/arena.c).
const GLIBC: &[&str] = &[
    "_int_malloc",
    "_int_memalign",
    "_int_realloc",
    "_mid_memalign",
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

    use memtrace_common::function::{NO_ARGUMENT, Operation};

    use super::{
        super::functions::{EXTENSIONS, FAMILY, OPERATORS},
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
            let all = [allocator.prefixes, allocator.libraries, allocator.inner];
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
}
