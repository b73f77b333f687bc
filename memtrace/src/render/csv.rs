//! Sites as comma-separated values (RFC 4180), for spreadsheets and data frames: a row for each, under a row of names.

use std::{io::Write, iter};

use super::{
    Error,
    collapsed::{missing, part, program},
    until_closed,
};
use crate::{
    escape::clean,
    frames::names,
    recording::Snapshot,
    view::{By, Filter, Metric, Shown},
};

/// Figures have the names that they have in JSON.
const COLUMNS: [&str; 17] = [
    "process",
    "tgid",
    "layer",
    "by_allocator",
    "device",
    "thread",
    "live_bytes",
    "live_count",
    "alloc_bytes",
    "alloc_count",
    "free_bytes",
    "free_count",
    "peak_bytes",
    "first_s",
    "last_s",
    "own_line",
    "stack",
];

/// Writes every site that passes `filter`, the one with most live bytes first, and returns how many these are.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn csv(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<usize, Error> {
    let selection = filter.select(snapshot, Metric::LiveBytes)?;
    let names = COLUMNS.map(str::to_owned);
    let sites = selection.sites.iter();
    let sites = sites.map(|shown| row(shown, filter, snapshot.meta.started_ns));
    let written = iter::once(names)
        .chain(sites)
        .try_for_each(|row| write!(out, "{}\r\n", row.map(quoted).join(",")))
        .and_then(|()| out.flush());
    until_closed(written)?;
    Ok(selection.sites.len())
}

fn row(shown: &Shown, filter: &Filter, started_ns: u64) -> [String; COLUMNS.len()] {
    let seconds = |time_ns: u64| {
        let since_start = time_ns.saturating_sub(started_ns);
        format!("{:.3}", since_start as f64 / 1e9)
    };
    let (site, totals) = (shown.site, shown.totals());
    [
        text(program(shown)),
        shown.tgid().to_string(),
        site.key.layer.name().into(),
        site.key.by_allocator.to_string(),
        site.key.device.map(|at| at.to_string()).unwrap_or_default(),
        text(shown.stack.thread().map(clean).unwrap_or_default()),
        totals.live_bytes.to_string(),
        totals.live_count.to_string(),
        totals.alloc_bytes.to_string(),
        totals.alloc_count.to_string(),
        totals.free_bytes.to_string(),
        totals.free_count.to_string(),
        totals.peak_bytes.to_string(),
        seconds(site.first_ns),
        site.last_ns.map(seconds).unwrap_or_default(),
        text(clean(&By::ProgramLine.key(shown.stack))),
        text(stack(shown, filter)),
    ]
}

/// The stack as in collapsed stacks: from its root to its leaf.
fn stack(shown: &Shown, filter: &Filter) -> String {
    let frames = filter.frames(shown.stack);
    let frames = frames.iter().rev().map(|frame| part(&names::label(frame)));
    let parts = missing(shown.stack).into_iter().chain(frames);
    parts.collect::<Vec<_>>().join(";")
}

/// A text that a spreadsheet would take for a formula begins with an apostrophe, which makes it a text.
fn text(field: String) -> String {
    match field.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{field}"),
        false => field,
    }
}

fn quoted(field: String) -> String {
    match field.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{render::sums, view::fixture};

    fn written(snapshot: &Snapshot) -> String {
        let mut out = Vec::new();
        csv(&mut out, snapshot, &Filter::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_row_has_everything_about_a_site() {
        let mut snapshot = fixture::snapshot_of_python();
        snapshot.sites[1].key.device = Some(3);
        snapshot.sites[3].last_ns = None;
        let text = written(&snapshot);
        let rows: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(rows[0], COLUMNS.join(","));
        let python = "leaker,4242,heap,false,3,worker,1048576,4,1048640,5,64,1,1048608,1.000,9.000,\
                      /src/cache;1.py:41 Cache.fill,\
                      <module> (/src/main.py:7);Cache.fill (/src/cache:1.py:41);list_resize";
        assert_eq!(rows[1], python);
        let without =
            "leaker,4243,heap,false,,,100,10,164,11,64,1,132,1.000,,[no stack],[no stack]";
        assert_eq!(rows[2], without);
        assert!(
            rows[3].starts_with("leaker,4242,vm,true,,,8192,1,"),
            "{text}"
        );
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn totals_are_those_of_the_report() {
        let snapshot = fixture::snapshot();
        let mut sums = sums::Sums::new();
        for row in written(&snapshot).lines().skip(1) {
            let fields: Vec<&str> = row.split(',').collect();
            let figures = [8, 9, 6, 7].map(|at| fields[at].parse().unwrap());
            sums::add(&mut sums, fields[2], figures);
        }
        assert_eq!(sums, sums::reported(&snapshot, &Filter::default()));
    }

    #[test]
    fn no_cell_is_a_formula() {
        let mut snapshot = fixture::snapshot();
        for (name, cell) in [
            (
                "=HYPERLINK(\"http://x\")",
                "\"'=HYPERLINK(\"\"http://x\"\")\",4242,",
            ),
            ("@SUM(1)", "'@SUM(1),4242,"),
            ("+1", "'+1,4242,"),
            ("-1", "'-1,4242,"),
            ("a=1", "\r\na=1,4242,"),
        ] {
            snapshot.processes[0].row.comm = name.into();
            let text = written(&snapshot);
            assert!(text.contains(cell), "{text}");
        }
    }

    #[test]
    fn separators_in_names_are_quoted() {
        let mut snapshot = fixture::snapshot();
        snapshot.processes[0].row.comm = "a,\"b\"\n".into();
        let text = written(&snapshot);
        assert!(text.contains("\r\n\"a,\"\"b\"\"\\n\",4242,"), "{text}");
    }
}
