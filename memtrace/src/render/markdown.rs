//! The findings as Markdown, for a ticket or the summary of a job. Whatever a traced program names stands in code blocks,
//! where it is neither markup, nor a link, nor the name of a user to notify.

use std::io::{self, Write};

use super::{
    Error,
    evidence::words,
    fail_on::outcome,
    findings::items,
    findings::on_screen,
    incomplete,
    job::{too_short, untraced},
    until_closed,
};
use crate::{
    analysis::verdict::{Class, Diagnosis},
    escape::clean,
    recording::Meta,
    units::{date, per_second, plural},
    view::{
        Filter,
        fail_on::{Judged, Outcome, State},
        findings::findings,
    },
};

/// Findings that are described; the rest are counted.
const SHOWN: usize = 3;

/// Writes the findings of a recording. `cut_off`: how far a recording without an end reaches, ns.
pub(crate) fn markdown(
    out: &mut impl Write,
    meta: &Meta,
    found: &Diagnosis,
    cut_off: Option<u64>,
    filter: &Filter,
) -> Result<(), Error> {
    let written = sections(out, found, filter)
        .and_then(|()| about(out, meta, found, cut_off))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

/// Writes whether the conditions of a run hold, and the findings.
pub(crate) fn outcomes_markdown(
    out: &mut impl Write,
    outcomes: &[Outcome],
    judged: &Judged,
) -> Result<(), Error> {
    let failed = outcomes.iter().any(|of| of.state == State::Holds);
    let open = |of: &Outcome| matches!(of.state, State::Undetermined(_));
    let result = match failed {
        true => "failed",
        false if outcomes.iter().any(open) => "undetermined",
        false => "passed",
    };
    let passed = |of: &Outcome| format!("passed: {}", of.condition);
    let lines = outcomes
        .iter()
        .map(|of| outcome(of).unwrap_or_else(|| passed(of)));
    let lines: Vec<String> = lines.collect();
    writeln!(out, "## memtrace: {result}\n")?;
    code(out, &lines)?;
    let (meta, filter) = (&judged.end.meta, Filter::default());
    markdown(out, meta, &judged.found, None, &filter)
}

fn sections(out: &mut impl Write, found: &Diagnosis, filter: &Filter) -> io::Result<()> {
    let findings = findings(found, filter);
    let shown: Vec<_> = findings
        .iter()
        .filter(|of| !of.is_minor(&findings))
        .take(SHOWN)
        .collect();
    for finding in &shown {
        let verdict = finding.verdict;
        let rate = finding.rate().filter(|_| verdict.class != Class::None);
        let rate = rate.map_or(String::new(), |rate| format!(", {}", per_second(rate)));
        let (class, grade) = (verdict.class.name(), verdict.grade.name());
        writeln!(out, "### memtrace: {class} (grade {grade}){rate}\n")?;
        code(out, &on_screen(&items(finding, found)))?;
        let evidence: Vec<String> = verdict.evidence.iter().map(words).collect();
        if !evidence.is_empty() {
            writeln!(out, "<details><summary>Evidence</summary>\n")?;
            code(out, &evidence)?;
            writeln!(out, "</details>\n")?;
        }
    }
    if findings.is_empty() {
        writeln!(out, "### memtrace: no process can be judged\n")?;
    }
    match findings.len() - shown.len() {
        0 => Ok(()),
        more => writeln!(
            out,
            "{} more: `memtrace diagnose`.\n",
            plural(more as u64, "finding")
        ),
    }
}

/// What was recorded, and what is missing.
fn about(
    out: &mut impl Write,
    meta: &Meta,
    found: &Diagnosis,
    cut_off: Option<u64>,
) -> io::Result<()> {
    let started = date(meta.started_unix_ns);
    let mut lines = vec![format!(
        "memtrace {} on {}, Linux {}, {started}",
        clean(&meta.version),
        clean(&meta.host),
        clean(&meta.kernel)
    )];
    lines.extend(cut_off.map(|reaches| format!("The recording is {}", incomplete(reaches))));
    if found.lost > 0.0 {
        lines.push("Records were lost: figures called exact do not include them".to_owned());
    }
    lines.extend(untraced(&found.untraced));
    lines.extend((found.too_short > 0).then(|| too_short(found.too_short)));
    code(out, &lines)
}

/// A code block that no line in it can end.
fn code(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    let longest = lines.iter().flat_map(|line| line.split(|of| of != '`'));
    let fence = "`".repeat(longest.map(str::len).max().unwrap_or(0).max(2) + 1);
    writeln!(out, "{fence}text")?;
    for line in lines {
        writeln!(out, "{}", clean(line))?;
    }
    writeln!(out, "{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        analysis::{suppressions::Suppressions, system::SystemSeries, verdict::diagnose},
        render::findings::snapshots::read,
    };

    #[test]
    fn findings_are_code_blocks_with_their_evidence() {
        let (_folder, recording) = read("cpp-history-leak");
        let machine = SystemSeries::read(&recording).unwrap();
        let found = diagnose(&recording, &machine, &Suppressions::default()).unwrap();
        let mut text = Vec::new();
        let filter = Filter::default();
        markdown(&mut text, recording.meta(), &found, None, &filter).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("### memtrace: leak (grade B), "), "{text}");
        for part in [
            "\n  kept by ",
            "\n  next ",
            "<summary>Evidence</summary>\n\n```text\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Outside of code blocks there is nothing of the program.
        let outside: String = text.split("```").step_by(2).collect();
        assert!(!outside.contains(".cc"), "{outside}");
    }

    #[test]
    fn no_text_ends_its_code_block() {
        let mut text = Vec::new();
        code(&mut text, &["a ```` b".into(), "```".into()]).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "`````text\na ```` b\n```\n`````\n\n");
    }
}
