//! Sites that grow only because others of their layer shrink.

use std::collections::{HashMap, HashSet};

use super::{shape::Judged, site::Context};
use crate::{
    analysis::{
        series::{Place, SiteSeries, place},
        window::Window,
    },
    event::Layer,
    frames::mappings::Use,
    ledger::SiteKey,
};

/// Where a layer grew by less than this share of what its growing sites gained, the others lost it.
const OFFSET: f64 = 0.5;

/// Where memory is of a layer in which what some sites gained others lost: blocks of one site take the
/// place of another's, as when a list that was filled in one place is kept up in another.
pub(super) struct Offset(HashSet<(Place, Layer)>);

impl Offset {
    pub(super) fn of(context: &Context, tested: &[(&SiteSeries, Judged)]) -> Offset {
        let Context { series, window, .. } = context;
        let net = |at: (Place, Layer), window: Window| match at {
            (Place::Host, Layer::Heap) => window.change(&series.heap),
            (Place::Host, Layer::Python) => window.change(&series.python),
            (Place::Host, _) => [Use::Program, Use::Stack]
                .map(|what| window.change(&series.mapped(what)))
                .iter()
                .sum(),
            (place, layer) => {
                let of = |place| {
                    series
                        .beside(place, layer)
                        .map_or(0.0, |of| window.change(of))
                };
                // What went of a device that is not known may be of this one.
                of(place) + of(Place::Device(None)).min(0.0)
            }
        };
        let mut gained: HashMap<(Place, Layer), Vec<&SiteSeries>> = HashMap::new();
        for (site, judged) in tested {
            if judged.is_material() {
                let at = (place(&site.key), site.key.layer);
                gained.entry(at).or_default().push(site);
            }
        }
        let covered = gained.into_iter().filter(|(at, sites)| {
            // What goes at the start of a device, which may be later than the process's, makes no room.
            let mut devices = series.devices.iter();
            let device = devices.find(|device| at.0 == Place::Device(device.index));
            let start = device.map_or(0, |device| device.window().from);
            let over = Window {
                from: window.from.max(start),
                ..*window
            };
            let gained = sites.iter().map(|site| over.change(&site.live_bytes));
            net(*at, over) < OFFSET * gained.sum::<f64>()
        });
        Offset(covered.map(|(at, _)| at).collect())
    }

    pub(super) fn covers(&self, key: &SiteKey) -> bool {
        self.0.contains(&(place(key), key.layer))
    }
}
