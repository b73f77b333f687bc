//! The tables of a recording and their version. `docs/reference/recording.md` describes
//! them for readers; a change here is a new [`VERSION`], a line there and a recording of it in
//! `tests/schemas/`.

use super::{CgroupSample, MemorySample, SystemSample};

/// `application_id` of the SQLite header: "mtrc".
pub(super) const APPLICATION_ID: i64 = 0x6d74_7263;

/// `user_version` of the SQLite header.
pub(super) const VERSION: i64 = 17;

/// From this version on, recordings have no journal beside them, see [`super::file`].
pub(super) const WITHOUT_JOURNAL: i64 = 11;

/// The oldest version that is still read: a later one has only added tables, and columns at the end of
/// their tables, which are NULL, or their default, in older recordings.
pub(super) const OLDEST: i64 = 5;

/// The oldest version of memtrace's schema whose readers understand a recording made now. To be
/// raised to [`VERSION`] when existing data changes its meaning or is removed, and when a layer, an
/// end of stacks or an origin is added.
pub(super) const MIN_READER: i64 = 16;

/// Makes every table.
pub(super) fn statements() -> String {
    [TABLES, &samples(), FACT, UNTRACED, HOLDERS, TYPES].concat()
}

/// Times are CLOCK_MONOTONIC nanoseconds, sizes bytes. Strings, frames, locations and stacks are
/// stored once; the tree of stacks has millions of nodes, so a row holds a run of them. Current
/// figures are in `site`; `site_history` is in order of time, so that an interval touches few
/// pages; it grows until intervals are merged (`thin.rs`).
const TABLES: &str = "
CREATE TABLE recording (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    meta TEXT NOT NULL,
    finished_ns INTEGER,
    min_reader INTEGER
);
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    tgid INTEGER NOT NULL,
    ppid INTEGER NOT NULL,
    origin TEXT NOT NULL,
    comm TEXT NOT NULL,
    cmdline TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    exit_status INTEGER,
    rss_at_start INTEGER,
    folded INTEGER
);
CREATE TABLE string (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL
);
CREATE TABLE frame (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    function INTEGER,
    module INTEGER,
    build_id INTEGER,
    file_offset INTEGER,
    file INTEGER,
    line INTEGER,
    inlined INTEGER NOT NULL,
    unresolved INTEGER
);
CREATE TABLE location (
    id INTEGER PRIMARY KEY,
    frames BLOB NOT NULL
);
CREATE TABLE node (
    first INTEGER PRIMARY KEY,
    nodes BLOB NOT NULL
);
CREATE TABLE stack (
    id INTEGER PRIMARY KEY,
    node INTEGER NOT NULL,
    end TEXT NOT NULL,
    thread INTEGER
);
CREATE TABLE interval (
    id INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    emitted INTEGER NOT NULL,
    received INTEGER NOT NULL
);
CREATE TABLE round (
    interval INTEGER PRIMARY KEY
);
CREATE TABLE site (
    id INTEGER PRIMARY KEY,
    process INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    stack INTEGER NOT NULL,
    by_allocator INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    live_count INTEGER NOT NULL,
    inherited_bytes INTEGER NOT NULL,
    inherited_count INTEGER NOT NULL,
    alloc_bytes INTEGER NOT NULL,
    alloc_count INTEGER NOT NULL,
    free_bytes INTEGER NOT NULL,
    free_count INTEGER NOT NULL,
    peak_bytes INTEGER NOT NULL,
    peak_ns INTEGER NOT NULL,
    at_peak_bytes INTEGER NOT NULL,
    at_peak_count INTEGER NOT NULL,
    peak_epoch INTEGER NOT NULL,
    first_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    lifetimes BLOB NOT NULL,
    device INTEGER
);
CREATE TABLE site_history (
    interval INTEGER NOT NULL,
    site INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    live_count INTEGER NOT NULL,
    inherited_bytes INTEGER NOT NULL,
    inherited_count INTEGER NOT NULL,
    alloc_bytes INTEGER NOT NULL,
    alloc_count INTEGER NOT NULL,
    free_bytes INTEGER NOT NULL,
    free_count INTEGER NOT NULL,
    peak_bytes INTEGER NOT NULL,
    peak_ns INTEGER NOT NULL,
    PRIMARY KEY (interval, site)
) WITHOUT ROWID;
CREATE TABLE layer_history (
    process INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    interval INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    live_count INTEGER NOT NULL,
    inherited_bytes INTEGER NOT NULL,
    inherited_count INTEGER NOT NULL,
    alloc_bytes INTEGER NOT NULL,
    alloc_count INTEGER NOT NULL,
    free_bytes INTEGER NOT NULL,
    free_count INTEGER NOT NULL,
    peak_bytes INTEGER NOT NULL,
    peak_ns INTEGER NOT NULL,
    peak_epoch INTEGER NOT NULL,
    before_attach_bytes INTEGER NOT NULL,
    cleared_by_exec_bytes INTEGER NOT NULL,
    cleared_by_exec_count INTEGER NOT NULL,
    PRIMARY KEY (process, layer, interval)
) WITHOUT ROWID;
CREATE TABLE loss (
    interval INTEGER NOT NULL,
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (reason, interval)
) WITHOUT ROWID;
CREATE TABLE device_history (
    process INTEGER NOT NULL,
    device INTEGER NOT NULL,
    interval INTEGER NOT NULL,
    allocated INTEGER,
    peak_allocated INTEGER,
    reserved INTEGER,
    peak_reserved INTEGER,
    largest_free INTEGER,
    runtime INTEGER NOT NULL,
    runtime_by_cache INTEGER NOT NULL,
    driver INTEGER NOT NULL,
    driver_by_allocator INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    PRIMARY KEY (process, device, interval)
) WITHOUT ROWID;
CREATE TABLE stream_history (
    process INTEGER NOT NULL,
    device INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    interval INTEGER NOT NULL,
    allocated INTEGER NOT NULL,
    requested INTEGER NOT NULL,
    PRIMARY KEY (process, device, stream, interval)
) WITHOUT ROWID;
CREATE TABLE device_usage (
    process INTEGER NOT NULL,
    device INTEGER NOT NULL,
    interval INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (process, device, interval)
) WITHOUT ROWID;
CREATE TABLE device_failure (
    process INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    device INTEGER NOT NULL,
    stack INTEGER NOT NULL,
    error INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    allocated INTEGER,
    peak_allocated INTEGER,
    reserved INTEGER,
    peak_reserved INTEGER,
    largest_free INTEGER,
    runtime INTEGER NOT NULL,
    runtime_by_cache INTEGER NOT NULL,
    driver INTEGER NOT NULL,
    driver_by_allocator INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    PRIMARY KEY (process, layer, device, stack, error)
) WITHOUT ROWID;
CREATE TABLE library (
    file TEXT PRIMARY KEY,
    library TEXT NOT NULL,
    lacking TEXT NOT NULL
);
CREATE TABLE held_open (
    process INTEGER NOT NULL,
    site INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    holes INTEGER NOT NULL,
    PRIMARY KEY (process, site)
) WITHOUT ROWID;
CREATE TABLE births (
    site INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    rows BLOB NOT NULL
);
CREATE TABLE ages (
    site INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    ages BLOB NOT NULL,
    lifetimes BLOB NOT NULL
);
";

