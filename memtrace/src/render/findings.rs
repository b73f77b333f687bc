//! The first screen: for each finding its class, its rate, its grade, and the lines to look at.

use std::io::{self, Write};

use anstyle::Style;

use super::{
    advice,
    device_table::name as device_name,
    evidence::words,
    fit::{cut, shortened},
    holders::{
        FILLED_BY, absent, folded, kept_by, leaked, line_label, name_of,
        sentence as keeper_sentence,
    },
    job::{few, program, too_short, untraced},
    reservations::{comes_and_goes, doubts, shared_meanwhile, started_below},
    types,
};
use crate::{
    analysis::verdict::{Advice, Class, Diagnosis, How, Keeper, REPORTED, Types, Verdict},
    escape::clean,
    frames::{Frame, names},
    units::{grouped, per_second, plural},
    view::{
        Filter,
        findings::{Finding, Line, Named, Part, findings, place, row},
    },
};

/// Lines and columns of the first screen.
const LINES: usize = 24;
const COLUMNS: usize = 100;

/// Column at which the text after the labels begins.
const CONTENT: usize = 16;

/// Label of the types of Python's objects that grow.
const OBJECTS: &str = "objects";

/// Labels of the holder, of evidence and of advice.
const KEPT_BY: &str = "kept by";
pub(super) const EVIDENCE: &str = "evidence";
pub(super) const NEXT: &str = "next";

/// Label of other lines.
const AND: &str = "and";

/// Of the lines whose blocks one container keeps, this many are shown that have this share of the growth.
const PARTS: usize = 3;
const LEAST_PART: f64 = 0.01;

/// Of the other lines of a finding, this many are shown that have this share of its growth.
const OTHERS: usize = 2;
const LEAST_OTHER: f64 = 0.1;

/// Label of the cost of the holes around the blocks.
const BESIDES: &str = "besides";

/// Writes the findings of a recording.
pub(super) fn section(out: &mut impl Write, found: &Diagnosis, filter: &Filter) -> io::Result<()> {
    let findings = findings(found, filter);
    let not_traced = untraced(&found.untraced);
    let room = LINES.saturating_sub(not_traced.len());
    let headline_style = match filter.colour {
        true => Style::new().bold(),
        false => Style::new(),
    };
    let mut lines = Vec::new();
    let mut shown = 0;
    for finding in findings.iter().filter(|of| !of.is_minor(&findings)) {
        let text = on_screen(&items(finding, found));
        // One line is for the number of hidden findings, and an empty one follows.
        if shown > 0 && lines.len() + text.len() > room.saturating_sub(2) {
            break;
        }
        let style = std::iter::once(headline_style).chain(std::iter::repeat(Style::new()));
        lines.extend(style.zip(text));
        shown += 1;
    }
    let hidden = (findings.len() - shown) as u64;
    if hidden > 0 {
        let more = format!("{} more, see below", plural(hidden, "finding"));
        lines.push((Style::new(), more));
    }
    let notes = not_traced
        .into_iter()
        .chain((found.too_short > 0).then(|| too_short(found.too_short)));
    lines.extend(notes.map(|note| (Style::new(), note)));
    for (style, line) in &lines {
        writeln!(out, "{style}{}{style:#}", cut(line, COLUMNS))?;
    }
    Ok(())
}

/// The first finding, and the line that fills its container, or else the holder; `None`: nothing grows.
pub(super) fn in_one_line(found: &Diagnosis, filter: &Filter, columns: usize) -> Option<String> {
    let findings = findings(found, filter);
    let first = findings.first().filter(|finding| finding.is_growth())?;
    let items = items(first, found);
    let text = |label| items.iter().find(|item| item.label == label);
    let keeper = text(FILLED_BY).or_else(|| text(KEPT_BY));
    let keeper = keeper.map(|item| format!("{} {}", item.label, item.text));
    let headline = items.first().map(|item| item.text.clone());
    let line: Vec<String> = headline.into_iter().chain(keeper).collect();
    Some(cut(&line.join("; "), columns))
}

