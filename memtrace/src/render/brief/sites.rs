//! Sites, one stack, and the holders of blocks in short.

use serde_json::json;

use super::{Brief, Entry, frame, line};
use crate::{
    frames::{Frame, own_line},
    recording::{Snapshot, Stack},
    render::{Error, holders as held, json::group_list, stack},
    units::{grouped, plural, size},
    view::{
        By, Filter, Metric, Selection, Shown,
        group::{self, Group},
    },
};

const LAYERS: &str = "Layers are views of the same memory, so do not add them up";
const NONE: &str = "No site matches: leave out a filter, or name another moment with `at`";

/// The selected sites whose stacks have `text` somewhere, in a function, a file with its line, or a module.
fn matching<'a>(
    snapshot: &'a Snapshot,
    filter: &Filter,
    sort: Metric,
    text: Option<&str>,
) -> Result<Selection<'a>, Error> {
    let mut selection = filter.select(snapshot, sort)?;
    let Some(text) = text else {
        return Ok(selection);
    };
    let has_text = |of: &Shown| {
        of.stack
            .frames()
            .any(|frame| stack::line(frame, true).contains(text))
    };
    selection.sites.retain(has_text);
    Ok(selection)
}

fn of_program<'a>(of: Stack<'a>) -> Option<&'a Frame> {
    own_line(&of.of_caller().collect::<Vec<_>>())
}

/// `1.0 MiB in 4 blocks (heap, process 7)`
fn figures(of: &Shown) -> String {
    format!(
        "{} in {} ({}, process {}); allocated {} in {}",
        size(of.live_bytes),
        plural(of.live_count, "block"),
        of.site.key.layer.name(),
        of.tgid(),
        size(of.totals().alloc_bytes),
        grouped(of.totals().alloc_count),
    )
}

/// The sites one by one, the largest by `sort` first.
///
/// # Errors
///
/// When ages are requested but unknown.
pub(crate) fn sites(
    snapshot: &Snapshot,
    filter: &Filter,
    sort: Metric,
    text: Option<&str>,
) -> Result<Brief, Error> {
    let selection = matching(snapshot, filter, sort, text)?;
    let entries = selection.sites.iter().enumerate().map(|(rank, of)| {
        let own = of_program(of.stack);
        Entry {
            text: format!("{}. {}\n  {}", rank + 1, figures(of), line(own)),
            data: json!({
                "rank": rank + 1,
                "pid": of.tgid(),
                "layer": of.site.key.layer.name(),
                "live_bytes": of.live_bytes,
                "live_count": of.live_count,
                "alloc_bytes": of.totals().alloc_bytes,
                "alloc_count": of.totals().alloc_count,
                "free_bytes": of.totals().free_bytes,
                "peak_bytes": of.totals().peak_bytes,
                "allocated_by": own.map(frame),
            }),
        }
    });
    Ok(listed("site", entries.collect()))
}

/// The sites in groups, the largest by `sort` first.
///
/// # Errors
///
/// When ages are requested but unknown, or groups in the order of their peaks.
pub(crate) fn groups(
    snapshot: &Snapshot,
    filter: &Filter,
    by: By,
    sort: Metric,
    text: Option<&str>,
) -> Result<Brief, Error> {
    let selection = matching(snapshot, filter, sort, text)?;
    let groups = group::groups(&selection, by, sort)?;
    let rows = groups.iter().map(|of| Entry {
        text: group_text(of),
        data: group_list(std::slice::from_ref(of))[0].take(),
    });
    Ok(listed(by.noun(), rows.collect()))
}

fn group_text(of: &Group) -> String {
    let totals = &of.sums.totals;
    format!(
        "{} in {} ({}), {}; allocated {} in {}\n  {}",
        size(totals.live_bytes),
        plural(totals.live_count, "block"),
        of.layer.name(),
        plural(of.sums.sites, "site"),
        size(totals.alloc_bytes),
        grouped(totals.alloc_count),
        crate::escape::clean(&of.key)
    )
}

fn listed(noun: &'static str, entries: Vec<Entry>) -> Brief {
    let note = if entries.is_empty() { NONE } else { LAYERS };
    Brief {
        noun,
        head: vec![note.to_owned()],
        entries,
        more: "raise `limit`, or filter by `match`, `layer` or `pid`",
    }
}

/// The stack of the site with this rank, from 1, among those that match.
///
/// # Errors
///
/// When ages are requested but unknown.
pub(crate) fn stack(
    snapshot: &Snapshot,
    filter: &Filter,
    sort: Metric,
    text: Option<&str>,
    rank: usize,
) -> Result<Brief, Error> {
    let selection = matching(snapshot, filter, sort, text)?;
    let all = selection.sites.len();
    let Some(of) = rank
        .checked_sub(1)
        .and_then(|index| selection.sites.get(index))
    else {
        let note = match all {
            0 => NONE.to_owned(),
            _ => format!("`rank` is {rank}, expected 1 to {all}"),
        };
        return Ok(of_lines(vec![note], Vec::new()));
    };
    let mut head = vec![format!("Site {rank} of {all} that match: {}", figures(of))];
    head.extend(
        of.stack
            .thread()
            .map(|name| format!("thread {}", crate::escape::clean(name))),
    );
    if of.stack.is_empty() {
        head.push("It has no stack".to_owned());
    }
    let parts = stack::parts(&filter.frames(of.stack), filter.full).into_iter();
    let lines = parts.map(|part| {
        let text = stack::words(&part, filter.full);
        let data = json!(text);
        Entry { text, data }
    });
    Ok(of_lines(head, lines.collect()))
}

fn of_lines(head: Vec<String>, entries: Vec<Entry>) -> Brief {
    Brief {
        noun: "line",
        head,
        entries,
        more: "`memtrace report` has whole stacks",
    }
}

/// The holders of the blocks of each site for which they were searched, the largest first.
///
/// # Errors
///
/// When ages are requested but unknown.
pub(crate) fn holders(
    snapshot: &Snapshot,
    filter: &Filter,
    text: Option<&str>,
) -> Result<Brief, Error> {
    let selection = matching(snapshot, filter, Metric::LiveBytes, text)?;
    let known = selection.sites.iter();
    let known = known.filter_map(|of| Some((of, snapshot.holders.get(&of.site.key)?)));
    let entries = known.map(|(of, holders)| {
        let (own, lines) = (of_program(of.stack), held::lines(holders, None));
        Entry {
            text: format!(
                "{}\n  allocated by: {}\n  {}",
                figures(of),
                line(own),
                lines.join("\n  ")
            ),
            data: json!({
                "pid": of.tgid(),
                "layer": of.site.key.layer.name(),
                "live_bytes": of.live_bytes,
                "live_count": of.live_count,
                "allocated_by": own.map(frame),
                "held": lines,
            }),
        }
    });
    let entries: Vec<Entry> = entries.collect();
    let nothing = "No holders are recorded here: `memtrace record` searches processes that still run at its end, \
                   for blocks of sites that grow";
    Ok(Brief {
        noun: "site",
        head: entries
            .is_empty()
            .then(|| nothing.to_owned())
            .into_iter()
            .collect(),
        entries,
        more: "raise `limit`, or filter by `match` or `pid`",
    })
}
