//! A course of figures over time as one line of bars.

use ratatui::{Frame, layout::Rect, widgets::Sparkline};

use super::Style;
use crate::top::reading::Span;

/// A course that changes by less than this share of its largest value looks flat, to this extent.
const FLAT: f64 = 0.9;

/// Bars have this many heights.
const HEIGHTS: f64 = 800.0;

/// The values at the ends of equal parts of a span of time; before the first point there is none.
fn sampled(course: &[(u64, u64)], span: Span, columns: usize) -> Vec<Option<u64>> {
    let length = span.to_ns.saturating_sub(span.from_ns) as f64;
    let ends = (1..=columns).map(|column| {
        let part = length * column as f64 / columns as f64;
        span.from_ns.saturating_add(part as u64)
    });
    ends.map(|end| {
        let known = course.partition_point(|(time, _)| *time <= end);
        let point = known.checked_sub(1).and_then(|at| course.get(at));
        point.map(|(_, value)| *value)
    })
    .collect()
}

/// Draws it. The lowest bar is the least value, unless all are alike.
pub(super) fn draw(frame: &mut Frame, area: Rect, course: &[(u64, u64)], span: Span, style: Style) {
    let values = sampled(course, span, area.width.into());
    let known = || values.iter().flatten().map(|value| *value as f64);
    let (least, most) = (
        known().fold(f64::MAX, f64::min),
        known().fold(0.0, f64::max),
    );
    let floor = least.min(most * FLAT);
    // Every known value has a bar.
    let height = |value: f64| match most > floor {
        true => (HEIGHTS * (1.0 + 7.0 * (value - floor) / (most - floor)) / 8.0) as u64,
        false => HEIGHTS as u64 / 8,
    };
    let bars: Vec<Option<u64>> = values
        .iter()
        .map(|value| value.map(|value| height(value as f64)))
        .collect();
    let bars = Sparkline::default()
        .data(bars)
        .max(HEIGHTS as u64)
        .absent_value_symbol(" ")
        .style(style.course);
    frame.render_widget(bars, area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_sampled_evenly() {
        let course = [(10, 1), (20, 2), (40, 4)];
        let span = Span {
            from_ns: 0,
            to_ns: 40,
        };
        let sampled = sampled(&course, span, 4);
        assert_eq!(sampled, [Some(1), Some(2), Some(2), Some(4)]);
        let early = super::sampled(
            &course,
            Span {
                from_ns: 0,
                to_ns: 5,
            },
            1,
        );
        assert_eq!(early, [None]);
    }
}
