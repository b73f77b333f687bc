//! Sites that grow only because others of their layer shrink.

use std::collections::HashMap;

use super::{
    context::Context,
    evidence::{Amount, Evidence, Statement},
    shape::Judged,
    thresholds::SITE_FLOOR,
};
use crate::{
    analysis::{
        series::{Place, SiteSeries, place},
        window::Window,
    },
    event::Layer,
    frames::mappings::Use,
    ledger::SiteKey,
    recording::Origin,
};

/// If the other sites of a layer lost more than this share of what its growing sites gained, they
/// made room.
const OFFSET: f64 = 0.5;

static IN_PLACE: Statement = Statement {
    name: "sites_replace_one_another",
    sentence: "other sites of this layer shrank by a similar amount: memory moved between sites",
};

static OLDER: Statement = Statement {
    name: "blocks_replace_older_ones",
    sentence: "{freed} blocks from before the recording were freed, and resident memory grew by {less} less than blocks that stay: they took the place of older ones",
};

/// Whether this is the evidence that blocks took the place of those from before the recording.
pub(crate) fn is_of_older(evidence: &Evidence) -> bool {
    evidence.kind.name == OLDER.name
}

/// The places of layers in which some sites gained what others lost, and the evidence: blocks of one site replace
/// another's, as when a list that was filled in one place is maintained in another, or those from before the recording, as
/// in a full ring.
pub(super) struct Offset(HashMap<(Place, Layer), Evidence>);

impl Offset {
    pub(super) fn of(context: &Context, tested: &[(&SiteSeries, Judged)]) -> Offset {
        let mut gained: HashMap<(Place, Layer), Vec<&SiteSeries>> = HashMap::new();
        for (site, judged) in tested {
            if judged.is_material() {
                let at = (place(&site.key), site.key.layer);
                gained.entry(at).or_default().push(site);
            }
        }
        let covered = gained.into_iter().filter_map(|(at, sites)| {
            // Memory freed during start-up does not make room.
            let over = context.window_of(at.0);
            let sum = |of: fn(&SiteSeries) -> &[f64]| -> f64 {
                sites.iter().map(|site| over.change(of(site))).sum()
            };
            let gained = sum(|site| &site.live_bytes);
            if shrinkage(context, at, &sites, over) > OFFSET * gained {
                return Some((at, IN_PLACE.with([])));
            }
            let blocks = sum(|site| &site.live_count);
            let freed = context.quality.unknown_frees;
            let less = older(context, over);
            let is_heap = at == (Place::Host, Layer::Heap);
            (is_heap && less > OFFSET * gained && freed > OFFSET * blocks).then(|| {
                let values = [
                    ("freed", Amount::Count(freed)),
                    ("less", Amount::Bytes(less)),
                ];
                (at, OLDER.with(values))
            })
        });
        Offset(covered.collect())
    }

    /// Whether this site grows because other sites shrink.
    pub(super) fn is_in_place(&self, key: &SiteKey) -> bool {
        let evidence = self.of_site(key);
        evidence.is_some_and(|of| of.kind.name == IN_PLACE.name)
    }

    /// The evidence that blocks of this site took the place of others.
    pub(super) fn of_site(&self, key: &SiteKey) -> Option<&Evidence> {
        self.0.get(&(place(key), key.layer))
    }
}

/// Significant shrinkage of memory from before the attach, bytes; otherwise 0.
fn older(context: &Context, over: Window) -> f64 {
    let series = context.series;
    let beyond = series.beyond_blocks();
    match beyond.filter(|_| series.row.origin == Origin::Attached) {
        Some(mut older) => {
            add(&mut older, &series.python, -1.0);
            fall(context, &older, over)
        }
        None => 0.0,
    }
}

/// Significant fall of a series; otherwise 0.
fn fall(context: &Context, values: &[f64], over: Window) -> f64 {
    let falling: Vec<f64> = values.iter().map(|bytes| -bytes).collect();
    match Judged::of(&context.series.times, &falling, over.from, SITE_FLOOR) {
        Ok(judged) if judged.is_material() => over.change(&falling),
        _ => 0.0,
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
    fall(context, &rest, over)
}

fn add(sum: &mut [f64], values: &[f64], times: f64) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += times * value;
    }
}
