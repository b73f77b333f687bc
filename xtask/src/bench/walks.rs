//! The duration of a stack walk by its depth, beside `bpf_get_stackid` for the same events.

use super::{
    Output,
    child::{Collector, Ended, Target},
    table::{Table, column},
};
use crate::command::{compile_c_with, root};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Frames of the stacks, each in a bucket of its own of `memtrace record --time-walks`.
const DEPTHS: [u32; 5] = [5, 15, 30, 60, 120];

/// Python frames of the stacks. Each is two words of a walk's 2,047.
const PYTHON_FRAMES: [u32; 5] = [1, 5, 10, 20, 40];

/// A table, its build and flag, and whether `bpf_get_stackid` walks as far as memtrace does: it follows frame
/// pointers, and has less to do if it finds none.
const BUILDS: [(&str, &str, &str, bool); 2] = [
    ("walks", "no frame pointers", "-fomit-frame-pointer", false),
    (
        "walks-frame-pointers",
        "frame pointers",
        "-fno-omit-frame-pointer",
        true,
    ),
];

pub(super) fn run(memtrace: &Path, folder: &Path, count: u64, output: &mut Output) -> Result<()> {
    for (name, build, flag, comparable) in BUILDS {
        let program = folder.join(format!("depths{flag}"));
        compile_c_with(
            &["-O2", flag],
            &root().join("xtask/bench/depths.c"),
            &program,
        )?;
        let columns = [
            column("walk_p50", "walk p50", 0),
            column("walk_p99", "p99", 0),
            column("stackid_p50", "bpf_get_stackid p50", 0),
            column("stackid_p99", "p99", 0),
            column("ratio", "ratio", 1),
        ];
        let title = format!("stacks of a program with {build}, {count} of each depth, ns");
        let mut table = Table::new(name, title, &columns);
        for depth in DEPTHS {
            let row = measure(memtrace, folder, &program, depth, count)?;
            let [walk, walk_p99, stackid, stackid_p99] = row.map(|ns| Some(ns as f64));
            let ratio = walk
                .zip(stackid)
                .filter(|_| comparable)
                .map(|(walk, other)| walk / other);
            table.row(
                format!("{depth} frames"),
                &[walk, walk_p99, stackid, stackid_p99, ratio],
            );
        }
        if !comparable {
            table.note("bpf_get_stackid ends at the first function without a frame pointer");
        }
        output.table(&table);
    }
    Ok(())
}

/// The cost that Python frames add to walks.
pub(super) fn run_python(
    memtrace: &Path,
    folder: &Path,
    count: u64,
    output: &mut Output,
) -> Result<()> {
    let columns = [
        column("walk_p50", "walk p50", 0),
        column("walk_p99", "p99", 0),
        column("no_python_p50", "--no-python p50", 0),
        column("no_python_p99", "p99", 0),
        column("per_frame", "per frame", 0),
        column("ratio", "ratio", 2),
    ];
    let title = format!("stacks of a Python program, {count} of each number of Python frames, ns");
    let mut table = Table::new("walks-python", title, &columns);
    let mut added = Vec::new();
    for frames in PYTHON_FRAMES {
        let [with, with_p99] = measure_python(memtrace, folder, frames, count, &[])?;
        let [without, without_p99] =
            measure_python(memtrace, folder, frames, count, &["--no-python"])?;
        let more = with as f64 - without as f64;
        let (per_frame, ratio) = (more / f64::from(frames), with as f64 / without as f64);
        let figures = [
            with as f64,
            with_p99 as f64,
            without as f64,
            without_p99 as f64,
            per_frame,
            ratio,
        ];
        table.row(format!("{frames} frames"), &figures.map(Some));
        added.push((f64::from(frames), more));
    }
    if let [(few, first), .., (many, last)] = &*added {
        let each = (last - first) / (many - few);
        table.note(format!(
            "each Python frame: {each:.0} ns, and once per walk: {:.0} ns",
            first - each * few
        ));
    }
    output.table(&table);
    Ok(())
}

/// The median and the 99th percentile of the walks, ns.
fn measure_python(
    memtrace: &Path,
    folder: &Path,
    frames: u32,
    count: u64,
    options: &[&str],
) -> Result<[u64; 2]> {
    let script = root().join("xtask/bench/frames.py");
    let script = script
        .to_str()
        .context("the path of the repository is not UTF-8")?;
    let arguments = [script, &frames.to_string(), &count.to_string()];
    let mut target = Target::start(Path::new("python3"), &arguments)?;
    let file = folder.join("python.mtr");
    let options = [&["--time-walks"], options].concat();
    let collector = Collector::attach(memtrace, target.id(), &file, &options)?;
    target.go()?;
    target.finish()?;
    let buckets = buckets(&collector.finish()?)?;
    // The number of native frames depends on the interpreter's version and build.
    let walks = |bucket: &Value| bucket.get("walks").and_then(Value::as_u64);
    let bucket = buckets
        .iter()
        .find(|bucket| walks(bucket) >= Some(count))
        .with_context(|| format!("fewer than {count} walks of any depth in {buckets:?}"))?;
    quantiles(bucket, "walk_ns")
}

fn measure(
    memtrace: &Path,
    folder: &Path,
    program: &Path,
    depth: u32,
    count: u64,
) -> Result<[u64; 4]> {
    let mut target = Target::start(program, &[&depth.to_string(), &count.to_string()])?;
    let file = folder.join("walks.mtr");
    let collector = Collector::attach(memtrace, target.id(), &file, &["--time-walks"])?;
    target.go()?;
    target.finish()?;
    let buckets = buckets(&collector.finish()?)?;
    let row = buckets
        .iter()
        .find(|row| {
            let number = |key: &str| row.get(key).and_then(Value::as_u64);
            number("least_frames") <= Some(depth.into())
                && number("most_frames").is_none_or(|most| most >= depth.into())
                && number("walks") >= Some(count)
        })
        .with_context(|| format!("no walks of {depth} frames in {buckets:?}"))?;
    let [walk, walk_p99] = quantiles(row, "walk_ns")?;
    let [stackid, stackid_p99] = quantiles(row, "stackid_ns")?;
    Ok([walk, walk_p99, stackid, stackid_p99])
}

/// The measurements of `memtrace record --time-walks`, by depth.
fn buckets(ended: &Ended) -> Result<Vec<Value>> {
    ended
        .stderr
        .iter()
        .find_map(|line| line.strip_prefix("timings: "))
        .map(serde_json::from_str)
        .context("memtrace --time-walks printed no line `timings: …`")?
        .context("cannot parse the output of memtrace --time-walks")
}

/// The median and the 99th percentile of a bucket, ns.
fn quantiles(bucket: &Value, key: &str) -> Result<[u64; 2]> {
    let pick = |quantile: &str| {
        bucket
            .get(key)
            .and_then(|times| times.get(quantile))
            .and_then(Value::as_u64)
            .with_context(|| format!("no {quantile} of {key}"))
    };
    Ok([pick("p50")?, pick("p99")?])
}
