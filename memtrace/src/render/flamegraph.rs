//! The flame graph that inferno draws: of one layer, with the program's own frames in a colour of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
};

use inferno::flamegraph::{
    self, Options,
    color::{BasicPalette, Color, Palette, PaletteMap},
};

use super::{
    Error,
    collapsed::{of_sites, part, process},
    findings, until_closed,
};
use crate::{
    analysis::verdict::Diagnosis,
    event::Layer,
    frames::{library, names},
    recording::{At, Snapshot},
    units::{grouped, seconds, size},
    view::{Filter, Metric, Shown},
};

/// Colour of the program's own frames; those of libraries have shades of [`LIBRARIES`].
const OWN: Color = Color {
    r: 250,
    g: 150,
    b: 50,
};
const LIBRARIES: Palette = Palette::Basic(BasicPalette::Blue);

/// Characters that a line above the picture has room for.
const COLUMNS: usize = 150;

/// Writes an SVG flame graph, for a browser, of the sites that pass `filter` and whose `metric` is
/// not zero: those of its layer or, if it has none, of the largest one, and of address space only if there is nothing
/// else. Mappings by allocators are left out. If something grows, the first finding stands above the picture. Returns the
/// drawn layer and the others.
///
/// # Errors
///
/// When ages are requested but unknown, when there is nothing to draw, or when the output cannot be
/// written.
pub(crate) fn flamegraph(
    out: &mut impl Write,
    snapshot: &Snapshot,
    found: &Diagnosis,
    filter: &Filter,
    metric: Metric,
) -> Result<(Layer, Vec<Layer>), Error> {
    let mut sites = filter.select(snapshot, metric)?.sites;
    sites.retain(|site| !site.site.key.by_allocator && metric.of(&site.totals()) > 0);
    let mut layers: BTreeMap<Layer, u64> = BTreeMap::new();
    for site in &sites {
        *layers.entry(site.site.key.layer).or_default() += metric.of(&site.totals());
    }
    let most = layers
        .iter()
        .max_by_key(|(layer, value)| (**layer != Layer::Vm, **value));
    let layer = match most {
        Some((layer, _)) => *layer,
        None => return Err(Error::NothingToDraw(metric)),
    };
    let total = layers.remove(&layer).unwrap_or_default();
    sites.retain(|site| site.site.key.layer == layer);
    let mut own = own_frames(&sites, filter);
    let mut options = Options::default();
    options.title = title(snapshot, &sites, metric, layer, total);
    options.subtitle = findings::in_one_line(found, filter, COLUMNS).or_else(|| others(&layers));
    options.count_name = metric.unit().into();
    // The same function has the same colour in every graph, so that two can be compared.
    options.hash = true;
    options.reverse_stack_order = filter.inverted;
    options.colors = LIBRARIES;
    options.palette_map = Some(&mut own);
    let lines = of_sites(&sites, filter, metric);
    let drawn = flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut *out)
        .and_then(|()| out.flush());
    until_closed(drawn)?;
    Ok((layer, layers.into_keys().collect()))
}

/// The labels of the program's own frames, with their colour.
fn own_frames(sites: &[Shown], filter: &Filter) -> PaletteMap {
    let mut own = PaletteMap::default();
    for site in sites {
        for frame in filter.frames(site.stack) {
            if library::is_own(frame) {
                own.insert(part(&names::label(frame)), OWN);
            }
        }
    }
    own
}

/// `heap: 12.3 MiB live-bytes of python3 (42), at the end (15.0 s)`.
fn title(snapshot: &Snapshot, sites: &[Shown], metric: Metric, layer: Layer, total: u64) -> String {
    let total = match metric.unit() {
        "bytes" => size(total),
        _ => grouped(total),
    };
    let names: BTreeSet<String> = sites.iter().map(process).collect();
    let processes = match (names.first(), names.len()) {
        (Some(name), 1) => name.clone(),
        (_, n) => format!("{n} processes"),
    };
    let since = snapshot.time_ns.unwrap_or(snapshot.meta.started_ns);
    let time = seconds(since.saturating_sub(snapshot.meta.started_ns));
    let moment = match snapshot.at {
        At::Peak => "at the peak".into(),
        At::Time(_) => format!("at {time}"),
        At::Default | At::End => format!("at the end ({time})"),
    };
    format!(
        "{}: {total} {metric} of {processes}, {moment}",
        layer.name()
    )
}

