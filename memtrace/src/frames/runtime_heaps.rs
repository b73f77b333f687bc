//! The only table of heaps that runtimes of languages manage themselves: their chunks are mapped by the line that needs the
//! next one, so a line that maps one says little. To support another runtime, add a row here.

use super::Frame;

/// Description of a runtime's heap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RuntimeHeap {
    /// The runtime, for people.
    pub(crate) name: &'static str,
    /// Beginnings of the names of files that contain it.
    files: &'static [&'static str],
    /// Beginnings of the names of its functions, in any file.
    functions: &'static [&'static str],
    /// Its collector may wait long: growth alone does not show that objects are kept.
    pub(crate) is_lazy: bool,
    /// The tool that looks inside.
    pub(crate) tool: &'static str,
}

const HEAPS: &[RuntimeHeap] = &[
    RuntimeHeap {
        name: "Node.js (V8)",
        files: &["node", "libnode.", "libv8"],
        functions: &["v8::"],
        is_lazy: true,
        tool: "compare two heap snapshots: start it with `node --heapsnapshot-signal=SIGUSR2`, then `kill -USR2 PID`",
    },
    RuntimeHeap {
        name: "Java",
        files: &["libjvm."],
        functions: &[],
        is_lazy: true,
        tool: "compare two of `jcmd PID GC.class_histogram`, or record with `jcmd PID JFR.start`",
    },
    RuntimeHeap {
        name: ".NET",
        files: &["libcoreclr.", "libclrgc."],
        functions: &[],
        is_lazy: true,
        tool: "compare two of `dotnet-gcdump collect -p PID`",
    },
    RuntimeHeap {
        name: "Go",
        files: &[],
        functions: &["runtime."],
        is_lazy: false,
        tool: "compare two heap profiles of net/http/pprof with `go tool pprof -base OLD NEW`",
    },
    RuntimeHeap {
        name: "PHP (Zend)",
        files: &["php", "libphp"],
        functions: &["zend_mm_"],
        is_lazy: false,
        tool: "run it with USE_ZEND_ALLOC=0: PHP then uses malloc, and each block is seen",
    },
    RuntimeHeap {
        name: "Ruby",
        files: &["ruby", "libruby"],
        functions: &[],
        is_lazy: false,
        tool: "compare two of ObjectSpace.dump_all, after ObjectSpace.trace_object_allocations_start",
    },
    RuntimeHeap {
        name: "Erlang",
        files: &["beam."],
        functions: &[],
        is_lazy: false,
        tool: "compare two of `recon_alloc:memory(usage)` and `erlang:memory()`",
    },
];

/// Files through which all map memory.
const C_LIBRARIES: &[&str] = &["libc.so", "libc-2", "ld-musl", "libc.musl"];

/// The runtime whose code requested memory with these frames (leaf first).
pub(crate) fn of<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Option<&'static RuntimeHeap> {
    let is_libc = |frame: &&Frame| {
        let file = frame.module_name().unwrap_or_default();
        C_LIBRARIES.iter().any(|of| file.starts_with(of))
    };
    let asks = frames.into_iter().find(|frame| !is_libc(frame))?;
    let file = asks.module_name().unwrap_or_default();
    let function = asks.function.as_deref().unwrap_or_default();
    HEAPS.iter().find(|of| {
        of.files.iter().any(|begin| file.starts_with(begin))
            || of.functions.iter().any(|begin| function.starts_with(begin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, stripped};

    #[test]
    fn the_code_that_asks_shows_the_runtime() {
        let mmap = native("mmap64", "/usr/lib/libc.so.6");
        let name = |frame: Frame| of([&mmap, &frame]).map(|heap| heap.name);
        for (frame, expected) in [
            (
                native("v8::base::OS::Allocate(void*)", "/usr/bin/node"),
                "Node.js (V8)",
            ),
            (stripped("/usr/sbin/php-fpm8.2"), "PHP (Zend)"),
            (native("runtime.sysMapOS", "/srv/server"), "Go"),
            (
                native("os::reserve_memory", "/usr/lib/jvm/lib/server/libjvm.so"),
                "Java",
            ),
            (stripped("/usr/lib/libruby-3.1.so.3.1"), "Ruby"),
        ] {
            assert_eq!(name(frame), Some(expected));
        }
        // An extension's own mapping, and a program's.
        assert_eq!(name(native("extend", "/usr/lib/php/ext.so")), None);
        assert_eq!(name(native("main", "/srv/server")), None);
    }
}
