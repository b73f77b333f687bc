//! The table of sites or groups.

use ratatui::{Frame, layout::Rect, text::Span};

use super::{Style, text};
use crate::{
    top::{
        rows::{Grouping, Row, Sort},
        state::{Origin, Phase, State},
    },
    units::{grouped, size},
};

/// From this width on, the table says what keeps the blocks, if that is known, and which processes have them.
const WIDE: usize = 120;

/// Columns of numbers, right-aligned.
const LIVE: usize = 10;
const GROWTH: usize = 11;
const AGE: usize = 6;
const PROCESSES: usize = 8;

/// If a narrow screen leaves less room for names, BLOCKS is left out, then AGE.
const LEAST_PLACE: usize = 12;

/// Widths that depend on the rows.
/// A column of width 0 is left out.
struct Widths {
    age: usize,
    blocks: usize,
    layer: usize,
    processes: usize,
    place: usize,
    keeper: usize,
}

impl Widths {
    fn of(rows: &[Row], grouping: Grouping, columns: usize) -> Widths {
        let blocks = rows.iter().map(|row| grouped(row.live_count).len());
        let layer = rows.iter().map(|row| layer(row).len());
        let blocks = blocks.max().unwrap_or(0).max("BLOCKS".len());
        let layer = layer.max().unwrap_or(0).max("LAYER".len());
        let is_wide = columns >= WIDE;
        let several = rows.iter().any(|row| row.tgids.len() > 1)
            || rows.windows(2).any(|pair| pair[0].tgids != pair[1].tgids);
        let processes = match is_wide && several && grouping != Grouping::Process {
            true => PROCESSES,
            false => 0,
        };
        let rest = |age, blocks| {
            let numbers = [LIVE, GROWTH, age, blocks, layer, processes];
            let gaps = numbers.iter().filter(|width| **width > 0).count() + 1;
            columns.saturating_sub(numbers.iter().sum::<usize>() + gaps)
        };
        let (age, blocks) = [(AGE, blocks), (AGE, 0)]
            .into_iter()
            .find(|(age, blocks)| rest(*age, *blocks) >= LEAST_PLACE)
            .unwrap_or((0, 0));
        let rest = rest(age, blocks);
        let keeper = match is_wide && rows.iter().any(|row| row.keeper.is_some()) {
            true => rest / 2,
            false => 0,
        };
        Widths {
            age,
            blocks,
            layer,
            processes,
            place: rest.saturating_sub(keeper + usize::from(keeper > 0)),
            keeper,
        }
    }

    /// One line, whose cells are already harmless.
    fn join(&self, cells: [&str; 8]) -> String {
        let [live, growth, age, blocks, processes, layer, place, keeper] = cells;
        let mut line = format!("{live:>LIVE$} {growth:>GROWTH$}");
        let numbers = [
            (age, self.age),
            (blocks, self.blocks),
            (processes, self.processes),
        ];
        for (cell, width) in numbers.into_iter().filter(|(_, width)| *width > 0) {
            line += &format!(" {cell:>width$}");
        }
        line += &format!(" {layer:<0$}  {place:<1$}", self.layer, self.place);
        if self.keeper > 0 {
            line += &format!(" {keeper:<0$}", self.keeper);
        }
        line
    }
}

/// Draws the table; returns the number of rows that fit.
pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, style: Style) -> usize {
    // Below the heading; the last line says which rows are shown.
    let page = usize::from(area.height).saturating_sub(2).max(1);
    if state.rows().is_empty() {
        empty(frame, area, state, style);
        return page;
    }
    let first = state.selected().saturating_sub(page.saturating_sub(1));
    let rows = state.rows().iter().enumerate().skip(first).take(page);
    let visible: Vec<(usize, &Row)> = rows.collect();
    let owned: Vec<Row> = visible.iter().map(|(_, row)| (*row).clone()).collect();
    let widths = Widths::of(&owned, state.choice.grouping, area.width.into());
    heading(frame, area, state, &widths, style);
    for (line, (index, row)) in visible.into_iter().enumerate() {
        let Some(area) = text::nth(area, line + 1) else {
            break;
        };
        let look = match row {
            _ if index == state.selected() => style.selected,
            _ if row.id.is_indirect => style.indirect,
            _ => style.plain,
        };
        let growth = growth(row.growth);
        let place = text::named(&row.name, &row.place, widths.place);
        let keeper = row.keeper.as_deref().unwrap_or_default();
        let keeper = text::cut(keeper, widths.keeper);
        let cells = widths.join([
            &size(row.live_bytes),
            &growth,
            &row.age_ns.map_or("-".into(), age),
            &grouped(row.live_count),
            &processes(&row.tgids),
            &layer(row),
            &place,
            &keeper,
        ]);
        let is_growing = row.growth >= 1.0 && look == style.plain;
        let spans = match is_growing
            .then(|| cells.split_at_checked(LIVE + 1 + GROWTH))
            .flatten()
        {
            Some((before, rest)) => {
                let (live, growth) = before.split_at(LIVE);
                vec![
                    Span::styled(live.to_owned(), look),
                    Span::styled(growth.to_owned(), style.growing),
                    Span::styled(rest.to_owned(), look),
                ]
            }
            None => vec![Span::styled(cells, look)],
        };
        text::spans(frame, area, spans);
    }
    let all = state.rows().len();
    if let Some(area) = text::nth(area, page + 1).filter(|_| page < all) {
        let last = (first + page).min(all);
        let shown = format!("rows {} to {last} of {all}", first + 1);
        text::line(frame, area, style.plain, &shown);
    }
    page
}