/// The tables that hold samples; their columns are the fields'.
fn samples() -> String {
    let table = |name: &str, keys: &[&str], columns: &[&str]| {
        let required: Vec<_> = keys
            .iter()
            .map(|key| format!("{key} INTEGER NOT NULL"))
            .collect();
        format!(
            "CREATE TABLE {name} ({}, {} INTEGER, PRIMARY KEY ({})) WITHOUT ROWID;\n",
            required.join(", "),
            columns.join(" INTEGER, "),
            keys.join(", ")
        )
    };
    [
        table("memory", &["process", "interval"], MemorySample::COLUMNS),
        table("system", &["interval"], SystemSample::COLUMNS),
        table("cgroup", &["cgroup", "interval"], CgroupSample::COLUMNS),
        "CREATE TABLE in_cgroup (process INTEGER PRIMARY KEY, cgroup INTEGER NOT NULL);\n".into(),
    ]
    .concat()
}

/// A process has one value for a field.
const FACT: &str = "
CREATE TABLE fact (
    process INTEGER NOT NULL,
    field INTEGER NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (process, field)
) WITHOUT ROWID;
";

/// Processes of the job that are not in the recording, see [`super::untraced`].
const UNTRACED: &str = "
CREATE TABLE untraced (
    tgid INTEGER PRIMARY KEY,
    comm TEXT NOT NULL,
    cmdline TEXT NOT NULL,
    why TEXT NOT NULL
);
";

/// Holders of the blocks of a site, see [`super::holders`].
const HOLDERS: &str = "
CREATE TABLE holders (
    site INTEGER PRIMARY KEY,
    sampled INTEGER NOT NULL,
    after_ns INTEGER,
    unknown TEXT
);
CREATE TABLE unsearched (
    process INTEGER PRIMARY KEY,
    why TEXT NOT NULL,
    error TEXT
);
CREATE TABLE holders_way (
    site INTEGER NOT NULL,
    way INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    held TEXT NOT NULL,
    container INTEGER,
    expression INTEGER,
    container_number INTEGER,
    PRIMARY KEY (site, way)
) WITHOUT ROWID;
CREATE TABLE holders_step (
    site INTEGER NOT NULL,
    way INTEGER NOT NULL,
    step INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name INTEGER NOT NULL,
    type INTEGER,
    length INTEGER,
    growth_per_s REAL,
    repeated INTEGER NOT NULL,
    buffer INTEGER,
    length_limit INTEGER,
    PRIMARY KEY (site, way, step)
) WITHOUT ROWID;
";

/// Counts of Python's objects by type, see [`super::types`].
const TYPES: &str = "
CREATE TABLE census (
    process INTEGER PRIMARY KEY,
    counted INTEGER NOT NULL,
    too_large INTEGER NOT NULL,
    unreadable INTEGER NOT NULL
);
CREATE TABLE growing_type (
    process INTEGER NOT NULL,
    name INTEGER NOT NULL,
    first_ns INTEGER NOT NULL,
    first_count INTEGER NOT NULL,
    first_bytes INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    last_count INTEGER NOT NULL,
    last_bytes INTEGER NOT NULL,
    examined INTEGER NOT NULL,
    unreached INTEGER NOT NULL,
    number INTEGER,
    PRIMARY KEY (process, name)
) WITHOUT ROWID;
";
