//! Reading a recording, for the commands that do: the options that select a part of it, checks of
//! the selection, and what is shown meanwhile.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};

use crate::{
    event::Layer,
    recording::{At, Snapshot},
    units,
    view::Filter,
};

/// Shown while a command reads a recording for long.
pub(super) const READING: &str = "reading the recording";
/// Shown while the growth in it is classified.
pub(super) const JUDGING: &str = "classifying the growth";

/// Which moment, layer and process to look at.
#[derive(Debug, Args)]
pub(super) struct SelectArgs {
    /// The moment to show: end, peak, or a time since the start such as `90s` [default: the end for
    /// processes that still ran when recording stopped, the peak for those that exited].
    #[arg(long, value_name = "MOMENT", value_parser = parse_at)]
    at: Option<At>,
    /// Only this layer: vm, heap, python, cuda-driver, cuda-runtime, hip, pinned, torch-cuda or
    /// torch-cpu.
    #[arg(long, value_parser = parse_layer)]
    layer: Option<Layer>,
    /// Only this process.
    #[arg(short, long)]
    pid: Option<u32>,
    /// Show an allocator's own frames (operator new, malloc), which JSON always has.
    #[arg(long)]
    show_wrappers: bool,
    /// Show the Python interpreter's own frames, which JSON always has.
    #[arg(long)]
    show_interpreter: bool,
}

impl SelectArgs {
    pub(super) fn at(&self) -> At {
        self.at.unwrap_or_default()
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            layer: self.layer,
            pid: self.pid,
            show_wrappers: self.show_wrappers,
            show_interpreter: self.show_interpreter,
            ..Filter::default()
        }
    }
}

/// Ways to split graphs besides their stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SplitBy {
    Thread,
}

pub(super) fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "end" => Ok(At::End),
        "peak" => Ok(At::Peak),
        time => units::parse_duration(time)
            .ok()
            .and_then(|time| u64::try_from(time.as_nanos()).ok())
            .map(At::Time)
            .ok_or_else(|| {
                format!("`{text}` is not a moment; give `end`, `peak` or a time such as `90s`")
            }),
    }
}

pub(super) fn parse_layer(text: &str) -> Result<Layer, String> {
    let known = Layer::ALL.into_iter().find(|layer| layer.name() == text);
    known.ok_or_else(|| {
        let names = Layer::ALL.map(Layer::name).join(", ");
        format!("`{text}` is not a layer; give one of {names}")
    })
}

/// A process that is not in the recording is a mistake, not an empty report.
pub(super) fn check_pid(snapshot: &Snapshot, pid: Option<u32>) -> anyhow::Result<()> {
    let Some(pid) = pid else { return Ok(()) };
    let rows = || snapshot.processes.iter().map(|process| &process.row);
    let known = rows().filter(|row| !row.is_group());
    let mut pids: Vec<_> = known.map(|row| row.tgid.to_string()).collect();
    if pids.contains(&pid.to_string()) {
        return Ok(());
    }
    pids.truncate(20);
    let folded: u64 = rows().filter_map(|row| row.folded).sum();
    let folded = match folded + snapshot.left_out {
        0 => String::new(),
        n => format!("; {n} short-lived ones were folded without their pids (`record --no-fold`)"),
    };
    anyhow::bail!(
        "no process {pid} in the recording at this moment, expected one of: {}{folded}",
        pids.join(", ")
    )
}

/// Says so if a layer has no memory: it may be a mistake, or its probes were not set.
pub(super) fn warn_without_layer(snapshot: &Snapshot, layer: Option<Layer>) {
    let names = snapshot.sites.iter().map(|site| site.key.layer.name());
    let known: BTreeSet<&str> = names.collect();
    if let Some(layer) = layer.filter(|layer| !known.contains(layer.name())) {
        let known = Vec::from_iter(known).join(", ");
        tracing::warn!(
            "no memory of the layer `{}` in the recording at this moment; it has {}",
            layer.name(),
            if known.is_empty() {
                "none at all"
            } else {
                &known
            }
        );
    }
}
