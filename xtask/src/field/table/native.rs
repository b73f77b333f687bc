//! Compiled programs: C, C++, Rust.

use super::Case;

const LOST: &[&str] = &["nothing", "no pointer"];
const VALGRIND: &str = "valgrind: definitely lost, at the marked line";
const REACHABLE: &str = "valgrind: still reachable, allocated at the marked line";
const FILLED: &str = "the source: nothing removes entries; without the fault, memory is flat";

const fn daemon(fault: &'static str, name: &'static str, keeper: &'static [&'static str]) -> Case {
    Case {
        fault: Some(fault),
        keeper,
        truth: REACHABLE,
        ..Case::new(name, "C", "container", "native/daemon.c")
    }
}

const fn lost(case: Case) -> Case {
    Case {
        kind: "lost",
        keeper: LOST,
        truth: VALGRIND,
        ..case
    }
}

/// A block that is enlarged again and again.
const fn buffer(case: Case) -> Case {
    Case {
        kind: "buffer",
        ..case
    }
}

const fn broker(fault: &'static str, name: &'static str, keeper: &'static [&'static str]) -> Case {
    Case {
        language: "C++",
        source: "native/broker.cc",
        truth: FILLED,
        ..daemon(fault, name, keeper)
    }
}

const fn gateway(fault: &'static str, name: &'static str, keeper: &'static [&'static str]) -> Case {
    Case {
        language: "Rust",
        source: "native/gateway.rs",
        truth: FILLED,
        ..daemon(fault, name, keeper)
    }
}

pub(super) const CASES: &[Case] = &[
    daemon("remembered", "c-list", &["history"]),
    daemon("sessions", "c-table", &["table"]),
    Case {
        truth: "the source: each request sets another variable; without the fault, always the same",
        ..daemon(
            "environment",
            "c-environment",
            &["environ", "known_values", "libc"],
        )
    },
    Case {
        // Its heap is fragmented by blocks of changing sizes, also untraced.
        quiet: &["retention"],
        ..buffer(daemon("log", "c-log", &["text_of_log"]))
    },
    lost(daemon("error_path", "c-error-path", LOST)),
    lost(daemon("filters", "c-filters", LOST)),
    Case {
        classes: &["leak", "fd-leak"],
        ..lost(daemon("folders", "c-folders", LOST))
    },
    Case {
        kind: "mapping",
        classes: &["leak", "mapping-leak"],
        keeper: &[],
        truth: "address space (VmSize) rises by the size of each short upload; without the fault it is constant",
        ..daemon("short_uploads", "c-uploads", &[])
    },
    Case {
        kind: "mapping",
        classes: &["leak", "mapping-leak"],
        never: &["nothing to fix"],
        truth: "one more mapping in /proc/PID/maps for each second query",
        ..daemon("file_segments", "c-file-mappings", &[])
    },
    Case {
        kind: "threads, tasks, processes",
        classes: &["thread-leak", "leak", "mapping-leak"],
        quiet: &["thread-churn"],
        truth: "one more stack in /proc/PID/maps for each thread; all have ended",
        ..daemon("thread_per_request", "c-threads", &["join", "detach"])
    },
    broker("topics", "cpp-topics", &["topics"]),
    Case {
        kind: "cycle",
        truth: "valgrind: lost in blocks that refer to each other",
        ..broker(
            "cycles",
            "cpp-cycle",
            &["cycle", "each other", "one another"],
        )
    },
    lost(broker("base", "cpp-base", LOST)),
    broker("listeners", "cpp-listeners", &["listeners"]),
    Case {
        quiet: &["thread-churn"],
        ..broker("futures", "cpp-futures", &["futures"])
    },
    broker("waiting", "cpp-backlog", &["waiting"]),
    buffer(broker("samples", "cpp-samples", &["samples"])),
    gateway("cache", "rust-cache", &["CACHE"]),
    gateway("audit", "rust-audit", &["AUDIT"]),
    Case {
        kind: "cycle",
        truth: "valgrind: lost in blocks that refer to each other",
        ..gateway(
            "cycle",
            "rust-cycle",
            &["cycle", "each other", "one another"],
        )
    },
    gateway(
        "channel",
        "rust-channel",
        &["channel", "mpsc", "Receiver", "inbox"],
    ),
    buffer(gateway("journal", "rust-journal", &["JOURNAL"])),
    lost(gateway("forgotten", "rust-forgotten", LOST)),
];
