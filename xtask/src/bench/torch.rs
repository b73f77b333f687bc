//! The cost of tracing for a PyTorch loop on a device.
//!
//! Two identical processes differ by more than the cost of tracing (the place of their heaps
//! decides how often they fault), and so does one minute of a machine from the next. So one process
//! does everything, and its time while traced is compared with its time right before and after.

use super::{
    Output,
    child::{Collector, Target},
    figures::median,
    programs::Counting,
    table::{Table, column},
};
use crate::command::{find, root};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// The options of `memtrace record`.
const WAYS: [&[&str]; 3] = [&["--no-heap", "--no-python"], &["--no-heap"], &[]];

/// Device, description of a step on it, steps before the first measurement and in each. On a
/// stand-in for a GPU, the first is the host's work alone, some of which a real device would hide.
/// The second has a device that computes, in a process of its own and at the speed of a CPU.
const DEVICES: [(&str, &str, u32, u32); 3] = [
    ("cuda", "a step of training on device 0", 300, 500),
    (
        "emulated",
        "a step of training on device 0 while another process computes",
        30,
        15,
    ),
    ("cpu", "a step of training on the CPU", 30, 15),
];

/// Measurements of one way of tracing, a figure a round.
#[derive(Default)]
struct Figures {
    untraced_ns: Vec<f64>,
    ratios: Vec<f64>,
    /// Time in memtrace's programs, of all threads, by the time that the steps took.
    shares: Vec<f64>,
    /// Extra time of a step while it is traced, for any reason, per block that the device hands out
    /// in it, ns; none if blocks were not counted.
    per_block_ns: Vec<f64>,
}

/// Duration of some steps, ns, and the blocks that the device's allocator handed out in each.
struct Steps {
    median: f64,
    all: f64,
    blocks: f64,
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
    output: &mut Output,
) -> Result<()> {
    let python = std::path::absolute(environment.join("bin/python"))?;
    let (python, script) = (
        python.display().to_string(),
        root().join("xtask/torch/loop.py").display().to_string(),
    );
    let env = find("env").context("no program `env`")?;
    for (device, what, warm_up, steps) in DEVICES {
        if only.is_some_and(|only| only != device) {
            continue;
        }
        let arguments = ["CUDA_VISIBLE_DEVICES=0", &python, &script, device];
        let mut bench = Bench {
            memtrace,
            folder,
            target: Target::start(&env, &arguments)?,
            steps,
        };
        bench.steps(warm_up)?;
        let title =
            format!("{what} (forward, backward, update), {steps} steps, median of {rounds} rounds");
        let columns = [
            column("untraced_us", "untraced, µs", 1),
            column("times_untraced", "× untraced", 3),
            column("percent_in_programs", "% in memtrace's programs", 2),
            column("us_per_block", "added per block, µs", 1),
        ];
        let mut table = Table::new(&format!("torch-{device}"), title, &columns);
        bench.run(rounds, &mut table)?;
        output.table(&table);
    }
    Ok(())
}

impl Bench<'_> {
    fn run(mut self, rounds: usize, table: &mut Table) -> Result<()> {
        let mut figures = WAYS.map(|_| Figures::default());
        for round in 1..=rounds {
            for (options, figures) in WAYS.into_iter().zip(&mut figures) {
                self.measure(options, figures)?;
            }
            eprintln!("round {round} of {rounds} done");
        }
        self.target.finish()?;
        for (options, mut figures) in WAYS.into_iter().zip(figures) {
            table.row(
                [&["record"], options].concat().join(" "),
                &[
                    Some(median(&mut figures.untraced_ns) / 1e3),
                    Some(median(&mut figures.ratios)),
                    Some(median(&mut figures.shares) * 100.0),
                    // None is no number, so this column stays empty without counts of blocks.
                    Some(median(&mut figures.per_block_ns) / 1e3),
                ],
            );
        }
        Ok(())
    }

    fn measure(&mut self, options: &[&str], figures: &mut Figures) -> Result<()> {
        let before = self.steps(self.steps)?.median;
        let file = self.folder.join("torch.mtr");
        let collector = Collector::attach(self.memtrace, self.target.id(), &file, options)?;
        let Steps {
            median: traced,
            blocks,
            ..
        } = self.steps(self.steps)?;
        // Separately, because counting takes time too.
        let counting = Counting::begin()?;
        let begin = counting.run_ns(collector.id()?)?;
        let counted = self.steps(self.steps)?.all;
        let in_programs = counting.run_ns(collector.id()?)?.checked_sub(begin);
        drop(counting);
        collector.interrupt()?;
        let after = self.steps(self.steps)?.median;
        let untraced = (before + after) / 2.0;
        figures.untraced_ns.push(untraced);
        figures.ratios.push(traced / untraced);
        if blocks > 0.0 {
            figures.per_block_ns.push((traced - untraced) / blocks);
        }
        let in_programs =
            in_programs.context("a BPF program was unloaded while it was measured")?;
        figures.shares.push(in_programs as f64 / counted);
        Ok(())
    }

    fn steps(&mut self, count: u32) -> Result<Steps> {
        let answer = self.target.ask(&count.to_string())?;
        let figures: Result<Vec<f64>, _> = answer.split(' ').map(str::parse).collect();
        match figures.as_deref() {
            Ok(&[median, all, blocks]) if median > 0.0 && all > 0.0 => Ok(Steps {
                median,
                all,
                blocks,
            }),
            _ => bail!(
                "the target printed `{answer}`, expected the median and the sum of ns, and blocks"
            ),
        }
    }
}
