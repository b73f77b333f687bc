//! Programs that do known wrong with a device's memory (`xtask/torch/cases.py`):
//! the layer, the line and its bytes that memtrace reports, and its verdict.

use super::start;
use crate::{
    bench::child::Collector,
    command::{self, root},
};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::{fmt::Write, path::Path, process::Command};

pub(super) const CASES: [&str; 7] = [
    "outputs",
    "results",
    "graph",
    "cycle",
    "fragmentation",
    "pinned",
    "steady",
];

/// How long each case grows, seconds, and the interval of the recording.
const SECONDS: &str = "20";
const INTERVAL: &str = "200ms";

/// A case's own figures.
#[derive(Debug, Deserialize)]
struct Truth {
    layer: Option<String>,
    line: Option<u32>,
    bytes: u64,
    /// By torch.cuda.
    allocated: u64,
    reserved: u64,
    verdict: Option<String>,
}

/// Runs each case, or only one, and prints a line for each.
pub(super) fn run(memtrace: &Path, python: &Path, folder: &Path, only: Option<&str>) -> Result<()> {
    for name in CASES
        .into_iter()
        .filter(|name| only.is_none_or(|only| only == *name))
    {
        let found = case(name, memtrace, python, folder).with_context(|| format!("case {name}"))?;
        println!("{name:<20} {found}");
    }
    Ok(())
}

fn case(name: &str, memtrace: &Path, python: &Path, folder: &Path) -> Result<String> {
    let script = root().join("xtask/torch/cases.py").display().to_string();
    let python = python.display().to_string();
    let mut target = start(&[&python, &script, name, SECONDS])?;
    let file = folder.join(format!("case-{name}.mtr"));
    let options = ["--no-heap", "--interval", INTERVAL];
    let collector = Collector::attach(memtrace, target.id(), &file, &options)?;
    let truth: Truth = serde_json::from_str(&target.ask("")?)?;
    collector.interrupt()?;
    target.finish()?;

    let grouped = [
        "report",
        "--by",
        "program-line",
        "--at",
        "end",
        "--top",
        "1000",
    ];
    let report = json(memtrace, &grouped, &file)?;
    let diagnosis = json(memtrace, &["diagnose"], &file)?;
    let mut words = String::new();
    if let (Some(layer), Some(line)) = (&truth.layer, truth.line) {
        let (key, bytes) = first_of(&report, layer)?;
        let expected = format!("cases.py:{line} ");
        ensure!(
            key.contains(&expected) && bytes == truth.bytes,
            "first of {layer} is {key} with {bytes} bytes, expected {expected}with {}",
            truth.bytes
        );
        write!(words, "{layer}: line {line}, {bytes} bytes; ")?;
    }
    let device = list(&report, "devices").first();
    let device = device.context("no device in the report")?;
    let (allocated, reserved) = (&device["allocated"], &device["reserved"]);
    // Not known until PyTorch's allocator has been at work.
    let unheard = allocated.is_null() && name == "pinned";
    ensure!(
        unheard || *allocated == truth.allocated && *reserved == truth.reserved,
        "{allocated} bytes allocated and {reserved} reserved, PyTorch reports {} and {}",
        truth.allocated,
        truth.reserved
    );
    let classes = classes(&diagnosis);
    let about_devices = |class: &&String| class.starts_with("gpu-") || *class == "pinned";
    let found: Vec<_> = classes.iter().filter(about_devices).collect();
    let expected: Vec<_> = truth.verdict.iter().collect();
    ensure!(
        found == expected,
        "the verdicts on the process are {classes:?}, expected {expected:?}"
    );
    write!(words, "verdict {}", classes.join(", "))?;
    Ok(words)
}

fn json(memtrace: &Path, arguments: &[&str], file: &Path) -> Result<Value> {
    let mut command = Command::new(memtrace);
    command.args(arguments).args(["--format", "json"]).arg(file);
    serde_json::from_str(&command::output(&mut command)?).context("no JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The line that holds most of a layer, and its live bytes.
fn first_of(report: &Value, layer: &str) -> Result<(String, u64)> {
    let groups = list(report, "groups").iter();
    let first = groups
        .filter(|group| group["layer"] == layer)
        .max_by_key(|group| group["live_bytes"].as_u64())
        .with_context(|| format!("nothing in the layer {layer}"))?;
    let key = first["key"].as_str().unwrap_or_default();
    Ok((key.into(), first["live_bytes"].as_u64().unwrap_or(0)))
}

/// The classes of the verdicts on processes.
fn classes(diagnosis: &Value) -> Vec<String> {
    let verdicts = list(diagnosis, "verdicts").iter();
    let classes = verdicts.filter(|verdict| verdict["scope"] == "process");
    classes
        .filter_map(|verdict| verdict["class"].as_str())
        .map(String::from)
        .collect()
}
