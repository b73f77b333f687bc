//! Text in columns. Text of traced programs becomes harmless: control characters are escaped, and characters that do
//! not take exactly one column are replaced, because terminals disagree about them.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style as Look,
    text::{Line, Span},
};

use crate::{escape::clean, render};

/// Stands for a character that does not take one column, such as a wide or a combining one.
const REPLACED: char = '?';

/// Harmless text: each character takes one column.
pub(super) fn narrow(text: &str) -> String {
    let is_narrow = |c: char| c.is_ascii() || Span::raw(c.to_string()).width() == 1;
    let cleaned = clean(text);
    let characters = cleaned.chars();
    characters
        .map(|c| if is_narrow(c) { c } else { REPLACED })
        .collect()
}

/// The beginning of a text, in at most this many columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    first(&narrow(text), columns)
}

/// The same, of harmless text.
fn first(text: &str, columns: usize) -> String {
    match columns {
        0 => String::new(),
        _ => render::cut(text, columns),
    }
}

/// As many of the parts as fit whole, the most important first; of the first one at least its beginning.
pub(super) fn parts(parts: &[String], columns: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let part = narrow(part);
        let longer = match text.is_empty() {
            true => first(&part, columns),
            false => format!("{text}; {part}"),
        };
        if longer.chars().count() <= columns {
            text = longer;
        }
    }
    text
}

/// A name and its place in at most this many columns. The file's name and line stay if possible: the folders before them
/// are left out first, then namespaces, then the end of the name.
pub(super) fn named(name: &str, place: &str, columns: usize) -> String {
    let (name, place) = (narrow(name), narrow(place));
    if place.is_empty() {
        return unqualified(&name, columns);
    }
    let room = columns.saturating_sub(name.chars().count() + 2);
    let place = render::shortened(&place, room);
    let place = match place.chars().count() > room {
        // Not even the folder's mark fits.
        true => place.rsplit('/').next().unwrap_or_default().to_owned(),
        false => place,
    };
    let room = columns.saturating_sub(place.chars().count() + 2);
    let name = match name.chars().count() > room && room < columns / 3 {
        true => name,
        false => unqualified(&name, room),
    };
    first(&format!("{name}  {place}"), columns)
}

/// A name in at most this many columns: namespaces and classes are left out first, then its end.
fn unqualified(name: &str, columns: usize) -> String {
    let mut depth = 0_usize;
    let mut own = name.to_owned();
    for (at, c) in name.char_indices() {
        if own.chars().count() <= columns {
            break;
        }
        let rest = name.get(at..).unwrap_or_default();
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 && rest.starts_with("::") => own = format!("…{rest}"),
            _ => {}
        }
    }
    first(&own, columns)
}

/// One line of text.
pub(super) fn line(frame: &mut Frame, area: Rect, look: Look, text: &str) {
    let text = cut(text, area.width.into());
    spans(frame, area, vec![Span::styled(text, look)]);
}

/// One line in parts, already cleaned.
pub(super) fn spans(frame: &mut Frame, area: Rect, spans: Vec<Span>) {
    let one = Rect {
        height: area.height.min(1),
        ..area
    };
    frame.render_widget(Line::from(spans), one);
}

/// The line of an area at this place, if it is that high.
pub(super) fn nth(area: Rect, index: usize) -> Option<Rect> {
    let index = u16::try_from(index)
        .ok()
        .filter(|index| *index < area.height)?;
    Some(Rect {
        y: area.y + index,
        height: 1,
        ..area
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_takes_one_column() {
        assert_eq!(narrow("plain"), "plain");
        assert_eq!(narrow("\x1b[31mred"), "\\u{1b}[31mred");
        assert_eq!(narrow("a\nb\tc"), "a\\nb\\tc");
        // Wide and combining ones.
        assert_eq!(narrow("漢e\u{301}🦀"), "?e??");
        // Invisible and direction-changing ones.
        assert_eq!(narrow("\u{200b}\u{202e}"), "\\u{200b}\\u{202e}");
        assert_eq!(narrow("é … → ×"), "é … → ×");
    }

    #[test]
    fn parts_are_left_out_whole() {
        let parts = |columns| super::parts(&["one".into(), "second".into(), "3".into()], columns);
        assert_eq!(parts(80), "one; second; 3");
        assert_eq!(parts(13), "one; second");
        assert_eq!(parts(10), "one; 3");
        assert_eq!(parts(2), "o…");
    }

    #[test]
    fn folders_go_before_names_and_lines() {
        let of = |columns| named("remember_answer", "/srv/app/examples/leak.c:22", columns);
        assert_eq!(of(60), "remember_answer  /srv/app/examples/leak.c:22");
        assert_eq!(of(40), "remember_answer  …/examples/leak.c:22");
        assert_eq!(of(28), "remember_answer  …/leak.c:22");
        assert_eq!(of(26), "remember_answer  leak.c:22");
        assert_eq!(of(20), "remember…  leak.c:22");
        assert_eq!(named("main", "", 20), "main");
        let of = |columns| named("shop::Cart<a::b>::add_item", "/srv/cart.cc:7", columns);
        assert_eq!(of(60), "shop::Cart<a::b>::add_item  /srv/cart.cc:7");
        assert_eq!(of(36), "…::Cart<a::b>::add_item  cart.cc:7");
        assert_eq!(of(24), "…::add_item  cart.cc:7");
        assert_eq!(of(18), "…::add…  cart.cc:7");
        for columns in 0..60 {
            assert!(of(columns).chars().count() <= columns, "{columns}");
        }
    }
}
