//! Snapshots for people and programs: text, JSON, collapsed stacks, flame
//! graphs. Everything goes to an `impl Write`; which file that is, and where
//! the snapshot came from, is not known here.

mod collapsed;
mod devices;
mod diagnosis;
mod group;
mod health;
mod json;
mod losses;
mod select;
mod stack;
mod text;

#[cfg(test)]
mod fixture;

use std::{fmt, io, str::FromStr};

use crate::{
    escape::clean,
    ledger::Totals,
    recording::{Moment, ProcessRow},
};

pub use crate::units;
pub(crate) use collapsed::part;
pub use collapsed::{collapsed, flamegraph};
pub use diagnosis::{diagnosis, diagnosis_json};
pub use group::By;
pub use json::{Series, export, json, json_groups, stack_health_json};
pub use select::{Filter, Selection};
pub use text::{TextOptions, stack_health, text};

/// Why something cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "ages are known at the end of a recording only, and this one has none; leave out `--older`, or `--at`"
    )]
    NoAges,
    #[error(
        "nothing to draw: no site has any {0} at this moment; try another `--metric` or `--at`"
    )]
    NothingToDraw(Metric),
    #[error(
        "sites need not have peaked together, so groups of them have no peak; choose another `--sort`, or leave out `--by`"
    )]
    NoPeakOfGroups,
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// What to order or draw sites by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    #[default]
    LiveBytes,
    LiveCount,
    AllocBytes,
    AllocCount,
    /// Each site's own largest live bytes; sites need not have peaked together.
    Peak,
}

impl Metric {
    /// Every metric, in the order of the documentation.
    pub const ALL: [Metric; 5] = [
        Metric::LiveBytes,
        Metric::LiveCount,
        Metric::AllocBytes,
        Metric::AllocCount,
        Metric::Peak,
    ];

    /// The metric's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::LiveBytes => "live-bytes",
            Metric::LiveCount => "live-count",
            Metric::AllocBytes => "alloc-bytes",
            Metric::AllocCount => "alloc-count",
            Metric::Peak => "peak",
        }
    }

    /// What a value counts, for a legend.
    pub const fn unit(self) -> &'static str {
        match self {
            Metric::LiveCount => "blocks",
            Metric::AllocCount => "allocations",
            Metric::LiveBytes | Metric::AllocBytes | Metric::Peak => "bytes",
        }
    }

    /// The metric's value.
    pub fn of(self, totals: &Totals) -> u64 {
        match self {
            Metric::LiveBytes => totals.live_bytes,
            Metric::LiveCount => totals.live_count,
            Metric::AllocBytes => totals.alloc_bytes,
            Metric::AllocCount => totals.alloc_count,
            Metric::Peak => totals.peak_bytes,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Metric::ALL.into_iter().find(|metric| metric.name() == text);
        known.ok_or_else(|| {
            let names = Metric::ALL.map(Metric::name).join(", ");
            format!("`{text}` is no metric, expected one of {names}")
        })
    }
}

/// A reader that goes away (`| head`) has seen what it wanted.
pub(crate) fn until_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// What a group of folded processes is called.
pub(crate) fn group_name(row: &ProcessRow) -> String {
    let processes = match row.processes() {
        1 => "1 ended process".to_owned(),
        n => format!("{n} ended processes"),
    };
    match (&*row.cmdline, &*row.comm) {
        ([], "") => format!("{processes} of other programs"),
        ([], comm) => format!("{processes} of `{}` with other arguments", clean(comm)),
        (line, _) => format!("{processes} of `{}`", clean(&line.join(" "))),
    }
}

/// A moment's name in JSON and text; a time is told apart by its number.
fn moment_name(moment: Moment) -> &'static str {
    match moment {
        Moment::End => "end",
        Moment::Peak => "peak",
        Moment::Time(_) => "time",
    }
}
