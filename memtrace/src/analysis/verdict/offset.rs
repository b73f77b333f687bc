//! Sites that grow only because others of their layer shrink.

use std::collections::{HashMap, HashSet};

use super::{context::Context, shape::Judged, thresholds::SITE_FLOOR};
use crate::{
    analysis::{
        series::{Place, SiteSeries, place},
        window::Window,
    },
    event::Layer,
    frames::mappings::Use,
    ledger::SiteKey,
};

/// If the other sites of a layer lost more than this share of what its growing sites gained, they
/// made room.
const OFFSET: f64 = 0.5;

/// The places of layers in which some sites gained what others lost: blocks of one site replace
/// another's, as when a list that was filled in one place is maintained in another.
pub(super) struct Offset(HashSet<(Place, Layer)>);

impl Offset {
    pub(super) fn of(context: &Context, tested: &[(&SiteSeries, Judged)]) -> Offset {
        let mut gained: HashMap<(Place, Layer), Vec<&SiteSeries>> = HashMap::new();
        for (site, judged) in tested {
            if judged.is_material() {
                let at = (place(&site.key), site.key.layer);
                gained.entry(at).or_default().push(site);
            }
        }
        let covered = gained.into_iter().filter(|(at, sites)| {
            // Memory freed during start-up does not make room.
            let over = context.window_of(at.0);
            let gained: f64 = sites.iter().map(|site| over.change(&site.live_bytes)).sum();
            shrinkage(context, *at, sites, over) > OFFSET * gained
        });
        Offset(covered.map(|(at, _)| at).collect())
    }

    pub(super) fn covers(&self, key: &SiteKey) -> bool {
        self.0.contains(&(place(key), key.layer))
    }
}

/// Significant shrinkage of the rest of the layer, in bytes; otherwise 0. Memory that comes and goes with
/// the steps of a program does not count.
fn shrinkage(context: &Context, at: (Place, Layer), beside: &[&SiteSeries], over: Window) -> f64 {
    let series = context.series;
    let mut rest = match at {
        (Place::Host, Layer::Heap) => series.heap.clone(),
        (Place::Host, Layer::Python) => series.python.clone(),
        (Place::Host, _) => {
            let mapped = [Use::Program, Use::Stack].map(|what| series.mapped(what));
            let [program, stacks] = &mapped;
            program.iter().zip(stacks).map(|(a, b)| a + b).collect()
        }
        (place, layer) => {
            let of = |place| series.beside(place, layer).unwrap_or_default();
            // Memory freed on an unknown device may have been on this one.
            let mut rest = of(place).to_vec();
            if place != Place::Device(None) {
                add(&mut rest, of(Place::Device(None)), 1.0);
            }
            rest
        }
    };
    for site in beside {
        add(&mut rest, &site.live_bytes, -1.0);
    }
    let falling: Vec<f64> = rest.iter().map(|bytes| -bytes).collect();
    match Judged::of(&series.times, &falling, over.from, SITE_FLOOR) {
        Ok(judged) if judged.is_material() => over.change(&falling),
        _ => 0.0,
    }
}

fn add(sum: &mut [f64], values: &[f64], times: f64) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += times * value;
    }
}
