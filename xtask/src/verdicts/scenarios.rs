//! The scenarios of `tests/targets/growth/` and the verdicts that they must get.

/// A way to grow.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Classes that are right for the process; the first is the one that is meant.
    pub(super) expected: &'static [&'static str],
    /// The function that a site verdict of the same class must name; empty: none need.
    pub(super) blamed: &'static str,
    /// The verdict is that of the forked child.
    pub(super) child: bool,
    /// It ends within the recording.
    pub(super) ends: bool,
}

const fn scenario(
    name: &'static str,
    expected: &'static [&'static str],
    blamed: &'static str,
) -> Scenario {
    Scenario {
        name,
        expected,
        blamed,
        child: false,
        ends: false,
    }
}

const fn of_child(name: &'static str, expected: &'static [&'static str]) -> Scenario {
    Scenario {
        name,
        expected,
        blamed: "",
        child: true,
        ends: false,
    }
}

/// A program that frees its memory and ends before the recording does.
const fn ending(name: &'static str, expected: &'static [&'static str]) -> Scenario {
    Scenario {
        ends: true,
        ..scenario(name, expected, "")
    }
}

/// A random walk may rise by chance, and the allocator may keep the memory of its peak.
const WANDERS: &[&str] = &["none", "undetermined", "cache", "retention"];

/// The usual verdict, and the one that the next batches would change.
const BURSTS_KEPT: &[&str] = &["leak", "undetermined"];

/// Rarer and rarer new keys may look like a cache or like nothing that can be decided yet.
const ZIPF: &[&str] = &["undetermined", "cache"];

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("leak-malloc", &["leak"], "grow_heap"),
    scenario("leak-some", &["leak"], "grow_heap"),
    scenario("leak-small", &["leak"], "grow_heap"),
    scenario("leak-shrunk", &["leak"], "grow_shrunk"),
    scenario("shrunk", &["none"], ""),
    scenario("leak-mmap", &["leak"], "grow_mmap"),
    scenario("leak-syscall", &["leak"], "grow_syscall"),
    scenario("new", &["leak"], "grow_session"),
    scenario("step", &["leak"], "grow_heap"),
    scenario("cache-unbounded", &["leak"], "grow_cache"),
    scenario("py-leak-list", &["leak"], "grow_list"),
    scenario("py-leak-service", &["leak"], "grow_answer"),
    scenario("py-service", &["none"], ""),
    scenario("py-leak-small", &["leak"], "grow_small"),
    scenario("py-leak-cycle", &["leak"], "grow_cycle"),
    scenario("py-cache-unbounded", &["leak"], "grow_dict"),
    scenario("leak-mappings", &["mapping-leak"], "grow_space"),
    scenario("leak-fd", &["fd-leak"], ""),
    scenario("memfd", &["fd-leak"], ""),
    scenario("leak-process", &["process-leak"], ""),
    scenario("thread-churn", &["thread-churn"], ""),
    scenario("leak-shm", &["shmem"], ""),
    scenario("retention", &["retention"], ""),
    scenario("arenas", &["retention"], ""),
    scenario("thp", &["thp"], ""),
    scenario("madv-free", &["madv-free"], ""),
    scenario("page-cache", &["page-cache"], ""),
    of_child("copy-on-write", &["copy-on-write"]),
    of_child("py-copy-on-write", &["copy-on-write"]),
    scenario("cache-lru", &["cache"], ""),
    scenario("py-cache-lru", &["cache"], ""),
    scenario("cache-zipf", ZIPF, ""),
    scenario("py-cache-functools", &["cache"], ""),
    scenario("py-cache-zipf", ZIPF, ""),
    scenario("ar1", &["none"], ""),
    scenario("walk", WANDERS, ""),
    ending("walk-ended", WANDERS),
    scenario("py-walk", WANDERS, ""),
    ending("py-walk-ended", WANDERS),
    scenario("day", WANDERS, ""),
    ending("day-ended", WANDERS),
    scenario("py-day", WANDERS, ""),
    scenario("cache-random", &["cache", "undetermined"], ""),
    scenario("py-cache-random", &["cache", "undetermined"], ""),
    scenario("bursts", WANDERS, ""),
    scenario("bursts-kept", BURSTS_KEPT, "grow_heap"),
    scenario("sawtooth", &["none"], ""),
    scenario("sawtooth-mapped", &["none"], ""),
    scenario("warm-up", &["none"], ""),
    of_child("py-leak-workers", &["leak"]),
    of_child("py-workers", &["none"]),
    scenario("flat", &["none"], ""),
    scenario("py-flat", &["none"], ""),
];