/// A line of a finding: text behind a label. The headline has no label.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) label: &'static str,
    pub(super) text: String,
}

impl Item {
    fn new(label: &'static str, text: impl Into<String>) -> Item {
        let text = text.into();
        Item { label, text }
    }

    fn line(&self) -> String {
        match self.label {
            "" => self.text.clone(),
            label => format!("  {label:<width$}{}", self.text, width = CONTENT - 2),
        }
    }
}

/// The headline with what the holes cost, and the other lines.
pub(super) fn whole_headline(items: &[Item]) -> (String, &[Item]) {
    match items {
        [headline, besides, rest @ ..] if besides.label == BESIDES => {
            (format!("{}; {}", headline.text, besides.text), rest)
        }
        [headline, rest @ ..] => (headline.text.clone(), rest),
        [] => (String::new(), items),
    }
}

/// The lines of a finding on a terminal. What the holes cost stands in the headline if both fit on a line.
pub(super) fn on_screen(items: &[Item]) -> Vec<String> {
    let (headline, rest) = whole_headline(items);
    if headline.chars().count() <= COLUMNS {
        let rest = rest.iter().flat_map(|item| wrapped(&item.line()));
        return [headline].into_iter().chain(rest).collect();
    }
    items
        .iter()
        .flat_map(|item| wrapped(&item.line()))
        .collect()
}

/// On two lines if one is too short, the second as far as it fits. A command stays whole if
/// possible.
fn wrapped(line: &str) -> Vec<String> {
    let Some((end, _)) = line.char_indices().nth(COLUMNS) else {
        return vec![line.to_owned()];
    };
    let spaces = line[..end].rmatch_indices(' ').map(|(at, _)| at);
    let mut spaces = spaces.take_while(|space| *space > CONTENT);
    let is_whole = |space: &usize| {
        let (first, rest) = line.split_at(*space);
        first.matches('`').count().is_multiple_of(2)
            && rest.trim_start().chars().count() <= COLUMNS - CONTENT
    };
    match spaces.clone().find(is_whole).or_else(|| spaces.next()) {
        Some(space) => {
            let rest = format!("{:CONTENT$}{}", "", &line[space + 1..]);
            vec![line[..space].trim_end().to_owned(), rest]
        }
        None => vec![line.to_owned()],
    }
}

/// The headline of a finding, and the lines below it.
pub(super) fn items(finding: &Finding, found: &Diagnosis) -> Vec<Item> {
    let verdict = finding.verdict;
    let about = format!("{} (grade {})", verdict.class.name(), verdict.grade.name());
    let mut items = Vec::new();
    match finding.blamed() {
        Some(line) => {
            items.extend(headline(&about, verdict, line));
            items.push(processes(finding, found));
            items.extend(comes_and_goes(finding).map(but));
            let rate = finding.rate().filter(|_| place(verdict).is_none());
            items.extend(rate.and_then(|rate| beyond(verdict.class, line, rate)));
            items.extend(line.allocates.map(|frame| allocated(line, frame)));
            items.extend(line.calls.map(|frame| named("calling", "", frame)));
            items.extend(called_by(line));
            items.extend(also(line));
            let types = types_of(finding, found).filter(|_| line.has_arenas());
            items.extend(types.map(objects));
            let of_objects = finding.keeps_objects;
            let keeper = line.keeper.or(of_objects.filter(|_| line.has_arenas()));
            items.extend(keeper.into_iter().flat_map(kept));
            items.extend(unknown(verdict.class, line).filter(|_| keeper.is_none()));
            items.extend(others(line, &finding.lines[1..]));
            items.extend(next(line.next, verdict.tgid));
        }
        None if finding.is_suppressed => {
            let sites = format!("suppressed: {about}; `Suppressed` below lists the sites");
            items.push(Item::new("", sites));
            items.push(processes(finding, found));
        }
        None => items.extend(unblamed(&about, finding, found)),
    }
    if verdict.class == Class::Undetermined && found.lost > 0.0 {
        items.push(Item::new("losses", "records were lost, see below"));
    }
    items
}

