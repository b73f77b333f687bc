//! Frames that only lead to an allocation: the allocator's own functions, and stubs of the dynamic
//! linker. At the end of a stack they do not show the requester, so text and flame graphs fold
//! them.
//!
//! A program's own wrapper (`xmalloc`) is not one of them: it may be the answer. Nor is a function
//! that allocates for a purpose (`strdup`).

use memtrace_common::function::Operation;

use super::{
    Cause, Frame,
    allocators::{self, ALLOCATORS},
    functions::FAMILY,
};

/// The global operators of C++, but no class's own, which begins with the class.
const OPERATORS: &[&str] = &["operator new", "operator new[]"];

/// Java's, in libjvm.so.
const JAVA: &[&str] = &["os::malloc", "os::realloc"];

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

/// Recognises an allocator's frames: those of the table, and those of allocators that were named
/// when recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrappers {
    prefixes: Vec<String>,
}

impl Wrappers {
    /// `prefixes` are those that the table does not have.
    pub(crate) fn new(prefixes: &[String]) -> Wrappers {
        Wrappers {
            prefixes: prefixes.to_vec(),
        }
    }

    /// Number of frames at the end (the front) of a stack that are wrappers. Never all of them.
    pub(crate) fn leading<'a>(&self, frames: impl IntoIterator<Item = &'a Frame>) -> usize {
        let mut wrappers = 0;
        for frame in frames {
            if !self.is_wrapper(frame) {
                return wrappers;
            }
            wrappers += 1;
        }
        wrappers.saturating_sub(1)
    }

    fn is_wrapper(&self, frame: &Frame) -> bool {
        let file = frame.module_name().unwrap_or_default();
        let libraries = ALLOCATORS.iter().flat_map(|of| of.libraries);
        libraries.copied().any(|library| file.starts_with(library))
            || frame
                .unresolved
                .as_ref()
                .is_some_and(|of| of.cause == Cause::InPlt)
            || frame
                .function
                .as_deref()
                .is_some_and(|function| self.is_allocators(function))
    }

    fn prefixes(&self) -> impl Iterator<Item = &str> {
        let named = self.prefixes.iter().map(String::as_str);
        allocators::prefixes()
            .map(|prefix| prefix as &str)
            .chain(named)
    }

    fn is_allocators(&self, function: &str) -> bool {
        let base = function.split('(').next().unwrap_or(function);
        base.ends_with("@plt")
            || OPERATORS.contains(&base)
            || JAVA.contains(&base)
            || ALLOCATORS.iter().any(|of| of.inner.contains(&base))
            || self.prefixes().any(|prefix| {
                let name = base.strip_prefix(prefix);
                name.is_some_and(allocates)
            })
            || RUST.iter().any(|prefix| base.starts_with(prefix))
    }
}

/// Whether a name, without its prefix, is one by which the malloc family allocates.
fn allocates(name: &str) -> bool {
    let mut rows = FAMILY.iter();
    rows.any(|row| row.name == name && row.function.operation != Operation::Free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native as frame, stripped};

    fn is_wrapper(frame: &Frame) -> bool {
        Wrappers::default().is_wrapper(frame)
    }

    #[test]
    fn an_allocators_functions_are_wrappers_in_every_build() {
        for function in [
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::align_val_t, std::nothrow_t const&)",
            "operator new",
            "os::malloc(unsigned long, MEMFLAGS)",
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
    fn similar_names_are_not_wrappers() {
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
        assert!(!is_wrapper(&Frame::unknown(0x10, Cause::NotMapped)));
    }

    #[test]
    fn only_the_end_of_a_stack_is_folded_and_never_all_of_it() {
        let stub = Frame {
            unresolved: Some(Cause::InPlt.into()),
            ..stripped("/usr/bin/program")
        };
        let new = frame("operator new(unsigned long)", "/usr/lib/libstdc++.so.6");
        let main = frame("main", "/usr/bin/program");
        let leading = |stack: &[Frame]| Wrappers::default().leading(stack);
        let stack = [new.clone(), stub.clone(), main.clone(), new.clone()];
        assert_eq!(leading(&stack), 2);
        assert_eq!(leading(&stack[2..]), 0);
        assert_eq!(leading(&[new, stub]), 1);
        assert_eq!(leading(&[]), 0);
    }

    #[test]
    fn a_named_allocator_has_the_malloc_family_under_its_prefix() {
        let wrappers = Wrappers::new(&["fb_".into()]);
        let own = ["fb_malloc", "fb_posix_memalign", "fb_free", "fb_flush"];
        let found = own.map(|name| wrappers.is_wrapper(&frame(name, "/usr/bin/program")));
        assert_eq!(found, [true, true, false, false]);
        assert!(!is_wrapper(&frame("fb_malloc", "/usr/bin/program")));
    }
}
