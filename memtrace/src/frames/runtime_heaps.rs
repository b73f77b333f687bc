//! The only table of heaps that runtimes of languages manage themselves: their chunks are mapped by the line that needs the
//! next one, so a line that maps one says little. To support another runtime, add a row here.

use super::Frame;

/// Description of a runtime's heap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RuntimeHeap {
    /// The runtime, for people.
    pub(crate) name: &'static str,
    /// The names of files that contain it, up to a version or a variant.
    files: &'static [&'static str],
    /// Beginnings of the names of its functions, in any file.
    functions: &'static [&'static str],
    /// A section of every file that contains it.
    section: Option<&'static str>,
    /// Its objects are in blocks of malloc.
    pub(crate) uses_malloc: bool,
    /// Its collector may wait long: growth alone does not show that objects are kept.
    pub(crate) is_lazy: bool,
    /// The tool that looks inside.
    pub(crate) tool: &'static str,
    /// The same for threads that never end.
    pub(crate) threads: Option<&'static str>,
}

const HEAP: RuntimeHeap = RuntimeHeap {
    name: "",
    files: &[],
    functions: &[],
    section: None,
    uses_malloc: false,
    is_lazy: false,
    tool: "",
    threads: None,
};

const IN_LUA: &str = "compare two of `collectgarbage(\"count\")`, each after `collectgarbage()`, and look for tables that only grow";

const HEAPS: &[RuntimeHeap] = &[
    RuntimeHeap {
        name: "Node.js (V8)",
        files: &["node", "libnode", "libv8"],
        functions: &["v8::"],
        is_lazy: true,
        tool: "compare two heap snapshots: start it with `node --heapsnapshot-signal=SIGUSR2`, then `kill -USR2 PID`",
        ..HEAP
    },
    RuntimeHeap {
        name: "Java",
        files: &["libjvm"],
        is_lazy: true,
        tool: "compare two of `jcmd PID GC.class_histogram`, or record with `jcmd PID JFR.start`",
        threads: Some(
            "list the threads with `jcmd PID Thread.print`; call `shutdown()` of each ExecutorService that is no longer needed",
        ),
        ..HEAP
    },
    RuntimeHeap {
        name: ".NET",
        files: &["libcoreclr", "libclrgc"],
        is_lazy: true,
        tool: "compare two of `dotnet-gcdump collect -p PID`",
        ..HEAP
    },
    RuntimeHeap {
        name: "Go",
        functions: &["runtime.", "runtime/cgo"],
        section: Some(".go.buildinfo"),
        tool: "compare two heap profiles of net/http/pprof with `go tool pprof -base OLD NEW`",
        ..HEAP
    },
    RuntimeHeap {
        name: "PHP (Zend)",
        files: &["php", "php-fpm", "php-cgi", "libphp"],
        functions: &["zend_mm_"],
        tool: "run it with USE_ZEND_ALLOC=0: PHP then uses malloc, and each block is seen",
        ..HEAP
    },
    RuntimeHeap {
        name: "Ruby",
        files: &["ruby", "libruby"],
        tool: "compare two of ObjectSpace.dump_all, after ObjectSpace.trace_object_allocations_start",
        ..HEAP
    },
    RuntimeHeap {
        name: "Perl",
        files: &["perl", "libperl"],
        uses_malloc: true,
        tool: "compare two counts of objects by Devel::Gladiator, and look for cycles with Devel::Cycle",
        ..HEAP
    },
    RuntimeHeap {
        name: "PyPy",
        files: &["pypy", "pypy3", "libpypy"],
        is_lazy: true,
        tool: "compare two of `gc.dump_rpy_heap()`",
        ..HEAP
    },
    RuntimeHeap {
        name: "Lua",
        files: &["lua", "liblua"],
        uses_malloc: true,
        tool: IN_LUA,
        ..HEAP
    },
    RuntimeHeap {
        name: "LuaJIT",
        files: &["luajit", "libluajit"],
        functions: &["lj_alloc"],
        tool: IN_LUA,
        ..HEAP
    },
    RuntimeHeap {
        name: "Erlang",
        files: &["beam"],
        tool: "compare two of `recon_alloc:memory(usage)` and `erlang:memory()`",
        ..HEAP
    },
];

impl RuntimeHeap {
    /// `php8.2`, `libruby-3.1.so.3.1` and `beam.smp`, but not `nodejs-helper` or `rubyfmt`.
    fn is_in(&self, file: &str) -> bool {
        self.files.iter().any(|name| {
            let rest = file.strip_prefix(name);
            let rest = rest.map(|rest| {
                rest.strip_prefix('-')
                    .map_or((rest, false), |of| (of, true))
            });
            rest.is_some_and(|(rest, has_dash)| match rest.chars().next() {
                Some(next) => next.is_ascii_digit() || next == '.' && !has_dash,
                None => !has_dash,
            })
        })
    }
}

