//! Language runtimes that memtrace sees only in part, recognised by their frames.

use super::Frame;

/// A runtime with a limitation that reports state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runtime {
    Go,
    PyPy,
    FreeThreadedPython,
    DebugPython,
}

/// Prefixes of the functions in Go's runtime that map memory or call C.
const GO: &[&str] = &[
    "runtime.(*mheap)",
    "runtime.asmcgocall",
    "runtime.cgocall",
    "runtime.mallocgc",
    "runtime.mmap",
    "runtime.rt0_go",
    "runtime.sysAlloc",
    "runtime.sysReserve",
];

impl Runtime {
    /// `None` if there is no limitation to state.
    pub(crate) fn of(frame: &Frame) -> Option<Runtime> {
        let function = frame.function.as_deref().unwrap_or_default();
        if GO.iter().any(|name| function.starts_with(name)) {
            return Some(Runtime::Go);
        }
        let file = frame.module_name()?;
        let name = file.strip_prefix("lib").unwrap_or(file);
        if name.starts_with("pypy") {
            return Some(Runtime::PyPy);
        }
        // `python3.13t`, `libpython3.12d.so.1.0`
        let version = name.strip_prefix("python3.")?;
        let flags = version.trim_start_matches(|c: char| c.is_ascii_digit());
        let flags = flags.split('.').next()?;
        match (flags.contains('t'), flags.contains('d')) {
            (true, _) => Some(Runtime::FreeThreadedPython),
            (false, true) => Some(Runtime::DebugPython),
            (false, false) => None,
        }
    }

    /// The limitation, for people.
    pub(crate) const fn explanation(self) -> &'static str {
        match self {
            Runtime::Go => {
                "Go has a heap of its own, which is seen only as address space (vm), not by object (`go tool pprof` shows objects). Stacks of C code called by Go end at `asmcgocall`, which switches stacks"
            }
            Runtime::PyPy => {
                "PyPy has a heap of its own, which is seen only as address space (vm), not by object. Its Python frames are not shown"
            }
            Runtime::FreeThreadedPython => {
                "Free-threaded CPython: stacks show the interpreter's own frames instead of Python's; objects are in its own mimalloc, which is seen only as address space (vm)"
            }
            Runtime::DebugPython => {
                "A debug build of CPython: stacks show the interpreter's own frames instead of Python's"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::native;

    #[test]
    fn runtimes_are_known_by_their_frames() {
        for (function, file, runtime) in [
            ("runtime.asmcgocall.abi0", "/srv/server", Some(Runtime::Go)),
            (
                "runtime.(*mheap).sysAlloc",
                "/srv/server",
                Some(Runtime::Go),
            ),
            ("f", "/opt/pypy/bin/libpypy3.10-c.so", Some(Runtime::PyPy)),
            (
                "f",
                "/usr/bin/python3.13t",
                Some(Runtime::FreeThreadedPython),
            ),
            (
                "f",
                "/lib/libpython3.12d.so.1.0",
                Some(Runtime::DebugPython),
            ),
            ("f", "/usr/bin/python3.11", None),
            ("f", "/lib/libpython3.12.so.1.0", None),
            ("runtime_init", "/srv/server", None),
        ] {
            assert_eq!(
                Runtime::of(&native(function, file)),
                runtime,
                "{function} {file}"
            );
        }
    }
}
