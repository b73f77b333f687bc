//! The head: what is watched and since when, its memory over time, and the choice of rows.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::Span,
};

use super::{Style, course, text};
use crate::{
    collect::missing::Missing,
    event::Layer,
    recording::ProcessRow,
    render,
    top::{
        reading::{self, Reading},
        state::{Origin, Phase, State},
    },
    units::{grouped, seconds, size},
};

/// Layers whose live bytes are named.
const LAYERS: usize = 4;

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, style: Style) {
    let lines = Layout::vertical([Constraint::Length(1); 4]).split(area);
    let [title, resident, live, choice] = [0, 1, 2, 3].map(|index| lines[index]);
    self::title(frame, title, state, style);
    let Some(reading) = state.reading() else {
        return;
    };
    let span = reading.whole();
    figure(frame, resident, "RSS", &reading.resident, span, style);
    let (name, course) = live_course(reading, state.choice.layer);
    figure(frame, live, name, &course, span, style);
    self::choice(frame, choice, state, reading, style);
}

/// Begins the title.
const NAME: &str = "memtrace:";

/// `memtrace: pid 1234, server --port 80, and 3 more processes  recording for 83.2 s`.
fn title(frame: &mut Frame, area: Rect, state: &State, style: Style) {
    let reading = state.reading();
    let (what, others) = reading.and_then(program).unwrap_or_else(|| {
        let what = match &state.origin {
            Origin::File(path) => path.clone(),
            Origin::Live(pids) => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                format!("pid {}", pids.join(", "))
            }
        };
        (what, String::new())
    });
    let status = status(state, reading);
    let frozen = if state.is_frozen { "FROZEN" } else { "" };
    let fixed = [NAME, &others, frozen, &status].map(|part| part.chars().count());
    let fixed = fixed.iter().sum::<usize>() + if state.is_frozen { 5 } else { 3 };
    let room = usize::from(area.width).saturating_sub(fixed);
    let mut spans = vec![
        Span::styled(NAME, style.title),
        Span::raw(format!(" {}{others}  ", text::cut(&what, room))),
    ];
    if state.is_frozen {
        spans.push(Span::styled(frozen, style.selected));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::raw(status));
    text::spans(frame, area, spans);
}

/// The first process, and how many others there are; `None`: none is known yet.
fn program(reading: &Reading) -> Option<(String, String)> {
    let mut processes = reading.processes();
    let all: u64 = processes.clone().map(ProcessRow::processes).sum();
    let first = processes.find(|row| !row.is_group())?;
    let others = match all.saturating_sub(1) {
        0 => String::new(),
        1 => ", and 1 more process".to_owned(),
        n => format!(", and {} more processes", grouped(n)),
    };
    let program = render::program(&first.comm, &first.cmdline);
    Some((format!("pid {}, {program}", first.tgid), others))
}

/// How far the recording reaches, and whether it goes on.
fn status(state: &State, reading: Option<&Reading>) -> String {
    let live = matches!(state.origin, Origin::Live(_));
    if live && state.phase == Phase::Starting {
        return "setting probes".into();
    }
    let Some(reading) = reading else {
        return String::new();
    };
    let span = reading.whole();
    let reaches = seconds(span.to_ns.saturating_sub(span.from_ns));
    match (reading.is_open, reading.has_ended()) {
        _ if live && state.phase == Phase::Recording => format!("recording for {reaches}"),
        (_, true) => format!("ended after {reaches}; LIVE is the peak"),
        (true, false) if !live => format!("{reaches} so far, or incomplete"),
        (_, false) => format!("recorded for {reaches}"),
    }
}

/// The layer whose live bytes are drawn, and their course.
fn live_course(reading: &Reading, layer: Option<Layer>) -> (&'static str, Vec<(u64, u64)>) {
    let is_heap = |layer| matches!(layer, Layer::Heap | Layer::Python);
    let largest = || reading.layers().first().map(|(layer, _)| *layer);
    let layer = layer.or_else(|| match reading.snapshot.meta.without_heap {
        true => largest(),
        false => None,
    });
    match layer {
        Some(layer) => (layer.name(), reading.course(|of| of == layer)),
        None => ("live", reading.course(is_heap)),
    }
}

/// `RSS     12.4 MiB ▁▂▃▄▅▆▇█   8.0 MiB to 12.4 MiB`.
fn figure(
    frame: &mut Frame,
    area: Rect,
    name: &str,
    course: &[(u64, u64)],
    span: reading::Span,
    style: Style,
) {
    let values = || course.iter().map(|(_, value)| *value);
    let now = values().next_back().map_or("-".into(), size);
    let range = match (values().min(), values().max()) {
        (Some(least), Some(most)) => format!("{} to {}", size(least), size(most)),
        _ => String::new(),
    };
    // On a narrow screen, the course is worth more than its range.
    let range_width = if area.width < 60 { 0 } else { 25 };
    let [label, bars, legend] = Layout::horizontal([
        Constraint::Length(18),
        Constraint::Fill(1),
        Constraint::Length(range_width),
    ])
    .areas(area);
    text::line(frame, label, style.plain, &format!("{name:<6}{now:>11}"));
    course::draw(frame, bars, course, span, style);
    text::line(frame, legend, style.plain, &format!("{range:>25}"));
}

/// What was lost, and what the rows are.
fn choice(frame: &mut Frame, area: Rect, state: &State, reading: &Reading, style: Style) {
    let choice = &state.choice;
    let (by, sort) = (choice.grouping.noun(), choice.sort.name());
    let growth = match &state.mark {
        Some(mark) => {
            let since = reading.whole().to_ns.saturating_sub(mark.time_ns);
            format!("changes since the mark, {} ago", seconds(since))
        }
        None => {
            let ns = reading.recent().seconds() * 1e9;
            format!("growth over {}", seconds(ns as u64))
        }
    };
    let layer = choice.layer.map(|layer| format!("only {}", layer.name()));
    let filter = &choice.text;
    let filter = (!filter.is_empty()).then(|| format!("only with \"{filter}\""));
    let lost = Missing::of(&reading.snapshot.losses);
    let (lost, look) = match lost.records() {
        0 => (None, style.plain),
        _ => (Some(format!("{lost}: figures are bounds")), style.warning),
    };
    let rows = format!("a row per {by}, {sort}");
    let chosen = layer.into_iter().chain(filter);
    let parts = lost.into_iter().chain(chosen).chain([rows, growth]);
    let sizes = reading.layers().into_iter().take(LAYERS);
    let sizes = sizes.map(|(layer, bytes)| format!("{} {}", layer.name(), size(bytes)));
    let parts: Vec<String> = parts.chain(sizes).collect();
    text::line(frame, area, look, &text::parts(&parts, area.width.into()));
}
