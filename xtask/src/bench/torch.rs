//! What tracing costs a loop of PyTorch on a device.

use super::{
    child::{Collector, Target},
    median, parse_ns,
};
use crate::command::{find, root};
use anyhow::{Context, Result};
use std::path::Path;

/// How the loop is traced: in words, and the options of `memtrace record`; `None`: not at all.
const WAYS: [(&str, Option<&[&str]>); 4] = [
    ("no tracing", None),
    (
        "record --no-heap --no-python",
        Some(&["--no-heap", "--no-python"]),
    ),
    ("record --no-heap", Some(&["--no-heap"])),
    ("record", Some(&[])),
];

/// Where it computes, and what a step takes then. On a stand-in for a GPU the first is the host's
/// work alone, which a GPU would hide a part of.
const DEVICES: [(&str, &str); 2] = [
    ("cuda", "a step of training on device 0"),
    ("cpu", "a step of training on the CPU"),
];

pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    environment: &Path,
    only: Option<&str>,
    rounds: usize,
) -> Result<()> {
    let wanted = |device: &str| only.is_none_or(|only| only == device);
    for (device, what) in DEVICES.into_iter().filter(|(device, _)| wanted(device)) {
        run_on(device, what, memtrace, folder, environment, rounds)?;
    }
    Ok(())
}

fn run_on(
    device: &str,
    what: &str,
    memtrace: &Path,
    folder: &Path,
    environment: &Path,
    rounds: usize,
) -> Result<()> {
    let python = std::path::absolute(environment.join("bin/python"))?;
    let (python, script) = (
        python.display().to_string(),
        root().join("xtask/torch/loop.py").display().to_string(),
    );
    let env = find("env").context("no program `env`")?;
    let arguments = ["CUDA_VISIBLE_DEVICES=0", &python, &script, device];
    let mut times = vec![Vec::new(); WAYS.len()];
    for round in 1..=rounds {
        for ((_, options), times) in WAYS.iter().zip(&mut times) {
            let mut target = Target::start(&env, &arguments)?;
            let file = folder.join("torch.mtr");
            let collector = options
                .map(|options| Collector::attach(memtrace, target.id(), &file, options))
                .transpose()?;
            target.go()?;
            times.push(parse_ns(&target.finish()?)?);
            if let Some(collector) = collector {
                collector.finish()?;
            }
        }
        eprintln!("round {round} of {rounds} done");
    }
    println!("{what} (forward, backward, update), median of {rounds} rounds");
    println!("  {:<32}{:>12} {:>9}", "", "µs a step", "× none");
    // Each round by itself, for what else the machine does changes from one to the next.
    let untraced = times[0].clone();
    for ((name, _), times) in WAYS.iter().zip(&mut times) {
        let mut ratios: Vec<f64> = times
            .iter()
            .zip(&untraced)
            .map(|(ns, untraced)| ns / untraced)
            .collect();
        let (ns, ratio) = (median(times), median(&mut ratios));
        println!("  {name:<32}{:>12.1} {ratio:>9.3}", ns / 1e3);
    }
    Ok(())
}
