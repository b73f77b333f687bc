//! The last line: a message and keys, or the filter that is being typed.

use ratatui::{Frame, layout::Rect, text::Span};

use super::{Style, text};
use crate::top::{
    keys::{BINDINGS, Binding, Command},
    state::{Origin, State},
};

/// Between words.
const GAP: &str = "  ";

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, style: Style) {
    if state.is_typing() {
        let room = usize::from(area.width).saturating_sub(2);
        let typed = text::narrow(&state.choice.text);
        // The end is where the user types.
        let skipped = typed.chars().count().saturating_sub(room);
        let typed: String = typed.chars().skip(skipped).collect();
        let spans = vec![
            Span::styled("/", style.title),
            Span::raw(typed),
            Span::styled(" ", style.selected),
        ];
        return text::spans(frame, area, spans);
    }
    let mut spans = Vec::new();
    let mut room = usize::from(area.width);
    if !state.message.is_empty() {
        let message = text::cut(&state.message, room);
        room = room.saturating_sub(message.chars().count() + GAP.len());
        spans.extend([Span::styled(message, style.warning), Span::raw(GAP)]);
    }
    let mut used = 0;
    let is_live = matches!(state.origin, Origin::Live(_));
    let useful = |binding: &&Binding| {
        !binding.short.is_empty() && (is_live || binding.command != Command::Search)
    };
    for binding in BINDINGS.iter().filter(useful) {
        let word = format!(" {}{GAP}", binding.short);
        used += binding.key.len() + word.len();
        if used > room + GAP.len() {
            break;
        }
        spans.push(Span::styled(binding.key, style.title));
        spans.push(Span::raw(word));
    }
    text::spans(frame, area, spans);
}
