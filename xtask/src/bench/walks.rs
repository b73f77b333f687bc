//! What the walk of a stack takes by its depth, beside `bpf_get_stackid` for the same events.

use super::child::{Collector, Target};
use crate::command::{compile_c_with, root};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Frames of the stacks, each in a bucket of its own of `memtrace record --time-walks`.
const DEPTHS: [u32; 5] = [5, 15, 30, 60, 120];

/// A build, its flag, and whether `bpf_get_stackid` walks as far as memtrace does: it follows frame
/// pointers, and has less to do where it finds none.
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

fn measure(
    memtrace: &Path,
    folder: &Path,
    program: &Path,
    depth: u32,
    count: u64,
) -> Result<[u64; 4]> {
    let mut target = Target::start(program, [&depth.to_string(), &count.to_string()])?;
    let file = folder.join("walks.mtr");
    let collector = Collector::attach(memtrace, target.id(), &file, &["--time-walks"])?;
    target.go()?;
    target.finish()?;
    let ended = collector.finish()?;
    let buckets: Value = ended
        .stderr
        .iter()
        .find_map(|line| line.strip_prefix("timings: "))
        .map(serde_json::from_str)
        .context("memtrace --time-walks printed no line `timings: …`")??;
    let row = buckets
        .as_array()
        .into_iter()
        .flatten()
        .find(|row| {
            let number = |key: &str| row.get(key).and_then(Value::as_u64);
            number("least_frames") <= Some(depth.into())
                && number("most_frames").is_none_or(|most| most >= depth.into())
                && number("walks") >= Some(count)
        })
        .with_context(|| format!("there are no walks of {depth} frames among {buckets}"))?;
    let pick = |key: &str, quantile: &str| {
        row.get(key)
            .and_then(|times| times.get(quantile))
            .and_then(Value::as_u64)
            .with_context(|| format!("no {quantile} of {key}"))
    };
    Ok([
        pick("walk_ns", "p50")?,
        pick("walk_ns", "p99")?,
        pick("stackid_ns", "p50")?,
        pick("stackid_ns", "p99")?,
    ])
}
