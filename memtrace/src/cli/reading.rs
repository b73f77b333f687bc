//! Reading a recording, for the commands that do: the options that select a part of it, checks of
//! the selection, and what is shown meanwhile.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};

use crate::{
    event::Layer,
    recording::{At, Meta, Snapshot},
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
    /// The moment to show: end, peak, a time since the start such as `90s`, or a time of day such as `14:03` (UTC, as
    /// in reports) [default: the end for processes that still ran when recording stopped, the peak for those that
    /// exited].
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    at: Option<MomentOrClock>,
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

/// A moment as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MomentOrClock {
    Moment(At),
    /// Seconds since midnight, UTC.
    Clock(u64),
}

impl SelectArgs {
    /// In the recording that this describes.
    pub(super) fn at(&self, meta: &Meta) -> At {
        match self.at {
            None => At::default(),
            Some(MomentOrClock::Moment(at)) => at,
            Some(MomentOrClock::Clock(seconds)) => At::Time(until(meta.started_unix_ns, seconds)),
        }
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

/// Nanoseconds from a Unix time to this time of day.
fn until(unix_ns: u64, seconds: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    (seconds * SECOND + DAY - unix_ns % DAY) % DAY
}

fn parse_moment(text: &str) -> Result<MomentOrClock, String> {
    match text.contains(':') {
        true => parse_clock(text).map(MomentOrClock::Clock),
        false => parse_at(text).map(MomentOrClock::Moment),
    }
}

/// Seconds of `14:03` or `14:03:20`.
fn parse_clock(text: &str) -> Result<u64, String> {
    let parts: Vec<u64> = text
        .split(':')
        .map_while(|part| part.parse().ok())
        .collect();
    let seconds = match parts[..] {
        [hour, minute] => Some((hour, minute, 0)),
        [hour, minute, second] => Some((hour, minute, second)),
        _ => None,
    };
    let is_whole = parts.len() == text.split(':').count();
    seconds
        .filter(|(hour, minute, second)| is_whole && *hour < 24 && *minute < 60 && *second < 60)
        .map(|(hour, minute, second)| hour * 3_600 + minute * 60 + second)
        .ok_or_else(|| format!("`{text}` is not a time of day such as `14:03` or `14:03:20`"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_next_one_after_the_start() {
        let at = |text| parse_clock(text).map(|seconds| until(1_000_000_000, seconds) / 1_000_000);
        assert_eq!(at("00:00:01"), Ok(0));
        assert_eq!(at("0:01"), Ok(59_000));
        assert_eq!(at("00:00"), Ok(86_399_000));
        for wrong in ["24:00", "14:60", "14:", "14:03:20:1", "14:x", ":"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_moment("end"), Ok(MomentOrClock::Moment(At::End)));
    }
}
