//! The parts of a page that need no script: the verdict, device tables, the fingerprint, losses.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use super::{
    markup::{Row, Table, descriptions, escaped, list, marked},
    recorded::Recorded,
};
use crate::{
    analysis::verdict::Scope,
    escape::clean,
    recording::{Fact, ProcessRow},
    render::{
        advice, device_table, diagnosis, evidence,
        findings::{self, EVIDENCE, Item, NEXT},
        incomplete, job, losses,
    },
    units::{date, grouped, plural, seconds},
    view::{Filter, findings::findings},
};

/// Findings that are open when the page is opened.
const OPEN: usize = 3;

/// The program of a recording, and the number of its other processes.
pub(super) fn subject(recorded: &Recorded) -> String {
    let rows = recorded.snapshot.processes.iter().map(|of| &of.row);
    let all: u64 = rows.clone().map(ProcessRow::processes).sum();
    let first = rows
        .clone()
        .find(|row| !row.is_group())
        .or(rows.clone().next());
    let Some(first) = first else {
        return "no process".into();
    };
    let program = job::program(&first.comm, &first.cmdline);
    match all {
        0 | 1 => format!("{program} (pid {})", first.tgid),
        n => format!("{program} (pid {}) and {} more", first.tgid, n - 1),
    }
}

/// Facts about the recording as a whole.
pub(super) fn about(out: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    let snapshot = &recorded.snapshot;
    let meta = &snapshot.meta;
    let last = snapshot.time_ns.unwrap_or(meta.started_ns);
    let end = snapshot.finished_ns.unwrap_or(last).max(last);
    let ended = match recorded.cut_off {
        Some(reaches) => incomplete(reaches),
        None => "normally".into(),
    };
    let rows = [
        ("host", format!("{}, Linux {}", meta.host, meta.kernel)),
        ("started", date(meta.started_unix_ns)),
        ("recorded for", seconds(end.saturating_sub(meta.started_ns))),
        ("ended", ended),
        ("memtrace", meta.version.clone()),
    ];
    descriptions(out, "about", &rows)
}

/// The findings, in the words of `diagnose`, and then everything that it prints.
pub(super) fn verdict(out: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    let (found, filter) = (&recorded.verdicts, Filter::default());
    let findings = findings(found, &filter);
    for (index, finding) in findings.iter().enumerate() {
        let items = findings::items(finding, found);
        let (headline, items) = findings::whole_headline(&items);
        let class = finding.verdict.class.name();
        let is_open = if index < OPEN { " open" } else { "" };
        writeln!(
            out,
            "<details class=\"finding\" data-class=\"{}\"{is_open}><summary><h3>{}</h3></summary>",
            escaped(class),
            marked(&headline)
        )?;
        let labelled = |item: &&Item| item.label != EVIDENCE && item.label != NEXT;
        let rows: Vec<_> = items
            .iter()
            .filter(labelled)
            .map(|item| (item.label, item.text.clone()))
            .collect();
        descriptions(out, "lines", &rows)?;
        let of_line = finding.lines.first().map_or(&[][..], |line| line.next);
        let mut all: Vec<String> = Vec::new();
        for next in of_line.iter().chain(&finding.verdict.next) {
            let next = clean(&advice::words(next, finding.verdict.tgid));
            if !all.contains(&next) {
                all.push(next);
            }
        }
        titled(out, "What to do next", &all)?;
        let of_sites = found.verdicts.iter().filter(|of| {
            of.process == finding.verdict.process
                && of.class == finding.verdict.class
                && of.scope != Scope::Process
        });
        let all = [finding.verdict].into_iter().chain(of_sites.take(1));
        let mut known = BTreeSet::new();
        let evidence: Vec<String> = all
            .flat_map(|verdict| verdict.evidence.iter().map(evidence::words))
            .filter(|words| known.insert(words.clone()))
            .collect();
        titled(out, "Evidence", &evidence)?;
        writeln!(out, "</details>")?;
    }
    let mut notes = job::untraced(&found.untraced);
    if found.too_short > 0 {
        notes.push(job::too_short(found.too_short));
    }
    if findings.is_empty() && notes.is_empty() {
        notes.push("no process can be judged: nothing was recorded".into());
    }
    list(out, &notes)?;
    let mut text = Vec::new();
    diagnosis::diagnosis(&mut text, found, recorded.cut_off, &filter).map_err(io::Error::other)?;
    let text = String::from_utf8_lossy(&text);
    // `escaped` would mask line ends.
    let lines: Vec<String> = text.lines().map(escaped).collect();
    writeln!(
        out,
        "<details class=\"whole\"><summary>Everything that <code>memtrace diagnose</code> prints</summary><pre tabindex=\"0\" role=\"region\" aria-label=\"Text of memtrace diagnose\">{}</pre></details>",
        lines.join("\n")
    )
}