/// The lines of a finding without a line to blame.
fn unblamed(about: &str, finding: &Finding, found: &Diagnosis) -> Vec<Item> {
    let verdict = finding.verdict;
    let are_much = |types: &&Types| {
        let rate = finding.rate().filter(|_| verdict.class != Class::None);
        rate.is_some_and(|rate| types.rate() >= REPORTED * rate)
    };
    let types = types_of(finding, found).filter(are_much);
    let of_objects = finding.keeps_objects.filter(|_| types.is_some());
    let meaning = match of_objects.and_then(name_of) {
        Some(name) if verdict.class.is_leak() => {
            format!("{name} keeps more and more objects")
        }
        _ => verdict.class.meaning().to_owned(),
    };
    let mut items = vec![
        Item::new("", format!("{about}: {meaning}")),
        processes(finding, found),
    ];
    items.extend(comes_and_goes(finding).map(but));
    // Without a rate the evidence has to give the amount.
    let least = verdict.class != Class::None && finding.rate().is_none();
    let shown = verdict.class.on_screen().max(usize::from(least));
    let evidence = verdict.evidence.iter().take(shown);
    items.extend(evidence.map(|of| Item::new(EVIDENCE, words(of))));
    items.extend(finding.named.iter().flat_map(look_at));
    items.extend(types.map(objects));
    let is_shown = |of: &&Keeper| {
        let named = finding.named.as_ref().and_then(Named::keeper);
        named.is_some_and(|named| named.is_same(of))
    };
    items.extend(
        of_objects
            .filter(|of| !is_shown(of))
            .into_iter()
            .flat_map(kept),
    );
    let more = [started_below(finding), shared_meanwhile(finding, found)];
    let more = more.into_iter().flatten();
    items.extend(doubts(finding).into_iter().chain(more).map(but));
    items.extend(next(&verdict.next, verdict.tgid));
    items
}

/// The types of Python's objects that grow in the process of a finding.
fn types_of<'a>(finding: &Finding, found: &'a Diagnosis) -> Option<&'a Types> {
    let types = found.types.get(&finding.verdict.process)?;
    (!types.growing.is_empty()).then_some(types)
}

fn objects(types: &Types) -> Item {
    Item::new(OBJECTS, types::line(types))
}

fn look_at(at: &Named) -> Vec<Item> {
    match at {
        Named::Largest { line, rate, keeper } => {
            let before = format!("{} by ", per_second(*rate));
            let line = named("grows most", &before, line);
            let kept = keeper.iter().flat_map(|of| kept(of));
            std::iter::once(line).chain(kept).collect()
        }
        Named::MapsShared { line, rate } => {
            let before = format!("{} by ", per_second(*rate));
            vec![named("maps as much", &before, line)]
        }
        Named::StartsProcesses(frame) => vec![named("started by", "probably ", frame)],
        Named::CreatesThreads(frame) => vec![named("created by", "", frame)],
    }
}

/// What restricts a finding.
fn but(text: String) -> Item {
    Item::new("but", text)
}

/// Why a line keeps more than its process grows by.
fn beyond(class: Class, line: &Line, rate: f64) -> Option<Item> {
    /// Rates that differ less than this are equal within their error.
    const MORE: f64 = 1.25;
    let is_other = matches!(
        class,
        Class::MappingLeak | Class::ThreadLeak | Class::Pinned
    );
    let is_more = line.bytes > MORE * rate && !is_other;
    is_more.then(|| {
        Item::new("but", "the process grows by less: other memory was freed, or part of this was not written to yet")
    })
}

/// The line that allocates. What fills arenas is better shown by the line that keeps it, if that is known.
fn allocated(line: &Line, frame: &Frame) -> Item {
    let is_filled = line
        .keeper
        .is_some_and(|of| of.line.is_some() || leaked(of).is_some());
    let before = match line.are_arenas && is_filled {
        true => "several lines; an arena was requested by ",
        false => "",
    };
    named("allocated by", before, frame)
}