fn heading(frame: &mut Frame, area: Rect, state: &State, widths: &Widths, style: Style) {
    let marked = |sort, name: &str| match state.choice.sort == sort {
        true => format!("*{name}"),
        false => name.to_owned(),
    };
    let growth = match state.mark {
        Some(_) => "CHANGE",
        None => "GROWTH/s",
    };
    let line = widths.join([
        &match state.choice.sort {
            Sort::Leaks => "*LIVE".to_owned(),
            _ => marked(Sort::Live, "LIVE"),
        },
        &marked(Sort::Growth, growth),
        &marked(Sort::Age, "AGE"),
        // There may be no room for a mark.
        match state.choice.sort {
            Sort::Blocks if widths.blocks > "BLOCKS".len() => "*BLOCKS",
            Sort::Blocks => "*BLOCK",
            _ => "BLOCKS",
        },
        "PROCESS",
        "LAYER",
        "WHERE",
        "KEPT BY",
    ]);
    text::line(frame, area, style.heading, &line);
}

/// Why there is nothing to list, and what to do about it.
fn empty(frame: &mut Frame, area: Rect, state: &State, style: Style) {
    let lines = match &state.origin {
        Origin::Live(_) if state.phase == Phase::Starting => [
            "Setting probes. This takes some seconds.",
            "Blocks from before this moment will not be listed.",
        ],
        _ if state.reading().is_none() => ["Reading the recording ...", ""],
        _ if !state.choice.text.is_empty() || state.choice.layer.is_some() => [
            "No row matches.",
            "/ and then Esc clears the filter; l goes on to the next layer.",
        ],
        Origin::File(_) => ["The recording has no live blocks.", ""],
        Origin::Live(_) => [
            "Nothing that was allocated since the start is still live.",
            "Blocks from before that moment are not listed.",
        ],
    };
    for (index, line) in lines.iter().enumerate() {
        if let Some(area) = text::nth(area, index + 1) {
            text::line(frame, area, style.plain, line);
        }
    }
}

/// `+1.5 MiB`, `-200 B`, `0`.
fn growth(bytes: f64) -> String {
    let rounded = size(bytes.abs() as u64);
    match bytes {
        _ if bytes.abs() < 1.0 => "0".into(),
        _ if bytes < 0.0 => format!("-{rounded}"),
        _ => format!("+{rounded}"),
    }
}

/// In parentheses if other rows have the memory, too.
fn layer(row: &Row) -> String {
    let name = row.id.layer.name();
    match row.id.is_indirect {
        true => format!("({name})"),
        false => name.to_owned(),
    }
}

/// `119 s`, `99 min`, `47 h`, `3 d`.
fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..6_000 => format!("{} min", seconds / 60),
        6_000..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `1234`, or how many.
fn processes(tgids: &[u32]) -> String {
    match tgids {
        [tgid] => tgid.to_string(),
        several => format!("{} pids", several.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        for bytes in [0, 1023, (1 << 20) - 1, (1 << 30) - 1, 1 << 50] {
            assert!(size(bytes).len() <= LIVE, "{}", size(bytes));
            let text = growth(-(bytes as f64));
            assert!(text.len() <= GROWTH, "{text}");
        }
        assert_eq!(growth(0.4), "0");
        assert_eq!(growth(1536.0), "+1.5 KiB");
        assert_eq!(growth(-20.0), "-20 B");
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (5_999, "99 min"),
            (172_799, "47 h"),
            (864_000, "10 d"),
        ] {
            assert_eq!(age(seconds * 1_000_000_000), text);
            assert!(text.len() <= AGE);
        }
    }
}
