//! Snapshots, verdicts and comparisons for people and programs: text, JSON, collapsed stacks, flame
//! graphs, profiles for other tools. Everything goes to an `impl Write`; the output file and the
//! origin of the snapshot are not known here.

mod advice;
pub(crate) mod brief;
mod collapsed;
mod csv;
mod device_table;
mod diagnosis;
pub(crate) mod diff;
mod evidence;
mod fail_on;
mod findings;
mod fit;
mod flamegraph;
pub(crate) mod fleet;
mod holders;
mod html;
mod job;
mod json;
mod json_lines;
mod losses;
mod markdown;
mod profiles;
mod reservations;
#[cfg(test)]
mod schemas;
mod stack;
#[cfg(test)]
mod sums;
mod text;
mod types;

use std::io;

use crate::{
    escape::clean,
    recording::{Moment, ProcessRow},
    units::seconds,
    view::{self, Metric},
};

pub(crate) use collapsed::collapsed;
pub(crate) use csv::csv;
pub(crate) use diagnosis::{diagnosis, diagnosis_json, first_screen};
pub(crate) use fail_on::{outcome, outcomes_json};
pub(crate) use fit::{cut, shortened};
pub(crate) use flamegraph::flamegraph;
pub(crate) use holders::{
    folded, holders, holders_json, kept_by, kept_by_in, line_label, lines as ways, most_seen,
};
pub(crate) use html::{Compared, Recorded, html, html_comparison};
pub(crate) use job::{program, untraced};
pub(crate) use json::{Series, export, json, json_groups, stack_health_json};
pub(crate) use markdown::{markdown, outcomes_markdown};
pub(crate) use profiles::{Course, firefox, otlp, perfetto, pprof, speedscope};
pub(crate) use stack::calls as stack_in_short;
pub(crate) use text::{TextOptions, stack_health, text};

/// Why something cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    View(#[from] view::Error),
    #[error(
        "nothing to draw: no site has any {0} at this moment; try another `--metric`, `--layer` or `--at`"
    )]
    NothingToDraw(Metric),
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// A closed pipe (`| head`) is not an error.
fn until_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// What a recording without an end is, and how far it reaches, ns since its start.
fn incomplete(reaches_ns: u64) -> String {
    let reaches = seconds(reaches_ns);
    format!("INCOMPLETE (killed, or still recording): data up to {reaches}")
}

/// Label of a group of folded processes.
fn group_name(row: &ProcessRow) -> String {
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

/// A moment's name in JSON and text; a time is identified by its number.
fn moment_name(moment: Moment) -> &'static str {
    match moment {
        Moment::End => "end",
        Moment::Peak => "peak",
        Moment::Time(_) => "time",
    }
}
