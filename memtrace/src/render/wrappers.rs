//! Frames that only lead to an allocation: the allocator's own functions, and
//! stubs of the dynamic linker. At the end of a stack they say nothing of who
//! allocates, so text and flame graphs fold them.
//!
//! A program's own wrapper (`xmalloc`) is none of them: it may be where the
//! question is. Nor is what allocates for a purpose (`strdup`).

use crate::symbolize::{Frame, IN_PLT};

/// Libraries that are nothing but an allocator, by the beginning of their file names.
const LIBRARIES: &[&str] = &[
    "libhoard",
    "libjemalloc",
    "libmimalloc",
    "librpmalloc",
    "libscudo",
    "libsnmalloc",
    "libtbbmalloc",
    "libtcmalloc",
];

/// What allocators put before the names of [`FAMILY`].
const PREFIXES: &[&str] = &[
    "",
    "__libc_",
    "__",
    "_rjem_",
    "dl",
    "je_",
    "mi_",
    "rp",
    "scalable_",
    "sn_",
    "tc_",
];

/// The malloc family: names that C reserves.
const FAMILY: &[&str] = &[
    "aligned_alloc",
    "calloc",
    "malloc",
    "memalign",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "valloc",
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
const PYTHON: &[&str] = &[
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

/// The global operators of C++, but no class's own, which begins with the class.
const OPERATORS: &[&str] = &["operator new", "operator new[]"];

/// From Rust's `alloc` crate down to the allocator.
const RUST: &[&str] = &[
    "<alloc::alloc::Global as ",
    "<std::alloc::System as ",
    "__rdl_",
    "__rg_",
    "__rust_",
    "__rustc::__",
    "alloc::alloc::",
    "std::sys::alloc::",
];

/// How many frames at the end (the front) of a stack are wrappers. Never all of them.
pub(crate) fn leading<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> usize {
    let mut wrappers = 0;
    for frame in frames {
        if !is_wrapper(frame) {
            return wrappers;
        }
        wrappers += 1;
    }
    wrappers.saturating_sub(1)
}

fn is_wrapper(frame: &Frame) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    let file_name = module.rsplit('/').next().unwrap_or(module);
    LIBRARIES
        .iter()
        .any(|library| file_name.starts_with(library))
        || frame.unresolved.as_deref() == Some(IN_PLT)
        || frame.function.as_deref().is_some_and(is_allocators)
}

fn is_allocators(function: &str) -> bool {
    let base = function.split('(').next().unwrap_or(function);
    let in_family = |prefix: &&str| {
        let name = base.strip_prefix(prefix);
        name.is_some_and(|name| FAMILY.contains(&name))
    };
    base.ends_with("@plt")
        || OPERATORS.contains(&base)
        || GLIBC.contains(&base)
        || PYTHON.contains(&base)
        || PREFIXES.iter().any(in_family)
        || RUST.iter().any(|prefix| base.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::Symbolizer;

    fn frame(function: &str, module: &str) -> Frame {
        Frame {
            function: Some(function.into()),
            module: Some(module.into()),
            unresolved: None,
            ..Symbolizer::unknown(0, "")
        }
    }

    #[test]
    fn the_allocators_functions_are_wrappers_whatever_its_build() {
        for function in [
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::align_val_t, std::nothrow_t const&)",
            "operator new",
            "malloc",
            "__libc_calloc",
            "_rjem_realloc",
            "mi_malloc",
            "_int_malloc",
            "malloc@plt",
            "PyObject_Malloc",
            "std::sys::alloc::unix::<impl core::alloc::global::GlobalAlloc for std::alloc::System>::alloc",
            "__rustc::__rdl_alloc",
            "alloc::alloc::exchange_malloc",
            "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
        ] {
            assert!(
                is_wrapper(&frame(function, "/usr/bin/program")),
                "{function}"
            );
        }
        assert!(is_wrapper(&frame("anything", "/usr/lib/libjemalloc.so.2")));
    }

    #[test]
    fn a_programs_own_functions_are_none() {
        for function in [
            "xmalloc",
            "Pool::operator new(unsigned long)",
            "operator new_thing(int)",
            "my_malloc",
            "malloc_all_of_it",
            "strdup",
            "PyObject_GC_New",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "main",
        ] {
            assert!(
                !is_wrapper(&frame(function, "/usr/bin/program")),
                "{function}"
            );
        }
        assert!(!is_wrapper(&frame("strdup", "/usr/lib/libc.so.6")));
        assert!(!is_wrapper(&Symbolizer::unknown(
            0x10,
            "not in a known mapping"
        )));
    }

    #[test]
    fn only_the_end_of_a_stack_is_folded_and_never_all_of_it() {
        let stub = Frame {
            module: Some("/usr/bin/program".into()),
            ..Symbolizer::unknown(0, "")
        };
        let stub = Frame {
            unresolved: Some(IN_PLT.into()),
            ..stub
        };
        let new = frame("operator new(unsigned long)", "/usr/lib/libstdc++.so.6");
        let main = frame("main", "/usr/bin/program");
        let stack = [new.clone(), stub.clone(), main.clone(), new.clone()];
        assert_eq!(leading(&stack), 2);
        assert_eq!(leading(&stack[2..]), 0);
        assert_eq!(leading(&[new, stub]), 1);
        assert_eq!(leading([]), 0);
    }
}
