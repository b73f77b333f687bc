//! A container of Python that each write replaces by a larger copy, as `subscribers = subscribers + (callback,)` does. A
//! search never sees it whole, because it is gone before all of it is read: the objects in it seem to have references that
//! nothing has.

use super::keeper::{How, Keeper};
use crate::{
    analysis::{
        series::{ProcessSeries, SiteSeries},
        verdict::types::Types,
        window::Window,
    },
    event::Layer,
    frames::{Frame, containers, own_line},
    recording::Stacks,
};
use std::ops::RangeInclusive;

/// Least number of copies, and by how much they have to grow, bytes.
const COPIES: f64 = 8.0;
const GROWTH: f64 = 1024.0;

/// Copies for each new object: each write adds one.
const PER_OBJECT: RangeInclusive<f64> = 0.8..=1.25;

/// The container, and the line that copies it, as probable; `None` if there is no such block, or no type of objects gets one
/// more for each copy.
pub(super) fn keeper(
    series: &ProcessSeries,
    window: Window,
    types: &Types,
    stacks: &Stacks,
) -> Option<Keeper> {
    let grown = |site: &SiteSeries| {
        let copies = window.change(&site.alloc_count);
        let per_second = window.rate(&site.alloc_count, &series.times);
        let mut objects = types.growing.iter();
        let is_one_each = |objects: f64| PER_OBJECT.contains(&(per_second / objects));
        let adds_one = objects.any(|of| is_one_each(of.grown() as f64 / of.seconds()));
        let is_other = site.key.layer != Layer::Heap || site.code.is_import;
        if is_other || copies < COPIES || !adds_one {
            return None;
        }
        let sizes = site.sizes(window.from)?;
        let only_rises = sizes.get(window.from..)?.is_sorted();
        Some(window.change(&sizes)).filter(|growth| only_rises && *growth >= GROWTH)
    };
    let sites = series.sites.iter();
    let copied = sites.filter_map(|site| Some((site, grown(site)?)));
    let (site, _) = copied.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let stack = stacks.get(site.key.stack);
    let frames: Vec<&Frame> = stack.of_caller().collect();
    let line = own_line(&frames).filter(|line| line.is_python())?;
    let known = containers::filled(stack.of_caller());
    let name = known.map_or("container", |(container, _)| container.name);
    Some(Keeper::new(How::Container(name), Some(line.clone())))
}