/// The runtime that a file of this name (without folder) contains. `has_section`: whether it has a section of a name.
pub(crate) fn in_file(
    file: &str,
    has_section: impl Fn(&str) -> bool,
) -> Option<&'static RuntimeHeap> {
    let mut all = HEAPS.iter();
    all.find(|of| of.is_in(file) || of.section.is_some_and(&has_section))
}

/// That of a name.
pub(crate) fn named(name: &str) -> Option<&'static RuntimeHeap> {
    HEAPS.iter().find(|of| of.name == name)
}

/// Files through which all map memory.
const C_LIBRARIES: &[&str] = &["libc.so", "libc-2", "ld-musl", "libc.musl"];

/// The innermost frame (leaf first) that is not the C library's.
fn requester<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Option<&'a Frame> {
    frames.into_iter().find(|frame| {
        let file = frame.module_name().unwrap_or_default();
        !C_LIBRARIES.iter().any(|of| file.starts_with(of))
    })
}

/// The runtime whose code requested memory with these frames (leaf first).
pub(crate) fn of<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Option<&'static RuntimeHeap> {
    of_frame(requester(frames)?)
}

fn of_frame(asks: &Frame) -> Option<&'static RuntimeHeap> {
    let file = asks.module_name().unwrap_or_default();
    let function = asks.function.as_deref().unwrap_or_default();
    HEAPS
        .iter()
        .find(|of| of.is_in(file) || of.functions.iter().any(|begin| function.starts_with(begin)))
}

/// A process whose executable may contain a runtime that only a section of it shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Executable {
    pub(crate) runtime: Option<&'static RuntimeHeap>,
    pub(crate) path: Option<String>,
}

impl Executable {
    /// As [`of`], also where the executable has no symbols: the code that requests memory there is the runtime's.
    pub(crate) fn runtime_of<'a>(
        &self,
        frames: impl IntoIterator<Item = &'a Frame>,
    ) -> Option<&'static RuntimeHeap> {
        let asks = requester(frames)?;
        of_frame(asks).or_else(|| {
            let is_nameless = asks.function.is_none() && asks.module.is_some();
            let is_own = is_nameless && asks.module == self.path;
            self.runtime.filter(|of| is_own && of.section.is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, stripped};

    #[test]
    fn code_without_symbols_is_that_of_a_runtime_known_by_its_section() {
        let of = |runtime: &str, frame: Frame| {
            let executable = Executable {
                runtime: named(runtime),
                path: Some("/srv/server".into()),
            };
            executable.runtime_of([&frame]).map(|of| of.name)
        };
        assert_eq!(of("Go", stripped("/srv/server")), Some("Go"));
        assert_eq!(of("Go", stripped("/srv/library.so")), None);
        assert_eq!(of("Go", native("map", "/srv/server")), None);
        assert_eq!(of("Java", stripped("/srv/server")), None);
        assert_eq!(
            of("Java", native("runtime.mmap", "/srv/server")),
            Some("Go")
        );
    }

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
            (native("runtime/cgo", "/srv/server"), "Go"),
            (stripped("/usr/bin/luajit-2.1.0-beta3"), "LuaJIT"),
            (stripped("/usr/lib/libluajit-5.1.so.2.1.0"), "LuaJIT"),
            (
                native("os::reserve_memory", "/usr/lib/jvm/lib/server/libjvm.so"),
                "Java",
            ),
            (stripped("/usr/lib/libruby-3.1.so.3.1"), "Ruby"),
        ] {
            assert_eq!(name(frame), Some(expected));
        }
        for file in [
            "nodejs-helper",
            "node_exporter",
            "node-problem-detector",
            "rubyfmt",
            "libperlite.so",
            "perlbal",
        ] {
            assert_eq!(name(stripped(file)), None, "{file}");
        }
        assert_eq!(
            in_file("libpypy3.10-c.so", |_| false).map(|of| of.name),
            Some("PyPy")
        );
        let of_section = in_file("server", |name| name == ".go.buildinfo");
        assert_eq!(of_section.map(|of| of.name), Some("Go"));
        // An extension's own mapping, and a program's.
        assert_eq!(name(native("extend", "/usr/lib/php/ext.so")), None);
        assert_eq!(name(native("main", "/srv/server")), None);
    }
}
