//! Services in Python whose own code has the fault.

use super::Case;

const COUNTED: &str =
    "tracemalloc: the growth is at the marked line; the source: nothing removes entries";

/// The arena of a thread that serves a queue is touched for the first time for a minute or more, also untraced.
const FIRST_TOUCH: &[&str] = &["undetermined"];

const fn service(fault: &'static str, name: &'static str, keeper: &'static [&'static str]) -> Case {
    Case {
        fault: Some(fault),
        keeper,
        truth: COUNTED,
        ..Case::new(name, "Python", "container", "python/service.py")
    }
}

const fn parallel(
    fault: &'static str,
    name: &'static str,
    keeper: &'static [&'static str],
) -> Case {
    Case {
        kind: "threads, tasks, processes",
        source: "python/parallel.py",
        ..service(fault, name, keeper)
    }
}

pub(super) const CASES: &[Case] = &[
    service("errors", "py-errors", &["recent"]),
    service(
        "plans",
        "py-plans",
        &["lru_cache", "cache_clear", "its cache"],
    ),
    service("metrics", "py-metrics", &["counters"]),
    service("bus", "py-bus", &["subscribers"]),
    service("finalizers", "py-finalizers", &["_registry", "finalize"]),
    Case {
        truth: "atexit._ncallbacks() rises with the requests; its table is in C",
        ..service("atexit", "py-atexit", &["atexit"])
    },
    service("handlers", "py-handlers", &["handlers"]),
    Case {
        kind: "lost",
        truth: "the block's address is overwritten; malloc_stats has the bytes",
        ..service("native", "py-native", &["nothing", "no pointer"])
    },
    Case {
        // Python's anonymous mappings are shared ones.
        classes: &["leak", "mapping-leak", "shmem"],
        truth: "one more mapping in /proc/PID/maps for each request",
        ..service("uploads", "py-uploads", &["waiting"])
    },
    Case {
        truth: "the source: each database stays in the table, and none does without the fault",
        ..service("databases", "py-databases", &["sessions"])
    },
    Case {
        kind: "cycle",
        truth: "gc.collect() frees all of it",
        ..service("cycles", "py-cycles", &["cycle"])
    },
    service(
        "defaults",
        "py-defaults",
        &["__defaults__", "seen", "visit"],
    ),
    service("generators", "py-generators", &["streams"]),
    service("trees", "py-trees", &["history"]),
    service("numbers", "py-numbers", &["times"]),
    Case {
        kind: "buffer",
        ..service("export", "py-export", &["file"])
    },
    Case {
        launched: true,
        ..service("bus", "py-bus-launched", &["subscribers"])
    },
    Case {
        launched: true,
        ..service("metrics", "py-metrics-launched", &["counters"])
    },
    Case {
        quiet: &["thread-churn"],
        ..parallel("threads", "py-threads", &["workers"])
    },
    parallel("backlog", "py-backlog", &["jobs", "queue"]),
    parallel("local", "py-local", &["sessions"]),
    Case {
        quiet: FIRST_TOUCH,
        truth: "resident memory of the workers alone rises; without the fault it is flat",
        ..parallel("processes", "py-processes", &["done"])
    },
    Case {
        quiet: FIRST_TOUCH,
        ..parallel("results", "py-results", &["results"])
    },
    parallel("tasks", "py-tasks", &["background"]),
    parallel("timers", "py-timers", &["_scheduled"]),
    parallel("connections", "py-connections", &["sessions"]),
];