fn titled(out: &mut impl Write, title: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h4>{title}</h4>")?;
    list(out, lines)
}

/// Tables of devices, with failed allocations; nothing if no device was used.
pub(super) fn devices(out: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    let snapshot = &recorded.snapshot;
    let mut failures = Vec::new();
    for process in &snapshot.processes {
        device_table::failures(&mut failures, snapshot, process)?;
    }
    device_table::libraries(&mut failures, snapshot)?;
    if snapshot.devices.is_empty() && failures.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section id=\"devices\" aria-labelledby=\"devices-title\"><h2 id=\"devices-title\">Devices</h2>"
    )?;
    for (process, device, rows) in device_table::tables(snapshot) {
        let name = device_table::name(device);
        let program = job::program(&process.row.comm, &process.row.cmdline);
        let table = Table {
            caption: &format!(
                "{name} of {program} ({}), {}",
                process.row.tgid,
                device_table::MOMENT
            ),
            columns: &["memory", "size", "note"],
            numbers: &[1],
        };
        let rows = rows.into_iter().map(|row| Row {
            cells: vec![row.what, row.bytes, row.note],
            differs: false,
        });
        table.write(out, rows)?;
    }
    let failures = String::from_utf8_lossy(&failures);
    if !failures.is_empty() {
        let lines: Vec<String> = failures.lines().map(escaped).collect();
        writeln!(
            out,
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"Failed allocations, and libraries\">{}</pre>",
            lines.join("\n")
        )?;
    }
    writeln!(out, "</section>")
}

/// The facts of the machine and its processes.
pub(super) fn fingerprint(out: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    let of = |fact: &Fact| match fact.process {
        None => String::new(),
        Some(id) => {
            let processes = &recorded.snapshot.processes;
            let process = processes.iter().find(|of| of.row.id == id);
            process.map_or_else(String::new, |of| of.row.tgid.to_string())
        }
    };
    let facts = &recorded.facts;
    let count = plural(facts.len() as u64, "fact");
    writeln!(
        out,
        "<details><summary>{count} of the machine and its processes</summary>"
    )?;
    let table = Table {
        caption: "Facts of the machine and its processes",
        columns: &["fact", "process", "value"],
        numbers: &[],
    };
    let rows = facts.iter().map(|fact| Row {
        cells: vec![fact.field.clone(), of(fact), fact.value.clone()],
        differs: false,
    });
    table.write(out, rows)?;
    writeln!(out, "</details>")
}

/// The losses, and what they mean for the figures.
pub(super) fn losses(out: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    let snapshot = &recorded.snapshot;
    writeln!(out, "<p>{}</p>", escaped(&losses::records(snapshot)))?;
    let kinds: Vec<_> = losses::kinds(snapshot).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    let table = Table {
        caption: "Losses by reason",
        columns: &["what happened", "count", "effect"],
        numbers: &[1],
    };
    let rows = kinds.iter().flat_map(|kind| {
        let reasons = kind.reasons.iter();
        reasons.map(|(count, meaning, name)| Row {
            cells: vec![
                format!("{meaning} ({name})"),
                grouped(*count),
                kind.effect.into(),
            ],
            differs: false,
        })
    });
    table.write(out, rows)
}

/// The effect of losses on the figures, for the top of the page.
pub(super) fn bounds(recorded: &Recorded) -> Option<&'static str> {
    losses::bounds(&recorded.snapshot)
}
