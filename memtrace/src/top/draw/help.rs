//! The help.

use ratatui::{Frame, layout::Rect};

use super::{Style, text};
use crate::top::keys::BINDINGS;

/// What the columns mean.
const COLUMNS: [&str; 9] = [
    "LIVE      bytes allocated since the start and not freed; layers overlap",
    "GROWTH/s  change of LIVE per second over the last 30 s (of a finished",
    "          recording: over all of it); CHANGE: since the mark",
    "AGE       of the median live byte when blocks were last scanned, at least once",
    "          a minute; grows with a leak, stays small if blocks come and go",
    "(vm)      libraries, and mappings of allocators, which hold other rows' blocks",
    "*         the column that rows are sorted by",
    "RSS       resident memory of all processes; shared pages count in each",
    "live      heap and Python's arenas, or the layer chosen with l",
];

pub(super) fn draw(frame: &mut Frame, area: Rect, style: Style) {
    let keys = BINDINGS.iter().filter(|binding| !binding.help.is_empty());
    let keys = keys.map(|binding| format!("{:>8}  {}", binding.key, binding.help));
    let columns = COLUMNS.iter().map(|line| format!("  {line}"));
    for (index, line) in keys.chain(columns).enumerate() {
        if let Some(area) = text::nth(area, index) {
            text::line(frame, area, style.plain, &line);
        }
    }
}
