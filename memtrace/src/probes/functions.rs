//! Which functions allocate and free, and where their arguments are: a table.
//! A new allocator is a row here. Where the functions lie in a file and where
//! their probes go is found elsewhere ([`super::plan`], [`super::site`]).
//! Functions of devices' libraries are in [`super::libraries`].
//!
//! Left out on purpose:
//! - jemalloc's `xallocx` and mimalloc's `mi_expand`: they change a block's size in
//!   place and return no address, so the size asked for at first stays recorded;
//! - functions whose size is not an argument (`mi_strdup`, `mi_realpath`,
//!   `mi_dupenv_s`): they call a listed function unless the compiler inlined it;
//! - `mi_reallocarr`: its block is behind a pointer;
//! - `mi_heap_destroy`: it frees a whole heap without naming its blocks, which
//!   therefore stay outstanding;
//! - `malloc_usable_size` and the like: they neither give nor take.

use memtrace_common::Layer;
use memtrace_common::function::{Function, Measure, NO_ARGUMENT, Operation, Outcome};

/// A function name and its shape.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Without the allocator's prefix.
    pub name: &'static str,
    /// `index` is 0: the collector gives it.
    pub function: Function,
}

/// Prefixes under which allocators define the [`FAMILY`], the most standard
/// first: where two names share an address, the earlier prefix names it.
pub const PREFIXES: &[&str] = &[
    "",
    // glibc, and what overrides it; `__` are glibc's and musl's own names in static programs.
    "__libc_",
    "__",
    // jemalloc: its default with a prefix, and the Rust crates'.
    "je_",
    "_rjem_",
    "mi_",
    "tc_",
    // oneTBB, rpmalloc, snmalloc, dlmalloc.
    "scalable_",
    "rp",
    "sn_",
    "dl",
];

/// The malloc family, under any prefix. jemalloc's functions with flags are
/// among them, as they too come with and without prefix.
pub const FAMILY: &[Row] = &[
    row("malloc", alloc(0)),
    row("calloc", alloc_array(0, 1)),
    row("realloc", realloc(0, 1)),
    row("reallocarray", realloc_array(0, 1, 2)),
    row("free", free(0)),
    row("cfree", free(0)),
    row("posix_memalign", alloc_to(2)),
    row("aligned_alloc", alloc(1)),
    row("memalign", alloc(1)),
    row("valloc", alloc(0)),
    row("pvalloc", alloc(0)),
    row("free_sized", free(0)),
    row("free_aligned_sized", free(0)),
    // BSD's, in mimalloc: as realloc, but frees the block when it fails.
    row("reallocf", realloc(0, 1)),
    row("vfree", free(0)),
    row("mallocx", alloc(0)),
    row("rallocx", realloc(0, 1)),
    row("dallocx", free(0)),
    row("sdallocx", free(0)),
];

/// Functions of one allocator, under its prefix only.
pub const OWN: &[(&str, &[Row])] = &[
    ("mi_", MIMALLOC),
    ("tc_", TCMALLOC),
    ("scalable_", TBB),
    ("rp", RPMALLOC),
    ("sn_", SNMALLOC),
];

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

/// C++ operators new and delete (Itanium ABI; `m` is unsigned long). Only those
/// of an allocator are of interest: the C++ runtimes' own call malloc and free.
pub const OPERATORS: &[Row] = &[
    row("_Znwm", throwing(alloc(0))),
    row("_Znam", throwing(alloc(0))),
    row("_ZnwmRKSt9nothrow_t", alloc(0)),
    row("_ZnamRKSt9nothrow_t", alloc(0)),
    row("_ZnwmSt11align_val_t", throwing(alloc(0))),
    row("_ZnamSt11align_val_t", throwing(alloc(0))),
    row("_ZnwmSt11align_val_tRKSt9nothrow_t", alloc(0)),
    row("_ZnamSt11align_val_tRKSt9nothrow_t", alloc(0)),
    row("_ZdlPv", free(0)),
    row("_ZdaPv", free(0)),
    row("_ZdlPvm", free(0)),
    row("_ZdaPvm", free(0)),
    row("_ZdlPvRKSt9nothrow_t", free(0)),
    row("_ZdaPvRKSt9nothrow_t", free(0)),
    row("_ZdlPvSt11align_val_t", free(0)),
    row("_ZdaPvSt11align_val_t", free(0)),
    row("_ZdlPvmSt11align_val_t", free(0)),
    row("_ZdaPvmSt11align_val_t", free(0)),
    row("_ZdlPvSt11align_val_tRKSt9nothrow_t", free(0)),
    row("_ZdaPvSt11align_val_tRKSt9nothrow_t", free(0)),
];

/// Functions by which an exception begins, or a thread is unwound for another reason (Itanium C++
/// ABI: Exception Handling; `_Unwind_ForcedUnwind` is pthread_exit's and pthread_cancel's).
pub const UNWINDING: &[&str] = &[
    "__cxa_allocate_exception",
    "__cxa_allocate_dependent_exception",
    "__cxa_rethrow",
    "_Unwind_ForcedUnwind",
];

const fn row(name: &'static str, function: Function) -> Row {
    Row { name, function }
}

const fn shape(operation: Operation, size: u8, count: u8, block: u8) -> Function {
    Function {
        operation,
        layer: Layer::Heap,
        outcome: Outcome::Pointer,
        size,
        count,
        block,
        measure: Measure::Arguments,
        stream_ordered: false,
        may_throw: false,
        index: 0,
    }
}

const fn alloc(size: u8) -> Function {
    shape(Operation::Alloc, size, NO_ARGUMENT, NO_ARGUMENT)
}

const fn alloc_array(count: u8, size: u8) -> Function {
    shape(Operation::Alloc, size, count, NO_ARGUMENT)
}

/// A C++ exception may leave it: std::bad_alloc, or what a new_handler throws.
const fn throwing(function: Function) -> Function {
    Function {
        may_throw: true,
        ..function
    }
}

/// Writes the address where the first argument points.
const fn alloc_to(size: u8) -> Function {
    Function {
        outcome: Outcome::ErrorAndOutPointer,
        ..alloc(size)
    }
}

const fn realloc(block: u8, size: u8) -> Function {
    shape(Operation::Realloc, size, NO_ARGUMENT, block)
}

const fn realloc_array(block: u8, count: u8, size: u8) -> Function {
    shape(Operation::Realloc, size, count, block)
}

const fn free(block: u8) -> Function {
    shape(Operation::Free, NO_ARGUMENT, NO_ARGUMENT, block)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_name_has_one_shape() {
        for prefix in PREFIXES {
            let own = OWN.iter().filter(|(of, _)| of == prefix);
            let mut names = HashSet::new();
            for row in own.flat_map(|(_, rows)| *rows).chain(FAMILY) {
                assert!(names.insert(row.name), "`{prefix}{}` twice", row.name);
            }
        }
        let operators: HashSet<_> = OPERATORS.iter().map(|row| row.name).collect();
        assert_eq!(operators.len(), OPERATORS.len());
    }

    #[test]
    fn own_rows_belong_to_a_known_prefix() {
        for (prefix, _) in OWN {
            assert!(PREFIXES.contains(prefix), "`{prefix}`");
        }
    }

    #[test]
    fn arguments_are_registers_and_differ() {
        let own = OWN.iter().flat_map(|(_, rows)| *rows);
        for row in FAMILY.iter().chain(OPERATORS).chain(own) {
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
