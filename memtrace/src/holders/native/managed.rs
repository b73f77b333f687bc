//! Runtimes whose heaps are mappings that memtrace does not look into, and the tools that do.

use super::Modules;

/// A runtime in a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Managed {
    name: &'static str,
    /// Shows the objects in its heap.
    tool: &'static str,
}

/// By the beginning of the name of a file that has the runtime.
static BY_FILE: [(&str, Managed); 6] = [
    (
        "libjvm.so",
        Managed {
            name: "the JVM",
            tool: "jcmd PID GC.heap_dump FILE",
        },
    ),
    ("libnode.so", NODE),
    ("node", NODE),
    (
        "libcoreclr.so",
        Managed {
            name: ".NET",
            tool: "dotnet-gcdump collect -p PID",
        },
    ),
    (
        "libpypy",
        Managed {
            name: "PyPy",
            tool: "gc.dump_rpy_heap()",
        },
    ),
    (
        "beam.smp",
        Managed {
            name: "Erlang",
            tool: "observer:start()",
        },
    ),
];

const NODE: Managed = Managed {
    name: "V8",
    tool: "node --heapsnapshot-signal",
};

static GO: Managed = Managed {
    name: "Go",
    tool: "go tool pprof",
};

/// The section that every Go program has, stripped or not.
const OF_GO: &str = ".go.buildinfo";

/// The runtime of a process.
pub(super) fn of(modules: &Modules) -> Option<&'static Managed> {
    let mut files = modules.iter();
    files.find_map(|module| by_file(&module.name)).or_else(|| {
        let mut files = modules.iter();
        files
            .any(|module| modules.has_section(module, OF_GO))
            .then_some(&GO)
    })
}

fn by_file(name: &str) -> Option<&'static Managed> {
    let is_of = |prefix: &str| match prefix.contains(".so") || prefix.starts_with("lib") {
        true => name.starts_with(prefix),
        false => name == prefix,
    };
    let known = BY_FILE.iter().find(|(prefix, _)| is_of(prefix));
    known.map(|(_, managed)| managed)
}

impl Managed {
    /// A mapping of this size.
    pub(super) fn describe(&self, size: &str) -> String {
        let Self { name, tool } = self;
        format!("heap of {name}, mapping of {size} (`{tool}` looks inside)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_files() {
        let name = |file| by_file(file).map(|managed| managed.name);
        assert_eq!(name("libjvm.so"), Some("the JVM"));
        assert_eq!(name("node"), Some("V8"));
        assert_eq!(name("libpypy3.10-c.so"), Some("PyPy"));
        assert_eq!(name("nodejs-helper.so"), None);
        assert_eq!(name("libc.so.6"), None);
        assert_eq!(
            GO.describe("378 MiB"),
            "heap of Go, mapping of 378 MiB (`go tool pprof` looks inside)"
        );
    }
}
