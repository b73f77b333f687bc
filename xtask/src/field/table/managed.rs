//! Languages with a heap of their own: Go, Java, Node, PHP, Ruby. The right answer is that the heap of
//! this language grows, and the tool that looks inside.

use super::Case;

/// Memory that only a collector frees which may wait for long: that it grows for 30 s proves no leak.
const LAZY: &[&str] = &["leak", "undetermined"];

const fn managed(
    language: &'static str,
    source: &'static str,
    fault: &'static str,
    name: &'static str,
) -> Case {
    Case {
        fault: Some(fault),
        ..Case::new(name, language, "managed heap", source)
    }
}

const fn outside(case: Case, functions: &'static [&'static str]) -> Case {
    Case {
        kind: "outside a managed heap",
        functions,
        keeper: &[],
        ..case
    }
}

const fn go(fault: &'static str, name: &'static str) -> Case {
    Case {
        classes: LAZY,
        keeper: &["pprof"],
        truth: "HeapAlloc after runtime.GC() rises",
        ..managed("Go", "native/relay.go", fault, name)
    }
}

const fn java(fault: &'static str, name: &'static str) -> Case {
    Case {
        classes: LAZY,
        keeper: &["jcmd", "JFR", "heap dump", "histogram"],
        truth: "jcmd GC.class_histogram, which collects first, counts more and more of them",
        ..managed("Java", "managed/Desk.java", fault, name)
    }
}

const fn node(fault: &'static str, name: &'static str) -> Case {
    Case {
        classes: LAZY,
        keeper: &["snapshot", "inspect"],
        truth: "process.memoryUsage() rises after global.gc()",
        ..managed("Node", "managed/portal.js", fault, name)
    }
}

const fn php(fault: &'static str, name: &'static str) -> Case {
    Case {
        keeper: &["USE_ZEND_ALLOC", "memory_get_usage"],
        truth: "memory_get_usage() rises",
        ..managed("PHP", "managed/shop.php", fault, name)
    }
}

const fn ruby(fault: &'static str, name: &'static str) -> Case {
    Case {
        keeper: &["ObjectSpace"],
        truth: "ObjectSpace.memsize_of_all rises after GC.start",
        ..managed("Ruby", "managed/blog.rb", fault, name)
    }
}

pub(super) const CASES: &[Case] = &[
    go("goroutines", "go-goroutines"),
    go("table", "go-map"),
    go("slices", "go-slices"),
    java("history", "java-history"),
    Case {
        classes: &["leak"],
        ..outside(
            java("deflater", "java-deflater"),
            &["Deflater", "deflateInit", "libzip", "libz.so"],
        )
    },
    outside(java("direct", "java-direct"), &["irect", "Unsafe"]),
    node("history", "node-history"),
    node("listeners", "node-listeners"),
    outside(
        node("buffers", "node-buffers"),
        &["ArrayBuffer", "Buffer", "BackingStore"],
    ),
    php("history", "php-history"),
    php("listeners", "php-listeners"),
    ruby("audit", "ruby-audit"),
    ruby("cache", "ruby-cache"),
];
