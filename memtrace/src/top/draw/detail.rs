//! The selected row: what keeps its blocks, and the stack that allocates them.

use std::iter;

use ratatui::{Frame, layout::Rect, text::Span};

use super::{Style, text};
use crate::{
    analysis::verdict::{Class, How},
    frames::{Frame as Call, names},
    recording::SiteSnapshot,
    render,
    top::{
        reading::{Judged, Reading},
        rows::Row,
        state::{Origin, Phase, State},
    },
    units::{grouped, plural, size},
    view::Filter,
};

/// Columns of the labels.
const LABEL: usize = 11;

const KEPT_BY: &str = "kept by";

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, style: Style) {
    let (Some(reading), Some(row)) = (state.reading(), state.selected_row()) else {
        return;
    };
    let sites = &reading.snapshot.sites;
    let site = sites.binary_search_by_key(&row.largest, |site| site.key);
    let Some(site) = site.ok().and_then(|at| sites.get(at)) else {
        return;
    };
    let width = usize::from(area.width);
    let title = text::parts(&title(reading, row, site), width);
    text::line(frame, area, style.title, &title);
    let width = width.saturating_sub(LABEL);
    let kept = kept(state, reading, site, width);
    let room = usize::from(area.height).saturating_sub(1);
    // The stack gets at least half of the lines, and what keeps the blocks its first line.
    let kept = &kept[..kept.len().min((room / 2).max(1))];
    let calls = stack(reading, site, room.saturating_sub(kept.len()));
    let calls = calls.iter().enumerate().map(|(index, (name, place))| {
        let label = if index == 0 { "stack" } else { "" };
        (label, text::named(name, place, width))
    });
    let kept = kept.iter().map(|(label, text)| (*label, text.clone()));
    for (index, (label, line)) in kept.chain(calls).enumerate() {
        if let Some(area) = text::nth(area, index + 1) {
            let label = Span::styled(format!("{label:<LABEL$}"), style.title);
            let line = Span::styled(text::cut(&line, width), style.plain);
            text::spans(frame, area, vec![label, line]);
        }
    }
}

/// `Largest of 2 sites: 4.8 MiB in 10,000 blocks`, `leak (grade B)`, `allocated 10,000, freed 0`, `pid 1234`, `device 0`.
fn title(reading: &Reading, row: &Row, site: &SiteSnapshot) -> Vec<String> {
    let totals = &site.totals;
    let which = match row.sites {
        1 => "Site".to_owned(),
        n if row.is_leak => format!("Largest leak of {}", plural(n, "site")),
        n => format!("Largest of {}", plural(n, "site")),
    };
    let live = format!(
        "{which}: {} in {}",
        size(totals.live_bytes),
        plural(totals.live_count, "block")
    );
    let judged = reading.verdicts.get(&site.key).filter(|of| is_found(of));
    let judged = judged.map(|of| format!("{} (grade {})", of.class.name(), of.grade.name()));
    let device = site.key.device.map(|device| format!("device {device}"));
    let counts = format!(
        "allocated {}, freed {}",
        grouped(totals.alloc_count),
        grouped(totals.free_count)
    );
    let mut processes = reading.snapshot.processes.iter();
    let process = processes.find(|process| process.row.id == site.key.process);
    let process = process.map(|process| match process.row.is_group() {
        true => "ended processes".into(),
        false => format!("pid {}", process.row.tgid),
    });
    let first = [live].into_iter().chain(judged).chain(device);
    first.chain([counts]).chain(process).collect()
}

/// What keeps the blocks of a site: labels and text.
fn kept(
    state: &State,
    reading: &Reading,
    site: &SiteSnapshot,
    columns: usize,
) -> Vec<(&'static str, String)> {
    let keeper = reading.kept_by(&site.key);
    let seen = reading.snapshot.holders.get(&site.key);
    let can_search = matches!(state.origin, Origin::Live(_)) && state.phase == Phase::Recording;
    let unknown = match can_search {
        true => "press h to search the process",
        false => "not searched for",
    };
    let mut lines = match (&keeper, seen) {
        (Some(keeper), None) => vec![(KEPT_BY, format!("{}; {unknown}", render::kept_by(keeper)))],
        (Some(keeper), Some(_)) => vec![(KEPT_BY, render::kept_by_in(keeper, columns))],
        (None, None) => vec![(KEPT_BY, unknown.to_owned())],
        (None, Some(seen)) => {
            let labels = [KEPT_BY].into_iter().chain(iter::repeat(""));
            labels.zip(render::ways(seen, None)).collect()
        }
    };
    let Some(keeper) = keeper else {
        return lines;
    };
    if let Some(line) = &keeper.line {
        let place = names::source_line(line).unwrap_or_default();
        lines.push((
            render::line_label(&keeper),
            text::named(&names::plain(line), &place, columns),
        ));
    }
    if let How::Path { path, .. } = &keeper.how {
        lines.push(("path", render::folded(path, columns)));
    }
    let seen = seen.and_then(render::most_seen);
    lines.extend(seen.map(|seen| ("seen", seen)));
    lines
}

/// Whether a verdict says more than that there is none.
fn is_found(judged: &Judged) -> bool {
    !matches!(judged.class, Class::None | Class::Undetermined)
}

/// Calls of a stack as names and places, in at most this many lines. If there are more, the program's own line is
/// among them.
fn stack(reading: &Reading, site: &SiteSnapshot, most: usize) -> Vec<(String, String)> {
    let stack = reading.snapshot.stacks.get(site.key.stack);
    let calls: Vec<&Call> = Filter::default().frames(stack);
    if calls.is_empty() {
        return vec![("[no stack]".into(), String::new())];
    }
    render::stack_in_short(&calls, most)
}
