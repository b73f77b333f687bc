//! What tracing costs a loop of PyTorch on a device.
//!
//! Two processes that do the same differ by more than the tracing costs (where their heaps lie
//! decides how often they fault), and so does one minute of a machine from the next. So one process
//! does all, and what it takes while it is traced stands beside what it took right before and after.

use super::{
    child::{Collector, Target},
    median,
    programs::Counting,
};
use crate::command::{find, root};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The options of `memtrace record`.
const WAYS: [&[&str]; 3] = [&["--no-heap", "--no-python"], &["--no-heap"], &[]];

/// Where it computes, what a step takes then, and steps of one measurement. On a stand-in for a GPU
/// the first is the host's work alone, which a GPU would hide a part of.
const DEVICES: [(&str, &str, u32); 2] = [
    ("cuda", "a step of training on device 0", 500),
    ("cpu", "a step of training on the CPU", 15),
];

/// What was measured in one way of tracing, a figure a round.
#[derive(Default)]
struct Figures {
    untraced_ns: Vec<f64>,
    ratios: Vec<f64>,
    /// Share of the time that went into memtrace's programs.
    shares: Vec<f64>,
}

struct Bench<'a> {
    memtrace: &'a Path,
    folder: &'a Path,
    target: Target,
    steps: u32,
}

pub(super) fn run(
    memtrace: &Path,
    folder: &Path,
    environment: &Path,
    only: Option<&str>,
    rounds: usize,
) -> Result<()> {
    let python = std::path::absolute(environment.join("bin/python"))?;
    let (python, script) = (
        python.display().to_string(),
        root().join("xtask/torch/loop.py").display().to_string(),
    );
    let env = find("env").context("no program `env`")?;
    for (device, what, steps) in DEVICES {
        if only.is_some_and(|only| only != device) {
            continue;
        }
        let arguments = ["CUDA_VISIBLE_DEVICES=0", &python, &script, device];
        let bench = Bench {
            memtrace,
            folder,
            target: Target::start(&env, &arguments)?,
            steps,
        };
        println!("{what} (forward, backward, update), {steps} steps, median of {rounds} rounds:");
        bench.run(rounds)?;
    }
    Ok(())
}

impl Bench<'_> {
    fn run(mut self, rounds: usize) -> Result<()> {
        let mut figures = WAYS.map(|_| Figures::default());
        for round in 1..=rounds {
            for (options, figures) in WAYS.into_iter().zip(&mut figures) {
                self.measure(options, figures)?;
            }
            eprintln!("round {round} of {rounds} done");
        }
        self.target.finish()?;
        println!(
            "  {:<32}{:>14}{:>12}{:>18}",
            "", "untraced, µs", "× untraced", "in its programs"
        );
        for (options, mut figures) in WAYS.into_iter().zip(figures) {
            println!(
                "  {:<32}{:>14.1}{:>12.3}{:>16.2} %",
                ["record", &options.join(" ")].join(" "),
                median(&mut figures.untraced_ns) / 1e3,
                median(&mut figures.ratios),
                median(&mut figures.shares) * 100.0
            );
        }
        Ok(())
    }

    fn measure(&mut self, options: &[&str], figures: &mut Figures) -> Result<()> {
        let before = self.steps()?;
        let file = self.folder.join("torch.mtr");
        let collector = Collector::attach(self.memtrace, self.target.id(), &file, options)?;
        let traced = self.steps()?;
        // By itself, for counting takes time too.
        let counting = Counting::begin()?;
        let begin = counting.run_ns(collector.id())?;
        let counted = self.steps()?;
        let in_programs = counting.run_ns(collector.id())? - begin;
        drop(counting);
        collector.interrupt()?;
        let after = self.steps()?;
        let untraced = (before + after) / 2.0;
        figures.untraced_ns.push(untraced);
        figures.ratios.push(traced / untraced);
        let steps_ns = counted * f64::from(self.steps);
        figures.shares.push(in_programs as f64 / steps_ns);
        Ok(())
    }

    /// What a step takes, ns: of so many the median.
    fn steps(&mut self) -> Result<f64> {
        let answer = self.target.ask(&self.steps.to_string())?;
        let ns: f64 = answer
            .parse()
            .with_context(|| format!("the target said `{answer}`, expected ns a step"))?;
        ensure!(ns > 0.0, "the target measured nothing");
        Ok(ns)
    }
}