/// The caller that leaks, unless the line that keeps the blocks says more.
fn caller<'a>(line: &Line<'a>) -> Option<&'a Frame> {
    let is_filled = line.keeper.is_some_and(|keeper| keeper.line.is_some());
    line.called_by.filter(|_| !is_filled)
}

/// The caller that leaks, or else those that led here.
fn called_by(line: &Line) -> Option<Item> {
    const LABEL: &str = "called by";
    if let Some(frame) = caller(line) {
        return Some(named(LABEL, "", frame));
    }
    let is_filled = line.keeper.is_some_and(|keeper| keeper.line.is_some());
    let callers = line.callers.iter().filter(|_| !is_filled);
    let callers: Vec<String> = callers.map(|frame| names::plain(frame)).collect();
    let text = cut(&callers.join(" ← "), COLUMNS - CONTENT);
    (!text.is_empty()).then(|| Item::new(LABEL, text))
}

/// The other lines whose blocks the same container keeps.
fn also(line: &Line<'_>) -> Vec<Item> {
    let shown = |of: &&Part| of.bytes >= LEAST_PART * line.bytes;
    let shown: Vec<&Part> = line.others.iter().filter(shown).collect();
    let (first, rest) = shown.split_at(shown.len().min(PARTS));
    let first = first
        .iter()
        .filter_map(|of| Some(by(of.bytes, of.are_arenas, of.allocates?)));
    let more = plural(rest.len() as u64, "more line");
    let more = (!rest.is_empty()).then(|| Item::new(AND, more));
    first.chain(more).collect()
}

/// `and  117 KiB/s by load`. Any line may need the next arena.
fn by(bytes: f64, are_arenas: bool, frame: &Frame) -> Item {
    let requested = if are_arenas {
        "in arenas requested "
    } else {
        ""
    };
    named(AND, &format!("{} {requested}by ", per_second(bytes)), frame)
}

/// The other lines of a finding than its `first`, and the keeper of each, if that is another and certain. Small ones are
/// counted, unless there is only one.
fn others(first: &Line<'_>, lines: &[Line<'_>]) -> Vec<Item> {
    let of_first = first.keeper.map(|of| keeper_sentence(of, None));
    let lines: Vec<&Line> = lines.iter().filter(|line| line.bytes >= 1.0).collect();
    let all: f64 = lines.iter().map(|line| line.bytes).sum();
    let least = match lines[..] {
        [_] => 0.0,
        _ => LEAST_OTHER * (first.bytes + all),
    };
    let matter = lines.iter().filter(|line| line.bytes >= least);
    let mut items: Vec<Item> = matter
        .filter_map(|line| {
            let mut item = by(line.bytes, line.are_arenas, line.allocates?);
            let keeper = line.keeper.filter(|of| !of.is_likely());
            let kept = keeper.map(|of| keeper_sentence(of, None));
            if let Some(kept) = kept.filter(|kept| Some(kept) != of_first.as_ref()) {
                item.text += &format!("; {kept}");
            }
            Some(item)
        })
        .take(OTHERS)
        .collect();
    let rest = (lines.len() - items.len()) as u64;
    if rest > 0 {
        let what = if items.is_empty() { "other" } else { "more" };
        let more = plural(rest, &format!("{what} line"));
        items.push(Item::new(AND, format!("{more}, see below")));
    }
    items
}

/// `leak (grade B): Service.log keeps 25 blocks/s (137 KiB/s)`, and `the holes around them cost 1.1
/// MiB/s`.
fn headline(about: &str, verdict: &Verdict, line: &Line) -> Vec<Item> {
    let mut items = vec![Item::new(
        "",
        format!("{about}: {}", sentence(verdict, line)),
    )];
    if line.bytes > 0.0 && line.holes >= line.bytes / 10.0 {
        let holes = format!("the holes around them cost {}", per_second(line.holes));
        items.push(Item::new(BESIDES, holes));
    }
    items
}

/// Columns of a name that leaves room for the rest of a headline.
const SHORT: usize = COLUMNS / 2;

