//! Verdicts and comparisons in short.

use serde_json::{Value, json};

use super::{Brief, Entry, frame, line};
use crate::{
    analysis::verdict::{Diagnosis, How, Keeper},
    diff::{Comparison, SiteDifference},
    escape::clean,
    frames::own_line,
    render::{
        advice, diff,
        evidence::words,
        findings::{items, whole_headline},
        holders::{keeper, sentence, whole},
        incomplete,
        job::{too_short, untraced},
    },
    view::{
        Filter,
        findings::{self as view, Finding, Line, Part},
    },
};

/// Processes and pieces of evidence that are listed for a finding, and facts for a comparison.
const PROCESSES: usize = 10;
const EVIDENCE: usize = 3;
const FACTS: usize = 5;

/// The findings of a recording: what grows, which lines allocate it, and which keep it. `cut_off`: how far a recording
/// without an end reaches, ns.
pub(crate) fn findings(found: &Diagnosis, cut_off: Option<u64>, filter: &Filter) -> Brief {
    let mut head = Vec::new();
    head.extend(cut_off.map(|reaches| format!("The recording is {}", incomplete(reaches))));
    if found.lost > 0.0 {
        head.push("Records were lost: exact figures do not include them".to_owned());
    }
    head.extend(untraced(&found.untraced));
    head.extend((found.too_short > 0).then(|| too_short(found.too_short)));
    let findings = view::findings(found, filter);
    if findings.is_empty() {
        head.push(
            "Nothing can be concluded: record for a minute while the memory grows".to_owned(),
        );
    }
    let entries = findings.iter().map(|finding| Entry {
        text: finding_text(finding, found),
        data: finding_data(finding),
    });
    Brief {
        noun: "finding",
        head,
        entries: entries.collect(),
        more: "name a process with `pid`, or run `memtrace diagnose`",
    }
}

fn finding_text(finding: &Finding, found: &Diagnosis) -> String {
    let items = items(finding, found);
    let (headline, rest) = whole_headline(&items);
    let mut text = headline;
    for item in rest {
        text += &format!("\n  {}: {}", item.label, item.text);
    }
    for evidence in finding.verdict.evidence.iter().take(EVIDENCE) {
        let words = words(evidence);
        // The headline of an open verdict has its reason already.
        if !text.contains(&words) {
            text += &format!("\n  because: {words}");
        }
    }
    text
}

fn finding_data(finding: &Finding) -> Value {
    let verdict = finding.verdict;
    let pids = finding.processes.iter().map(|of| of.tgid);
    let evidence = verdict.evidence.iter().take(EVIDENCE).map(words);
    json!({
        "class": verdict.class.name(),
        "meaning": verdict.class.meaning(),
        "grade": verdict.grade.name(),
        "bytes_per_s": finding.rate(),
        "pids": pids.take(PROCESSES).collect::<Vec<_>>(),
        "processes": finding.processes.len(),
        "lines": finding.lines.iter().map(|of| line_data(of, verdict.tgid)).collect::<Vec<_>>(),
        "evidence": evidence.collect::<Vec<_>>(),
        "next": advice::all(verdict).iter().map(|text| clean(text)).collect::<Vec<_>>(),
    })
}

fn line_data(of: &Line, tgid: u32) -> Value {
    json!({
        "allocated_by": of.allocates.map(frame),
        "also_allocated_by": of.others.iter().map(part).collect::<Vec<_>>(),
        "kept_by": of.keeper.map(kept),
        "bytes_per_s": of.bytes.round(),
        "blocks_per_s": of.blocks,
        "holes_bytes_per_s": of.holes.round(),
        "next": of.next.first().map(|next| clean(&advice::words(next, tgid))),
    })
}

fn part(of: &Part) -> Value {
    json!({ "allocated_by": of.allocates.map(frame), "bytes_per_s": of.bytes.round() })
}

fn kept(of: &Keeper) -> Value {
    let (what, path) = match &of.how {
        How::Container(container) => (format!("probably a {container}"), None),
        How::Path { path, .. } => (keeper(path), Some(whole(path, None))),
        How::Surplus { path, .. } | How::Hidden { path, .. } => {
            (sentence(of, None), Some(whole(path, None)))
        }
        _ => (sentence(of, None), None),
    };
    json!({ "what": what, "path": path, "filled_by": of.line.as_ref().map(frame) })
}

/// The sites that grow faster than in the baseline, the facts that differ, and the conclusion.
pub(crate) fn comparison(of: &Comparison) -> std::io::Result<Brief> {
    let mut head = diff::summary(of)?;
    let facts = of.fingerprint.iter().take(FACTS).map(|fact| {
        let (old, new) = diff::fact_values(fact);
        format!("differs: {}: {old} → {new}", clean(&fact.field))
    });
    head.extend(facts);
    if let Some(more) = of.fingerprint.len().checked_sub(FACTS + 1) {
        head.push(format!(
            "{} more facts differ; `memtrace diff` lists them",
            more + 1
        ));
    }
    let grows = of.sites.iter().filter(|site| site.delta.rate > 0.0);
    let entries = grows.map(|site| Entry {
        text: site_text(site, &of.per.unit()),
        data: site_data(site),
    });
    Ok(Brief {
        noun: "growing site",
        head,
        entries: entries.collect(),
        more: "raise `limit`, or run `memtrace diff`",
    })
}

fn site_text(site: &SiteDifference, unit: &str) -> String {
    let shown = site.stack().map(|stack| stack.shown()).unwrap_or_default();
    format!(
        "{}/{unit} ({}), {}\n  allocated by: {}",
        diff::signed(site.delta.rate),
        site.layer.name(),
        diff::sureness(site),
        line(own_line(&shown))
    )
}

/// As in JSON, with one line in place of the stack.
fn site_data(site: &SiteDifference) -> Value {
    let mut value = diff::site_json(site);
    if let Some(value) = value.as_object_mut() {
        value.retain(|name, _| !name.ends_with("frames"));
    }
    let shown = site.stack().map(|stack| stack.shown()).unwrap_or_default();
    value["allocated_by"] = json!(own_line(&shown).map(frame));
    value
}
