//! The duration of a stack walk by its depth, beside `bpf_get_stackid` for the same events.

use super::child::{Collector, Ended, Target};
use crate::command::{compile_c_with, root};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Frames of the stacks, each in a bucket of its own of `memtrace record --time-walks`.
const DEPTHS: [u32; 5] = [5, 15, 30, 60, 120];

/// Python frames of the stacks. Each is two words of a walk's 2,047.
const PYTHON_FRAMES: [u32; 5] = [1, 5, 10, 20, 40];

/// A build, its flag, and whether `bpf_get_stackid` walks as far as memtrace does: it follows frame
/// pointers, and has less to do if it finds none.
const BUILDS: [(&str, &str, bool); 2] = [
    ("no frame pointers", "-fomit-frame-pointer", false),
    ("frame pointers", "-fno-omit-frame-pointer", true),
];

pub(super) fn run(memtrace: &Path, folder: &Path, count: u64) -> Result<()> {
    for (build, flag, comparable) in BUILDS {
        let program = folder.join(format!("depths{flag}"));
        compile_c_with(
            &["-O2", flag],
            &root().join("xtask/bench/depths.c"),
            &program,
        )?;
        println!("stacks of a program with {build}, {count} of each depth, ns:");
        if !comparable {
            println!("(bpf_get_stackid ends at the first function without a frame pointer)");
        }
        println!(
            "{:>9}{:>12}{:>9}{:>22}{:>9}{:>9}",
            "frames", "walk p50", "p99", "bpf_get_stackid p50", "p99", "ratio"
        );
        for depth in DEPTHS {
            let row = measure(memtrace, folder, &program, depth, count)?;
            let [walk, walk_p99, stackid, stackid_p99] = row;
            let ratio = if comparable {
                format!("{:.1}", walk as f64 / stackid as f64)
            } else {
                "-".to_owned()
            };
            println!("{depth:>9}{walk:>12}{walk_p99:>9}{stackid:>22}{stackid_p99:>9}{ratio:>9}");
        }
    }
    Ok(())
}

/// The cost that Python frames add to walks.
pub(super) fn run_python(memtrace: &Path, folder: &Path, count: u64) -> Result<()> {
    println!("stacks of a Python program, {count} of each number of Python frames, ns:");
    println!(
        "{:>9}{:>12}{:>9}{:>19}{:>9}{:>12}{:>9}",
        "frames", "walk p50", "p99", "--no-python p50", "p99", "per frame", "ratio"
    );
    let mut added = Vec::new();
    for frames in PYTHON_FRAMES {
        let [with, with_p99] = measure_python(memtrace, folder, frames, count, &[])?;
        let [without, without_p99] =
            measure_python(memtrace, folder, frames, count, &["--no-python"])?;
        let more = with as f64 - without as f64;
        let (per_frame, ratio) = (more / f64::from(frames), with as f64 / without as f64);
        println!(
            "{frames:>9}{with:>12}{with_p99:>9}{without:>19}{without_p99:>9}{per_frame:>12.0}{ratio:>9.2}"
        );
        added.push((f64::from(frames), more));
    }
    if let [(few, first), .., (many, last)] = &*added {
        let each = (last - first) / (many - few);
        println!(
            "each Python frame: {each:.0} ns, and once per walk: {:.0} ns",
            first - each * few
        );
    }
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