/// `Service.log keeps 25 blocks/s (137 KiB/s)`.
fn sentence(verdict: &Verdict, line: &Line) -> String {
    if line.bytes <= 0.0 {
        return verdict.class.meaning().into();
    }
    if verdict.class == Class::Cache && verdict.rate.is_none() {
        let name = line.allocates.map_or("memory".into(), subject);
        return format!("{name} grew to a limit");
    }
    if let Some(leaked) = line.keeper.and_then(leaked).filter(|_| line.are_arenas) {
        return format!("{leaked} keep {}", per_second(line.bytes));
    }
    let leaks = verdict.class.is_leak();
    let keeper = line.keeper.and_then(|kept| {
        let line = kept.line.as_ref();
        let own = line.filter(|line| !line.is_installed()).map(subject);
        let name = name_of(kept);
        let fits = |columns| move |name: &String| name.chars().count() <= columns;
        let short = name.clone().filter(fits(SHORT));
        let certain = name.filter(|_| !kept.is_likely()).filter(fits(COLUMNS));
        own.or(short).or_else(|| line.map(subject)).or(certain)
    });
    let allocates = || {
        let caller = caller(line).or(line.allocates);
        caller.map_or("code without a stack".into(), subject)
    };
    let keeps = match line.keeper.is_some_and(Keeper::is_likely) {
        true => "probably keeps",
        false => "keeps",
    };
    let is_unnamed = keeper.is_none();
    let (name, does) = match (keeper, line.runtime) {
        (Some(keeper), _) => (keeper, keeps),
        (None, Some(runtime)) => (format!("{runtime}'s own memory"), "grows by"),
        (None, None) if leaks => (allocates(), "allocates"),
        (None, None) => (allocates(), "grows by"),
    };
    let amount = if line.blocks >= 0.5 {
        let blocks = line.blocks.round() as u64;
        let noun = if blocks == 1 { "block" } else { "blocks" };
        format!("{} {noun}/s ({})", grouped(blocks), per_second(line.bytes))
    } else {
        per_second(line.bytes)
    };
    let stays = match line.keeper.map(|kept| &kept.how) {
        None if line.runtime.is_some() => "",
        None | Some(How::Path { .. }) if leaks && is_unnamed => " that stay",
        Some(How::Cycle { .. } | How::Hidden { .. }) => " that only cycles keep alive",
        Some(How::Surplus { .. }) => " that a leaked reference keeps alive",
        Some(How::Nothing { .. } | How::LostWith { .. }) => " that nothing points to",
        Some(How::LostCycle { .. }) => " that only a cycle keeps alive",
        _ if matches!(verdict.class, Class::MappingLeak | Class::ThreadLeak) => " of address space",
        _ if verdict.class == Class::Cache => ", towards a limit",
        _ => "",
    };
    format!("{name} {does} {amount}{stays}")
}

/// A frame's name; that of code without one of its own (`<module>`, `<listcomp>`) comes with its line.
fn subject(frame: &Frame) -> String {
    let name = names::plain(frame);
    let is_unnamed = frame.is_python() && name.ends_with('>');
    match names::source_line(frame).filter(|_| is_unnamed) {
        Some(place) => {
            let file = place.rsplit('/').next().unwrap_or(&place);
            format!("{name} ({file})")
        }
        None => name,
    }
}

/// Why the keeper of leaking blocks is not known.
fn unknown(class: Class, line: &Line) -> Option<Item> {
    let is_unknown = class.is_leak() && line.keeper.is_none();
    let why = line.absent.filter(|_| is_unknown)?;
    Some(Item::new(KEPT_BY, format!("unknown: {}", absent(why))))
}

