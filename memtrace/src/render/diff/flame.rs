//! Differential flame graphs: the width of a frame is its growth on one side, its colour the
//! difference (red: more in the new recording, blue: less).
//!
//! One graph cannot show both growth and shrinkage, because a frame without growth has no width.
//! Hence two views, as is the custom since Gregg's "Differential Flame Graphs" (2014).

use std::{collections::BTreeMap, io::Write};

use inferno::flamegraph::{self, Options};

use crate::{
    diff::{Comparison, SiteDifference},
    escape::clean,
    frames::names,
    render::{collapsed::part, until_closed},
};

/// The recording that widths are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    New,
    Baseline,
}

/// This many parts of a byte per unit are distinguished: growth per iteration may be small.
const PARTS: f64 = 1000.0;

/// Draws one view as SVG. `false`: nothing grows on that side, so nothing was drawn.
pub(crate) fn flamegraph(
    out: &mut impl Write,
    comparison: &Comparison,
    view: View,
) -> std::io::Result<bool> {
    let mut stacks: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for site in &comparison.sites {
        let rates = stacks.entry(stack(site)).or_default();
        // Shrinking frames have no width.
        rates[0] += site.baseline.rate.max(0.0);
        rates[1] += site.new.rate.max(0.0);
    }
    let parts = |rate: f64| (rate * PARTS).round() as u64;
    let side = match view {
        View::Baseline => 0,
        View::New => 1,
    };
    let lines: Vec<String> = stacks
        .iter()
        .filter(|(_, rates)| parts(rates[side]) > 0)
        // The last column is the width, and the one before is its reference.
        .map(|(stack, rates)| format!("{stack} {} {}", parts(rates[1 - side]), parts(rates[side])))
        .collect();
    if lines.is_empty() {
        return Ok(false);
    }
    let mut options = Options::default();
    let widths = match view {
        View::Baseline => "baseline",
        View::New => "new recording",
    };
    options.title = format!("memtrace: growth, widths of the {widths}");
    options.subtitle = Some("red: grows more in the new recording, blue: less".into());
    options.count_name = format!("bytes per {}", comparison.per.unit());
    options.factor = 1.0 / PARTS;
    options.negate_differentials = view == View::Baseline;
    let drawn = flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut *out)
        .and_then(|()| out.flush());
    until_closed(drawn)?;
    Ok(true)
}

fn stack(site: &SiteDifference) -> String {
    let shown = site.stack().map_or_else(Vec::new, |stack| stack.shown());
    let names = shown
        .iter()
        .rev()
        .map(|frame| part(&clean(&names::label(frame))));
    let no_stack = site.frames().is_empty().then(|| "[no stack]".to_owned());
    [site.layer.name().to_owned()]
        .into_iter()
        .chain(names)
        .chain(no_stack)
        .collect::<Vec<_>>()
        .join(";")
}
