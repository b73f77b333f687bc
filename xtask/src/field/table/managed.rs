//! Languages with a heap of their own: Go, Java, Node, PHP, Ruby. The right answer is that the heap of
//! this language grows, and the tool that looks inside.

use super::Case;

const HEAP: &str = "resident memory rises as the language's own figures of its heap do";

const fn managed(
    language: &'static str,
    source: &'static str,
    fault: &'static str,
    name: &'static str,
    tools: &'static [&'static str],
) -> Case {
    Case {
        fault: Some(fault),
        keeper: tools,
        truth: HEAP,
        ..Case::new(name, language, "managed heap", source)
    }
}

const fn native(case: Case, functions: &'static [&'static str]) -> Case {
    Case {
        kind: "outside a managed heap",
        functions,
        keeper: &[],
        ..case
    }
}

const GO: (&str, &str, &[&str]) = ("Go", "native/relay.go", &["pprof"]);
const JAVA: (&str, &str, &[&str]) = (
    "Java",
    "managed/Desk.java",
    &["jcmd", "JFR", "heap dump", "histogram"],
);
const NODE: (&str, &str, &[&str]) = ("Node", "managed/portal.js", &["snapshot", "inspect"]);
const PHP: (&str, &str, &[&str]) = (
    "PHP",
    "managed/shop.php",
    &["USE_ZEND_ALLOC", "memory_get_usage"],
);
const RUBY: (&str, &str, &[&str]) = ("Ruby", "managed/blog.rb", &["ObjectSpace"]);

const fn of(
    (language, source, tools): (&'static str, &'static str, &'static [&'static str]),
    fault: &'static str,
    name: &'static str,
) -> Case {
    managed(language, source, fault, name, tools)
}

pub(super) const CASES: &[Case] = &[
    of(GO, "goroutines", "go-goroutines"),
    of(GO, "table", "go-map"),
    of(GO, "slices", "go-slices"),
    of(JAVA, "history", "java-history"),
    native(
        of(JAVA, "deflater", "java-deflater"),
        &["Deflater", "deflateInit", "libzip", "libz.so"],
    ),
    native(of(JAVA, "direct", "java-direct"), &["irect", "Unsafe"]),
    of(NODE, "history", "node-history"),
    of(NODE, "listeners", "node-listeners"),
    native(
        of(NODE, "buffers", "node-buffers"),
        &["ArrayBuffer", "Buffer", "BackingStore"],
    ),
    of(PHP, "history", "php-history"),
    of(PHP, "listeners", "php-listeners"),
    of(RUBY, "audit", "ruby-audit"),
    of(RUBY, "cache", "ruby-cache"),
];
