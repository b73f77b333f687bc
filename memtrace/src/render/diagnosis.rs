//! Verdicts and the tables of where growth went, as text and JSON.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use serde_json::{Value, json};

use super::{
    Error, advice, device_table::name as device_name, evidence, findings, holders, incomplete,
    job::too_short, json_lines::print, stack, types, until_closed,
};
use crate::{
    analysis::{
        account::{Account, Kind, Term},
        verdict::{Class, Diagnosis, LostSite, ProcessAccount, Scope, Verdict},
    },
    escape::clean,
    event::StackId,
    frames::own_line,
    recording::Stacks,
    units::{plural, size},
    view::{
        Filter,
        findings::{Line, of_job},
    },
};

/// Verdicts on sites that a report lists; `diagnose` lists them all.
const IN_REPORT: usize = 3;

/// Writes all verdicts and tables. `cut_off`: how far a recording without an end reaches, ns.
pub(crate) fn diagnosis(
    out: &mut impl Write,
    found: &Diagnosis,
    cut_off: Option<u64>,
    filter: &Filter,
) -> Result<(), Error> {
    let written = summary(out, found, cut_off, filter)
        .and_then(|()| tables(out, found, filter))
        .and_then(|()| verdicts(out, found, filter, usize::MAX))
        .and_then(|()| lost_sites(out, found, filter))
        .and_then(|()| suppressed(out, found))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

/// Writes the first screen alone.
pub(crate) fn first_screen(
    out: &mut impl Write,
    found: &Diagnosis,
    cut_off: Option<u64>,
    filter: &Filter,
) -> Result<(), Error> {
    let written = summary(out, found, cut_off, filter).and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

fn summary(
    out: &mut impl Write,
    found: &Diagnosis,
    cut_off: Option<u64>,
    filter: &Filter,
) -> io::Result<()> {
    if let Some(reaches) = cut_off {
        writeln!(out, "The recording is {}", incomplete(reaches))?;
    }
    findings::section(out, found, filter)
}

/// Writes all verdicts and tables as JSON.
pub(crate) fn diagnosis_json(
    out: &mut impl Write,
    found: &Diagnosis,
    cut_off: Option<u64>,
    filter: &Filter,
) -> Result<(), Error> {
    let accounts = found
        .accounts
        .iter()
        .filter(|account| covers(filter, account.tgid));
    // There are few, so each stack is written separately.
    let mut with_frames = |id: Option<StackId>| {
        let stack = id.map(|id| found.stacks.get(id));
        let frames: Vec<_> = stack.iter().flat_map(|stack| stack.frames()).collect();
        json!({ "frames": frames })
    };
    let verdicts = verdicts_json(found, filter, &mut with_frames);
    let lost = found.lost_sites.iter().filter(|of| covers(filter, of.tgid));
    let lost = lost.map(|of| lost_site_json(of, &found.stacks));
    let suppressed = found.suppressed.iter().map(|(pattern, verdict)| {
        let mut value = verdict_json(verdict, found, &mut with_frames);
        value["suppression"] = json!(pattern);
        value
    });
    print(
        out,
        &json!({
            "job": job_json(found, filter),
            "untraced": untraced_json(found),
            "verdicts": verdicts,
            "accounts": accounts.flat_map(|of| account_json(of, &found.stacks)).collect::<Vec<_>>(),
            "lost_sites": lost.collect::<Vec<_>>(),
            "types": types::json(found, filter),
            "suppressed": suppressed.collect::<Vec<_>>(),
            "too_short": found.too_short,
            "lost": found.lost,
            "is_complete": cut_off.is_none(),
        }),
    )
}

/// The finding common to several processes; null if no two have one.
pub(super) fn job_json(found: &Diagnosis, filter: &Filter) -> Value {
    let Some(job) = of_job(found, filter) else {
        return Value::Null;
    };
    let lines = job.lines.iter().flat_map(Line::allocating);
    json!({
        "class": job.verdict.class.name(),
        "processes": job.processes.iter().map(|of| of.process.0).collect::<Vec<_>>(),
        "tgids": job.processes.iter().map(|of| of.tgid).collect::<Vec<_>>(),
        "bytes_per_s": job.rate(),
        "lines": lines.collect::<Vec<_>>(),
    })
}

/// Processes of the job that were not traced.
pub(super) fn untraced_json(found: &Diagnosis) -> Value {
    let untraced = found.untraced.iter();
    untraced
        .map(|of| json!({ "tgid": of.tgid, "comm": of.comm, "cmdline": of.cmdline, "why": of.why }))
        .collect()
}

/// The section of a report.
pub(super) fn section(out: &mut impl Write, found: &Diagnosis, filter: &Filter) -> io::Result<()> {
    verdicts(out, found, filter, IN_REPORT)
}

/// `stack` gives the JSON fields for the stack of a site, or for a process without one.
pub(super) fn verdicts_json(
    found: &Diagnosis,
    filter: &Filter,
    mut stack: impl FnMut(Option<StackId>) -> Value,
) -> Value {
    let verdicts = found.verdicts.iter();
    verdicts
        .filter(|verdict| covers(filter, verdict.tgid))
        .map(|verdict| verdict_json(verdict, found, &mut stack))
        .collect()
}

fn covers(filter: &Filter, tgid: u32) -> bool {
    filter.pid.is_none_or(|pid| pid == tgid)
}

fn verdict_json(
    verdict: &Verdict,
    found: &Diagnosis,
    stack: &mut impl FnMut(Option<StackId>) -> Value,
) -> Value {
    let (stacks, mut held) = (&found.stacks, None);
    let (scope, layer, stack) = match &verdict.scope {
        Scope::Process => ("process", None, stack(None)),
        Scope::Site(key) => {
            held = found.holders.get(key);
            ("site", Some(key.layer.name()), stack(Some(key.stack)))
        }
    };
    let mut value = json!({
        "process": verdict.process.0,
        "tgid": verdict.tgid,
        "scope": scope,
        "layer": layer,
        "class": verdict.class.name(),
        "grade": verdict.grade.name(),
        "bytes_per_s": verdict.rate,
        "blocks_per_s": verdict.blocks,
        "evidence": verdict.evidence.iter().map(evidence::json).collect::<Vec<_>>(),
        "runner_up": verdict.runner_up.map(Class::name),
        "next": advice::all(verdict),
        "called_by": verdict.caller,
        "kept_by": verdict.keeper.as_ref().map(|of| holders::kept_by_json(of, held, stacks)),
    });
    if let (Value::Object(value), Value::Object(stack)) = (&mut value, stack) {
        value.extend(stack);
    }
    value
}

fn account_json(of: &ProcessAccount, stacks: &Stacks) -> impl Iterator<Item = Value> {
    of.accounts.iter().map(|account| {
        let rows = account.rows.iter().map(|(term, bytes)| {
            let mut row =
                json!({ "term": term.name(), "bytes": bytes.round(), "basis": term.basis(*bytes) });
            if let Term::Holes(site) = term {
                let frames: Vec<_> = stacks.get(site.stack).of_caller().collect();
                row["line"] = json!(own_line(&frames));
            }
            row
        });
        json!({
            "process": of.process.0,
            "tgid": of.tgid,
            "from": (of.from * 1e9).round(),
            "to": (of.to * 1e9).round(),
            "kind": account.kind.name(),
            "device": match account.kind {
                Kind::Device(index) => index,
                _ => None,
            },
            "growth": account.growth.round(),
            "rows": rows.collect::<Vec<_>>(),
        })
    })
}

fn verdicts(
    out: &mut impl Write,
    found: &Diagnosis,
    filter: &Filter,
    sites: usize,
) -> io::Result<()> {
    let shown = || {
        found
            .verdicts
            .iter()
            .filter(|verdict| covers(filter, verdict.tgid))
    };
    if shown().next().is_none() {
        return Ok(());
    }
    writeln!(
        out,
        "\nVerdicts (grade A would need an experiment; B: every test passed; C: with reservations; D: undecided)"
    )?;
    let mut left = sites;
    let mut hidden = 0;
    let mut given = BTreeSet::new();
    for verdict in shown() {
        match verdict.scope {
            Scope::Process => left = sites,
            Scope::Site(_) if left == 0 => {
                hidden += 1;
                continue;
            }
            Scope::Site(_) => left -= 1,
        }
        self::verdict(out, found, filter, verdict)?;
        // Advice for one site is seldom for it alone: each piece is given once.
        for advice in advice::all(verdict) {
            if !given.contains(&advice) {
                writeln!(out, "      next: {}", clean(&advice))?;
                given.insert(advice);
            }
        }
    }
    if hidden > 0 {
        let more = plural(hidden, "more verdict");
        writeln!(out, "\n  {more} on sites; `memtrace diagnose` lists all")?;
    }
    if found.too_short > 0 {
        writeln!(out, "\n  {}", too_short(found.too_short))?;
    }
    Ok(())
}

fn verdict(
    out: &mut impl Write,
    found: &Diagnosis,
    filter: &Filter,
    verdict: &Verdict,
) -> io::Result<()> {
    let about = match &verdict.scope {
        Scope::Process => format!("process {}", verdict.tgid),
        Scope::Site(key) => format!("  site in {} of {}", key.layer.name(), verdict.tgid),
    };
    let runner_up = match verdict.runner_up {
        Some(class) => format!("; runner-up: {}", class.name()),
        None => String::new(),
    };
    let class = verdict.class.name();
    writeln!(
        out,
        "\n  {about}: {class} (grade {}{runner_up})",
        verdict.grade.name()
    )?;
    for line in &verdict.evidence {
        writeln!(out, "      {}", evidence::words(line))?;
    }
    if let Scope::Site(key) = &verdict.scope {
        let frames = filter.frames(found.stacks.get(key.stack));
        stack::in_short(out, &frames, filter.full)?;
    }
    kept(out, found, filter, verdict)
}

/// The holder of a site's blocks, and all holders that were seen.
fn kept(
    out: &mut impl Write,
    found: &Diagnosis,
    filter: &Filter,
    verdict: &Verdict,
) -> io::Result<()> {
    if let Some(of) = &verdict.keeper {
        let line = of.line.as_ref();
        let line = line.map(|line| stack::line(line, filter.full));
        writeln!(out, "      {}", holders::sentence(of, line))?;
    }
    let Scope::Site(key) = &verdict.scope else {
        return Ok(());
    };
    let held = found.holders.get(key);
    let mut lines = held
        .into_iter()
        .flat_map(|held| holders::lines(held, verdict.blocks));
    lines.try_for_each(|line| writeln!(out, "        {line}"))
}

/// Sites without a verdict whose blocks nothing points to.
fn lost_sites(out: &mut impl Write, found: &Diagnosis, filter: &Filter) -> io::Result<()> {
    let lost = || found.lost_sites.iter().filter(|of| covers(filter, of.tgid));
    if lost().next().is_none() {
        return Ok(());
    }
    writeln!(
        out,
        "\nLost blocks: nothing points to them, so nothing can free them"
    )?;
    for of in lost() {
        let stack = found.stacks.get(of.site.stack);
        let frames: Vec<_> = stack.of_caller().collect();
        let line = own_line(&frames).map(|frame| stack::line(frame, filter.full));
        writeln!(
            out,
            "  {}  about {}, {}",
            line.as_deref().unwrap_or("unknown line"),
            plural(of.blocks as u64, "block"),
            size(of.bytes as u64)
        )?;
    }
    Ok(())
}

fn lost_site_json(of: &LostSite, stacks: &Stacks) -> Value {
    let frames: Vec<_> = stacks.get(of.site.stack).of_caller().collect();
    json!({
        "tgid": of.tgid,
        "layer": of.site.layer.name(),
        "blocks": of.blocks.round(),
        "bytes": of.bytes.round(),
        "line": own_line(&frames),
    })
}

fn suppressed(out: &mut impl Write, found: &Diagnosis) -> io::Result<()> {
    if found.suppressed.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nSuppressed")?;
    for (pattern, verdict) in &found.suppressed {
        let rate = verdict
            .rate
            .map_or(String::new(), |rate| format!(", {}/s", signed(rate)));
        writeln!(
            out,
            "  leak:{}  {}{rate}",
            clean(pattern),
            verdict.class.name()
        )?;
    }
    Ok(())
}

fn tables(out: &mut impl Write, found: &Diagnosis, filter: &Filter) -> io::Result<()> {
    for account in found
        .accounts
        .iter()
        .filter(|account| covers(filter, account.tgid))
    {
        writeln!(
            out,
            "\nWhere the memory of process {} went, from {:.1} s to {:.1} s of the recording (start-up left out)",
            account.tgid, account.from, account.to
        )?;
        if found.lost > 0.0 {
            let lost = match found.lost * 100.0 {
                percent if percent < 0.1 => "less than 0.1".into(),
                percent => format!("{percent:.1}"),
            };
            writeln!(
                out,
                "  {lost} % of the records were lost: figures called exact do not include them"
            )?;
        }
        for table in &account.accounts {
            self::table(out, found, filter, table)?;
        }
    }
    Ok(())
}

fn table(
    out: &mut impl Write,
    found: &Diagnosis,
    filter: &Filter,
    table: &Account,
) -> io::Result<()> {
    writeln!(
        out,
        "  {:<32}{:>14}",
        match table.kind {
            Kind::Device(index) => format!("memory of {}", device_name(index)),
            kind => format!("{} memory", kind.name()),
        },
        signed(table.growth)
    )?;
    for (term, bytes) in table.rows.iter().filter(|(_, bytes)| bytes.abs() >= 1.0) {
        writeln!(
            out,
            "    {:<30}{:>14}  {}",
            term.name(),
            signed(*bytes),
            term.basis(*bytes)
        )?;
        if let Term::Holes(site) = term {
            let frames: Vec<_> = found.stacks.get(site.stack).of_caller().collect();
            let line = own_line(&frames).map_or("code without a stack".into(), |frame| {
                stack::line(frame, filter.full)
            });
            writeln!(out, "      of {line}")?;
        }
    }
    Ok(())
}

fn signed(bytes: f64) -> String {
    let sign = if bytes <= -1.0 { '-' } else { '+' };
    format!("{sign}{}", size(bytes.abs() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_without_an_end_is_marked() {
        let (found, filter) = (Diagnosis::default(), Filter::default());
        let of = |cut_off| {
            let mut text = Vec::new();
            diagnosis(&mut text, &found, cut_off, &filter).unwrap();
            let mut json = Vec::new();
            diagnosis_json(&mut json, &found, cut_off, &filter).unwrap();
            let json: Value = serde_json::from_slice(&json).unwrap();
            (
                String::from_utf8(text).unwrap(),
                json["is_complete"].clone(),
            )
        };
        let (text, is_complete) = of(Some(7_100_000_000));
        assert!(
            text.starts_with("The recording is INCOMPLETE (killed"),
            "{text}"
        );
        assert!(text.contains("data up to 7.1 s\n"), "{text}");
        assert_eq!(is_complete, false);
        let (text, is_complete) = of(None);
        assert!(!text.contains("INCOMPLETE"), "{text}");
        assert_eq!(is_complete, true);
    }
}
