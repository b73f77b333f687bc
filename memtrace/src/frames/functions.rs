//! Functions that allocate and free, and the positions of their arguments. Those of one allocator
//! are listed with it ([`super::allocators`]); the functions' addresses in a file and the places of
//! their probes are determined elsewhere (`probes`).
//!
//! Left out on purpose:
//! - jemalloc's `xallocx` and mimalloc's `mi_expand`: they change a block's size in
//!   place and return no address, so the size requested at first stays recorded;
//! - functions whose size is not an argument (`mi_strdup`, `mi_realpath`,
//!   `mi_dupenv_s`): they call a listed function unless the compiler inlined it;
//! - `mi_reallocarr`: its block is behind a pointer;
//! - `mi_heap_destroy`: it frees a whole heap without naming its blocks, which
//!   therefore stay outstanding;
//! - `malloc_usable_size` and the like: they neither allocate nor free.

use memtrace_common::Layer;
use memtrace_common::function::{Function, Measure, NO_ARGUMENT, Operation, Outcome};

/// A function name and its shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Without the allocator's prefix.
    pub name: &'static str,
    /// `index` is 0: the collector gives it.
    pub function: Function,
}

/// The malloc family, under any prefix: names that C, POSIX and glibc reserve.
pub(crate) const FAMILY: &[Row] = &[
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
];

/// Names that exist with and without prefix as well, but belong to no allocator: a program may have
/// its own `mallocx`, so reports do not fold them.
pub(crate) const EXTENSIONS: &[Row] = &[
    // BSD's, in mimalloc: as realloc, but frees the block when it fails.
    row("reallocf", realloc(0, 1)),
    row("vfree", free(0)),
    // jemalloc's functions with flags.
    row("mallocx", alloc(0)),
    row("rallocx", realloc(0, 1)),
    row("dallocx", free(0)),
    row("sdallocx", free(0)),
];

/// C++ operators new and delete (Itanium ABI; `m` is unsigned long). Only those
/// of an allocator are of interest: the C++ runtimes' own call malloc and free.
pub(crate) const OPERATORS: &[Row] = &[
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

pub(super) const fn row(name: &'static str, function: Function) -> Row {
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

pub(super) const fn alloc(size: u8) -> Function {
    shape(Operation::Alloc, size, NO_ARGUMENT, NO_ARGUMENT)
}

pub(super) const fn alloc_array(count: u8, size: u8) -> Function {
    shape(Operation::Alloc, size, count, NO_ARGUMENT)
}

/// A C++ exception may leave it: std::bad_alloc, or one that a new_handler throws.
pub(super) const fn throwing(function: Function) -> Function {
    Function {
        may_throw: true,
        ..function
    }
}

/// Writes the address to the first argument's target.
pub(super) const fn alloc_to(size: u8) -> Function {
    Function {
        outcome: Outcome::ErrorAndOutPointer,
        ..alloc(size)
    }
}

pub(super) const fn realloc(block: u8, size: u8) -> Function {
    shape(Operation::Realloc, size, NO_ARGUMENT, block)
}

pub(super) const fn realloc_array(block: u8, count: u8, size: u8) -> Function {
    shape(Operation::Realloc, size, count, block)
}

pub(super) const fn free(block: u8) -> Function {
    shape(Operation::Free, NO_ARGUMENT, NO_ARGUMENT, block)
}