/// The holder of the blocks, and the path to them.
fn kept(of: &Keeper) -> Vec<Item> {
    let line = of.line.as_ref();
    match &of.how {
        How::Container(_) => {
            let before = format!("{}, filled by ", kept_by(of));
            let filled = line.map(|line| named(KEPT_BY, &before, line));
            filled.into_iter().collect()
        }
        How::Path { path, .. } => {
            let mut items = vec![
                Item::new(KEPT_BY, kept_by(of)),
                Item::new("path", folded(path, COLUMNS - CONTENT)),
            ];
            items.extend(line.map(|line| named(FILLED_BY, "", line)));
            items
        }
        How::Surplus { path, .. } | How::Hidden { path, .. } => {
            let mut items = vec![Item::new(KEPT_BY, kept_by(of))];
            if path.steps.len() > 1 {
                items.push(Item::new("path", folded(path, COLUMNS - CONTENT)));
            }
            items.extend(line.map(|line| {
                let package = of.package.as_ref().map(|of| format!("{}: ", clean(of)));
                named(line_label(of), &package.unwrap_or_default(), line)
            }));
            items
        }
        How::Cycle { path, .. } if !path.steps.is_empty() => vec![
            Item::new(KEPT_BY, kept_by(of)),
            Item::new("cycle", folded(path, COLUMNS - CONTENT)),
        ],
        _ => vec![Item::new(KEPT_BY, kept_by(of))],
    }
}

/// The first piece of advice.
fn next(all: &[Advice], tgid: u32) -> Option<Item> {
    let first = all.first()?;
    Some(Item::new(NEXT, clean(&advice::words(first, tgid))))
}

/// The processes of a finding, and their rate of growth.
fn processes(finding: &Finding, found: &Diagnosis) -> Item {
    let verdict = finding.verdict;
    let rate = finding.rate().filter(|_| verdict.class != Class::None);
    let of = match verdict.class {
        Class::ProcessLeak => "in child processes",
        _ => "in total",
    };
    let in_all = rate.map_or(String::new(), |rate| format!(", {} {of}", per_second(rate)));
    let place = place(verdict).map_or(String::new(), |device| format!(", {}", device_name(device)));
    let (label, which) = match &finding.processes[..] {
        [_] => {
            let row = row(found, verdict.process);
            let of = row.map(|row| program(&row.comm, &row.cmdline));
            let of = of.filter(|of| !of.is_empty());
            let of = of.map_or(String::new(), |of| format!(" of `{of}`"));
            ("process", format!("{}{of}", verdict.tgid))
        }
        several => {
            let mut tgids: Vec<u32> = several.iter().map(|of| of.tgid).collect();
            tgids.sort_unstable();
            let tgids: Vec<String> = tgids.iter().map(u32::to_string).collect();
            let rows = several.iter().filter_map(|of| row(found, of.process));
            let mut programs: Vec<String> =
                rows.map(|row| program(&row.comm, &row.cmdline)).collect();
            programs.dedup();
            let of = match &programs[..] {
                [program] => format!(" of `{program}`"),
                _ => String::new(),
            };
            ("processes", format!("{}{of}", few(&tgids)))
        }
    };
    if verdict.class.is_of_machine() {
        let in_all = rate.map_or(String::new(), |rate| {
            format!("{} in total, ", per_second(rate))
        });
        let by = match finding.named {
            Some(Named::MapsShared { .. }) => "perhaps by",
            _ => "not by",
        };
        return Item::new("machine", format!("{in_all}{by} {label} {which}"));
    }
    let rest = format!("{place}{in_all}");
    let room = (COLUMNS - CONTENT).saturating_sub(rest.chars().count());
    // Only the program's name can make it that long.
    let which = match which.chars().count() > room {
        true => cut(&which, room.saturating_sub(1)) + "`",
        false => which,
    };
    Item::new(label, which + &rest)
}

/// Most characters of a path.
const PATH: usize = 48;

/// A frame's name with its line of source or module, behind `before`.
fn named(label: &'static str, before: &str, frame: &Frame) -> Item {
    let place = names::source_line(frame).or_else(|| frame.module_name().map(clean));
    let place = place.unwrap_or_default();
    let named = format!("{before}{}  ", names::plain(frame));
    let room = (COLUMNS - CONTENT).saturating_sub(named.chars().count());
    let text = named + &shortened(&place, room.min(PATH));
    Item::new(label, text.trim_end())
}

#[cfg(test)]
pub(super) mod snapshots;

#[cfg(test)]
mod tests;
