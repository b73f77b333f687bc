//! Advice on what to try next: the command or the setting that would confirm a verdict, or rule out
//! the next likely one. Each class has its own.

use super::{Class, Quality, site::Context, thresholds::LONGER};
use crate::{
    analysis::{
        series::SiteSeries,
        statistics::{MIN_POINTS, WARM_UP},
    },
    event::Layer,
    frames::allocators::Allocator,
};

/// Inputs of the advice on a site.
pub(super) struct Advice {
    pub(super) layer: Layer,
    pub(super) tgid: u32,
    /// Length of the recording, seconds.
    length: f64,
    /// Whether malloc was recorded.
    heap: bool,
}

impl Advice {
    /// How long to record for a decision.
    pub(super) fn longer(&self) -> String {
        format!(
            "record {LONGER:.0} times as long: `memtrace record -d {:.0}s …`",
            (self.length * LONGER).max(1.0).ceil()
        )
    }
}

/// Advice if the growth has no line, because it is not known which memory grew.
const NO_HEAP: &str = "malloc was not recorded: record without `--no-heap` to find the line";

/// Advice that begins with this needs sites.
pub(super) const SITES_BELOW: &str = "look at the sites below";

/// Advice that begins with this is for Python programs only.
const IN_PYTHON: &str = "in Python";

/// For a site.
pub(super) fn site(class: Class, site: &SiteSeries, context: &Context) -> Vec<String> {
    let advice = of(site.key.layer, context);
    let of_cache = site.code.cache;
    let of_cache = of_cache.map(|cache| format!("{}: {}", cache.name, cache.setting));
    let of_class = match class.description().next_of_site {
        Some(next) => next(&advice),
        None => advice.longer(),
    };
    of_cache.into_iter().chain([of_class]).collect()
}

/// For a process; `has_sites`: some of its sites have the same verdict, `on_device`: it is about the
/// memory of a device.
pub(super) fn process(
    class: Class,
    has_sites: bool,
    on_device: bool,
    context: &Context,
) -> Vec<String> {
    let description = class.description();
    let advice = of(Layer::Heap, context);
    let lines = description.next.iter();
    let mut next: Vec<String> = lines
        .filter(|line| has_sites || !line.starts_with(SITES_BELOW))
        .filter(|line| context.series.is_python || !line.starts_with(IN_PYTHON))
        .map(|line| line.replace("PID", &advice.tgid.to_string()))
        .map(|line| line.replace("GIVE_BACK", context.series.caching_allocator().gives_back))
        .collect();
    if description.allocator {
        next.extend(give_back(context.series.heap_allocator, advice.tgid));
    }
    if description.cache {
        next.push(context.series.caching_allocator().advice.into());
    }
    if !advice.heap && !has_sites && !on_device && class == Class::Undetermined {
        next.insert(0, NO_HEAP.into());
    }
    if description.longer || next.is_empty() && !description.next.is_empty() {
        next.push(advice.longer());
    }
    next
}

/// How to make an allocator give back freed memory.
fn give_back(allocator: Option<&Allocator>, tgid: u32) -> Vec<String> {
    match allocator {
        None => vec![format!(
            "find out which allocator the process uses (`memtrace probes -p {tgid}`), and how to make it give memory back"
        )],
        Some(of) if of.gives_back.is_empty() => {
            vec![format!(
                "see the manual of {} for how to give memory back",
                of.name
            )]
        }
        Some(of) => {
            let lines = of.gives_back.iter();
            lines.map(|line| format!("{}: {line}", of.name)).collect()
        }
    }
}

fn of(layer: Layer, context: &Context) -> Advice {
    Advice {
        layer,
        tgid: context.series.row.tgid,
        length: context.quality.length,
        heap: context.quality.heap,
    }
}

/// Advice if too much was lost.
pub(super) fn lose_less() -> String {
    "avoid losses: `memtrace record --ring-buffer 512m …`, or attach after start-up".into()
}

/// How long to record if there are too few intervals.
pub(super) fn enough(quality: &Quality) -> String {
    // Half may be the start of the program.
    let points = (MIN_POINTS as f64 / (1.0 - WARM_UP)).ceil() * 2.0;
    let seconds = (points * quality.interval).ceil().max(1.0);
    if quality.least_life > 0.0 {
        return format!(
            "record longer: `memtrace record -d {:.0}s …`; for a program that ends sooner, use shorter intervals (`--interval 50ms`)",
            seconds.max(quality.least_life * 1.5)
        );
    }
    format!(
        "record at least {points:.0} intervals: `memtrace record -d {seconds:.0}s …`, or use shorter ones (`--interval 100ms`)"
    )
}
