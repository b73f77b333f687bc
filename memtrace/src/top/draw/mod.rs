//! Draws the state. Pure: it draws into a buffer, whatever shows that. No character is wider than one column, and text of
//! traced programs is cleaned before it is drawn.

mod course;
mod detail;
mod footer;
mod head;
mod help;
mod style;
mod table;
mod text;

pub(crate) use style::Style;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
};

use super::state::State;

/// The smallest useful screen.
const LEAST: (u16, u16) = (40, 10);

/// Lines of the head and of the footer.
const HEAD: u16 = 4;
const FOOTER: u16 = 1;

/// The table has this many lines even if it needs fewer, so that it rarely moves.
const FEW_ROWS: u16 = 8;

/// Draws the whole screen. `state.page` is set to the rows of the table.
pub(crate) fn draw(frame: &mut Frame, state: &mut State, style: Style) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (columns, lines) = LEAST;
        let text = format!("at least {columns} x {lines} needed");
        return text::line(frame, area, style.plain, &text);
    }
    let [head, body, footer] = Layout::vertical([
        Constraint::Length(HEAD),
        Constraint::Min(0),
        Constraint::Length(FOOTER),
    ])
    .areas(area);
    head::draw(frame, head, state, style);
    if state.shows_help {
        help::draw(frame, body, style);
    } else {
        let (above, below) = split(body, state.rows().len());
        state.page = table::draw(frame, above, state, style);
        detail::draw(frame, below, state, style);
    }
    footer::draw(frame, footer, state, style);
}

/// The table gets most of the lines if it needs them, and the stack of the selected row the rest.
fn split(body: Rect, rows: usize) -> (Rect, Rect) {
    let most = body.height * 11 / 20;
    // With its heading and an empty line.
    let needed = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2);
    let [above, below] = Layout::vertical([
        Constraint::Length(needed.max(FEW_ROWS).min(most)),
        Constraint::Fill(1),
    ])
    .areas(body);
    (above, below)
}

#[cfg(test)]
mod tests;