/// Names the other layers that could be drawn.
fn others(layers: &BTreeMap<Layer, u64>) -> Option<String> {
    let names: Vec<_> = layers.keys().map(|layer| layer.name()).collect();
    (!names.is_empty()).then(|| format!("other layers, by --layer: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        analysis::{suppressions::Suppressions, system::SystemSeries, verdict::diagnose},
        view::fixture,
    };

    fn draw(snapshot: &Snapshot, filter: &Filter) -> Result<String, Error> {
        let mut out = Vec::new();
        let none = Diagnosis::default();
        flamegraph(&mut out, snapshot, &none, filter, Metric::LiveBytes)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn one_layer_is_drawn_and_named_in_the_title() {
        let svg = draw(&fixture::snapshot(), &Filter::default()).unwrap();
        for part in [
            "<svg",
            "heap: 1.0 MiB live-bytes of 2 processes, at the end (10.0 s)",
            "leaker (4242)",
            "fill",
            "1,048,576 bytes",
            "rgb(250,150,50)",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // The mapping is an allocator's, and of another layer.
        assert!(!svg.contains("vm"), "{svg}");
    }

    #[test]
    fn an_inverted_graph_begins_with_the_leaf() {
        let y = |inverted, name: &str| {
            let filter = Filter {
                inverted,
                ..Filter::default()
            };
            let svg = draw(&fixture::snapshot(), &filter).unwrap();
            let (_, of_box) = svg.split_once(&format!("<title>{name} (")).unwrap();
            let y = of_box.split(" y=\"").nth(1).unwrap();
            y.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        // The root is at the bottom.
        assert!(y(false, "fill") < y(false, "main"));
        assert!(y(true, "fill") > y(true, "main"));
    }

    #[test]
    fn the_line_that_keeps_stands_above_a_leak_and_not_above_its_control() {
        let draw = |name| {
            let (_folder, recording) = findings::snapshots::read(name);
            let machine = SystemSeries::read(&recording).unwrap();
            let found = diagnose(&recording, &machine, &Suppressions::default()).unwrap();
            let snapshot = recording.snapshot(At::Default).unwrap();
            let mut out = Vec::new();
            let filter = Filter::default();
            flamegraph(&mut out, &snapshot, &found, &filter, Metric::LiveBytes).unwrap();
            String::from_utf8(out).unwrap()
        };
        let leak = draw("torch-losses-leak");
        let above = ">leak (grade B): Metrics.update keeps 3 blocks/s (10.4 KiB/s); \
                     filled by Metrics.update  /#2598bb47/torch_training.py:50<";
        assert!(leak.contains(above), "{leak}");
        let ok = draw("torch-losses-ok");
        assert!(ok.contains("other layers, by --layer"), "{ok}");
        assert!(!ok.contains("(grade"), "{ok}");
    }

    #[test]
    fn mappings_by_allocators_are_not_drawn() {
        let filter = Filter {
            layer: Some(Layer::Vm),
            ..Filter::default()
        };
        let drawn = draw(&fixture::snapshot(), &filter);
        assert!(matches!(drawn, Err(Error::NothingToDraw(_))));
    }

    #[test]
    fn without_a_heap_the_layer_that_has_most_is_drawn() {
        let mut snapshot = fixture::snapshot();
        for site in &mut snapshot.sites {
            site.key.layer = match site.key.by_allocator {
                true => Layer::Vm,
                false => Layer::TorchCpu,
            };
            site.key.by_allocator = false;
        }
        let svg = draw(&snapshot, &Filter::default()).unwrap();
        assert!(svg.contains("torch-cpu: 1.0 MiB live-bytes"), "{svg}");
        assert!(svg.contains("other layers, by --layer: vm"), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let filter = Filter {
            pid: Some(1),
            ..Filter::default()
        };
        let drawn = draw(&fixture::snapshot(), &filter);
        assert!(matches!(drawn, Err(Error::NothingToDraw(_))));
    }
}
