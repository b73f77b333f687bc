//! The line of a stack that its programmer knows.

use super::{Frame, innermost_of_program, symbol::plain};

/// Prefixes of functions in the languages' own libraries.
const LIBRARIES: &[&str] = &[
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "core::",
    "hashbrown::",
    "<alloc::",
    "<str>::",
    "<[",
    "<std::",
    "<core::",
];

/// Files of the libraries of C and C++.
const RUNTIMES: &[&str] = &["libc.so", "libc-2", "libstdc++.so", "libc++.so", "ld-musl"];

/// Whether a native frame is of a language's library.
pub(super) fn is_of_language(frame: &Frame) -> bool {
    let module = frame.module_name().filter(|_| !frame.is_python());
    if module.is_some_and(|module| RUNTIMES.iter().any(|runtime| module.starts_with(runtime))) {
        return true;
    }
    let function = frame.function.as_deref().map(plain);
    function.is_some_and(|function| {
        let mut libraries = LIBRARIES.iter();
        libraries.any(|library| function.starts_with(library))
    })
}

/// The program's own line in a stack without its wrappers (leaf first): of Python the innermost that is not
/// installed, otherwise the first that is of no language's library.
pub(crate) fn own_line<'a>(frames: &[&'a Frame]) -> Option<&'a Frame> {
    let python = frames.iter().copied().filter(|frame| frame.is_python());
    let mut native = frames.iter().copied();
    innermost_of_program(python)
        .or_else(|| native.find(|frame| !is_of_language(frame)))
        .or(frames.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, python};

    #[test]
    fn own_lines_come_before_library_lines() {
        let installed = python(
            "forward",
            "/venv/lib/python3.11/site-packages/torch/nn/linear.py",
            1,
        );
        let own = python("predict", "/srv/server.py", 30);
        let [alloc, push, keep, main] = [
            "c10::alloc_cpu(unsigned long)",
            "std::vector<int>::push_back(int&&)",
            "keep(int)",
            "main",
        ]
        .map(|name| native(name, "/srv/program"));
        let line = |frames: &[&Frame]| own_line(frames).and_then(|frame| frame.function.clone());
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(line(&[&alloc, &installed, &own, &main]), is("predict"));
        assert_eq!(line(&[&push, &keep, &main]), is("keep(int)"));
        assert_eq!(line(&[&push]), is("std::vector<int>::push_back(int&&)"));
        assert_eq!(line(&[]), None);
    }
}
