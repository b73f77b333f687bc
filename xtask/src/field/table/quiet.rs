//! Programs without a fault whose memory moves: any alarm about them is false.

use super::Case;

const STEADY: &str = "resident memory stays within the bounds that the program sets";

const fn steady(
    language: &'static str,
    source: &'static str,
    fault: &'static str,
    name: &'static str,
) -> Case {
    Case {
        fault: Some(fault),
        classes: &[],
        truth: STEADY,
        ..Case::new(name, language, "no fault", source)
    }
}

const PYTHON: &str = "python/quiet.py";
const C: &str = "native/daemon.c";

pub(super) const CASES: &[Case] = &[
    steady("Python", PYTHON, "ring", "quiet-py-ring"),
    steady("Python", PYTHON, "full_cache", "quiet-py-cache"),
    Case {
        quiet: &["retention"],
        ..steady("Python", PYTHON, "bursts", "quiet-py-bursts")
    },
    steady("Python", PYTHON, "cycles", "quiet-py-cycles"),
    steady("Python", PYTHON, "sessions", "quiet-py-sessions"),
    Case {
        launched: true,
        quiet: &["cache", "retention"],
        ..steady("Python", PYTHON, "sessions", "quiet-py-sessions-launched")
    },
    steady("C", C, "ring", "quiet-c-ring"),
    Case {
        quiet: &["retention"],
        ..steady("C", C, "bursts", "quiet-c-bursts")
    },
    Case {
        quiet: &["retention"],
        ..steady("C", C, "arenas", "quiet-c-arenas")
    },
    Case {
        quiet: &["cache", "undetermined"],
        truth: "the cache has at most 700 entries, and fills up meanwhile",
        ..steady("C++", "native/broker.cc", "cache", "quiet-cpp-cache")
    },
    steady("Go", "native/relay.go", "garbage", "quiet-go-garbage"),
    steady("Java", "managed/Desk.java", "garbage", "quiet-java-garbage"),
    steady("Node", "managed/portal.js", "garbage", "quiet-node-garbage"),
    steady("Ruby", "managed/blog.rb", "garbage", "quiet-ruby-garbage"),
];
